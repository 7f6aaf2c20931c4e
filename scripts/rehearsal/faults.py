"""Faults on purpose, each against the real engine; what must hold is checked, and told in one line."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scripts.failure import Failure
from scripts.rehearsal.local_pod import LocalPod
from scripts.rehearsal.pod import RunningPod, descendants
from scripts.rehearsal.site import Site, changed
from scripts.rehearsal.starts import READY_WITHIN_S

LOADING = "Starting to load model"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One thing that goes wrong, and what was seen. `held` is whether the pod did what it must."""

    name: str
    must: str
    held: bool
    seen: str


def _fault(name: str, must: str, expected: Mapping[str, object], found: Mapping[str, object]) -> Fault:
    return Fault(
        name=name,
        must=must,
        held=all(found.get(key) == value for key, value in expected.items()),
        seen=", ".join(f"{key} {value}" for key, value in found.items()),
    )


def stopped_while_loading(site: Site, _ledger: Mapping[str, Any]) -> Fault:
    """SIGTERM before the engine serves."""
    with RunningPod.started(site.fresh_pod(), site.folder / "stopped-loading") as pod:
        pod.until(lambda: pod.says(LOADING), "loading", READY_WITHIN_S)
        code = pod.stop()
        found = {"Ready": bool(pod.events("ready")), "engine runs": len(pod.events("engine-starts")), "exit code": code}
    return _fault(
        "SIGTERM while loading", "it ends, never Ready, never started again", {"Ready": False, "engine runs": 1}, found
    )


def killed_while_loading(site: Site, _ledger: Mapping[str, Any]) -> Fault:
    """A process of the engine is killed, as by the kernel when memory runs out."""
    with RunningPod.started(site.fresh_pod(), site.folder / "killed-loading") as pod:
        pod.until(lambda: pod.says(LOADING), "loading", READY_WITHIN_S)
        for pid in descendants(pod.pid)[:-1]:  # all but the engine's main process
            os.kill(pid, signal.SIGKILL)
        code = pod.wait(120)
        died = pod.events("engine-died")
    found = {
        "engine runs": len(pod.events("engine-starts")),
        "told with last lines": bool(died and died[0]["last_lines"]),
    }
    return _fault(
        "the engine's worker killed while loading",
        "the pod ends with an error once, and says why",
        {"engine runs": 1, "told with last lines": True, "error": True},
        found | {"error": code != 0, "exit code": code},
    )


def access_denied(site: Site, _ledger: Mapping[str, Any]) -> Fault:
    """S3 knows the pod's identity, and grants it nothing."""
    pod = site.fresh_pod()
    access, secret = site.store.stranger
    keys = {"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret}
    refused = replace(pod, environment={**pod.environment, **keys})
    with RunningPod.started(refused, site.folder / "access-denied") as running:
        code = running.wait(READY_WITHIN_S)
        last = (running.events("refused") or [{"reason": ""}])[-1]
    runs = len(running.events("engine-starts"))
    return _fault(
        "S3 answers 403",
        "every weights path is tried at most once, and the pod ends with the reason",
        {"error": True, "told": True, "at most once each": True},
        {
            "error": code != 0,
            "told": "AccessDenied" in last["reason"] or "Forbidden" in last["reason"],
            "at most once each": runs <= len(refused.config["weights"]["paths"]),
            "reason": last["reason"][-120:],
        },
    )


def wrong_answer(site: Site, ledger: Mapping[str, Any]) -> Fault:
    """The weights are not those that were recorded."""
    answer = ledger["answer"]
    tokens = [answer["token_ids"][0] + 1, *answer["token_ids"][1:]]
    known = {"prompt": answer["prompt"], "token_ids": tokens, "firm_tokens": 1, "text": "x" + answer["text"]}
    with RunningPod.started(changed(site.fresh_pod(), answer=known), site.folder / "wrong-answer") as pod:
        pod.until(lambda: pod.get("/startup")[0] == http.HTTPStatus.OK, "decided", READY_WITHIN_S)
        status, document = pod.get("/ready")
    return _fault(
        "a wrong answer",
        "the pod stays up and out of the Service, and says which token",
        {"/ready": 503, "state": "refused"},
        {"/ready": status, "state": document.get("state"), "reason": document.get("reason")},
    )


def requests_in_flight(site: Site, _ledger: Mapping[str, Any]) -> Fault:
    """SIGTERM while a user waits for a long answer."""
    answers: list[tuple[int, int]] = []
    pod = site.fresh_pod()
    with RunningPod.started(pod, site.folder / "in-flight") as running:
        running.ready(READY_WITHIN_S)
        user = threading.Thread(target=lambda: answers.append(_long_request(pod)))
        user.start()
        running.until(lambda: _running_requests(pod) > 0, "a request running", 60)
        running.signal(signal.SIGTERM)
        running.until(lambda: running.get("/ready")[0] != http.HTTPStatus.OK, "out of the Service", 10)
        user.join()
        code = running.wait(120)
    status, tokens = answers[0]
    return _fault(
        "SIGTERM with a request in flight",
        "the request is answered whole",
        {"status": 200, "tokens": LONG_TOKENS, "exit code": 0},
        {"status": status, "tokens": tokens, "exit code": code},
    )


def damaged_compile_cache(site: Site, _ledger: Mapping[str, Any]) -> Fault:
    """One byte of every archive is changed."""
    client = site.store.client()
    for bucket in client.list_buckets()["Buckets"]:
        name = bucket.get("Name", "")
        for item in client.list_objects_v2(Bucket=name, Prefix="cache/").get("Contents", []):
            found = client.get_object(Bucket=name, Key=item.get("Key", ""))
            body = bytearray(found["Body"].read())
            body[len(body) // 2] ^= 1
            client.put_object(Bucket=name, Key=item.get("Key", ""), Body=bytes(body), Metadata=found["Metadata"])
    with RunningPod.started(site.fresh_pod(), site.folder / "damaged-cache") as pod:
        cache = pod.ready(READY_WITHIN_S)["compile_cache"]
    return _fault(
        "a damaged compile cache",
        "the start goes on without it",
        {"restore": "skipped", "hit": False},
        {"restore": cache["restore"], "hit": cache["hit"], "reason": cache["reason"]},
    )


FAULTS: tuple[Callable[[Site, Mapping[str, Any]], Fault], ...] = (
    stopped_while_loading,
    killed_while_loading,
    access_denied,
    wrong_answer,
    requests_in_flight,
    damaged_compile_cache,
)
"""In the order in which they run: the last one spoils the cache that the others start from."""

LONG_TOKENS = 300


def _long_request(pod: LocalPod) -> tuple[int, int]:
    """Status and number of tokens of a completion that takes seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", int(pod.config["engine_port"]), timeout=300)
    body = {
        "model": pod.config["served_model_name"],
        "prompt": "Count",
        "max_tokens": LONG_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
    }
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        document = json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Failure(f"the request in flight was lost: {error}") from error
    finally:
        connection.close()
    return response.status, int(document.get("usage", {}).get("completion_tokens", 0))


def _running_requests(pod: LocalPod) -> float:
    """What the engine's own metrics say of requests that run."""
    connection = http.client.HTTPConnection("127.0.0.1", int(pod.config["engine_port"]), timeout=5)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return 0.0
    finally:
        connection.close()
    values = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith("vllm:num_requests_running{")]
    return sum(float(value) for value in values)
