"""The recorder, as shipped, against a real control plane."""

from __future__ import annotations

import http.server
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from scripts.ledger.kube_api import InCluster
from scripts.ledger.watching import Watcher
from serving.recorder import NAMESPACE as LEDGERS
from tests.cluster.recorder_process import RecorderProcess, install, kept, token
from tests.cluster.starts_plane import MODEL, NAMESPACE, StartsPlane, launcher_document
from tests.toolchain.kube_api import ApiError
from tests.toolchain.waiting import wait_until


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartsPlane]:
    with StartsPlane(tmp_path_factory.mktemp("plane")) as plane:
        plane.gpu_node("gpu-1", 64)
        install(plane.api)
        yield plane


@pytest.fixture(autouse=True)
def empty(plane: StartsPlane) -> Iterator[None]:
    plane.launcher.texts["/ledger"] = lambda _: json.dumps(launcher_document(datetime.now(UTC).isoformat()))
    plane.api.apply(plane.deployment(0))
    yield
    plane.api.apply(plane.deployment(0))
    wait_until(lambda: not plane.pods(), what="no pod is left")
    for config_map in kept(plane.api):
        plane.api.delete(f"/api/v1/namespaces/{LEDGERS}/configmaps/{config_map['metadata']['name']}")


def scale(plane: StartsPlane, replicas: int) -> list[dict[str, Any]]:
    plane.api.apply(plane.deployment(replicas))
    return wait_until(
        lambda: (pods := plane.ready_pods()) and len(pods) == replicas and pods, what=f"{replicas} pods are Ready"
    )


def ledgers(plane: StartsPlane, count: int) -> dict[str, dict[str, Any]]:
    """Uid → ledger, once there are so many."""
    found = wait_until(lambda: (maps := kept(plane.api)) and len(maps) >= count and maps, what=f"{count} ledgers")
    documents = [json.loads(config_map["data"]["ledger.json"]) for config_map in found]
    return {document["uid"]: document for document in documents}


def test_a_start_is_kept_with_the_phases_of_its_launcher(plane: StartsPlane, tmp_path: Path) -> None:
    with RecorderProcess(plane, tmp_path) as recorder:
        (pod,) = scale(plane, 1)
        ledger = ledgers(plane, 1)[pod["metadata"]["uid"]]
        phases = {name: found["seconds"] for name, found in ledger["phases"].items()}
        assert phases["weights"] == 12.0
        assert phases["node"] == 0.0
        assert phases["pull"] == pytest.approx(0.3)
        assert sum(phases.values()) + ledger["unaccounted_s"] == pytest.approx(ledger["wall_clock_s"], abs=0.01)
        wait_until(
            lambda: recorder.metric("coldstart_starts_total", model=MODEL, state="ready") == 1, what="the metric"
        )
        assert recorder.metric("coldstart_phase_seconds", model=MODEL, phase="weights") == 12.0
        assert recorder.metric("coldstart_phase_budget_seconds", phase="pull", bound="high") == 30.0
        assert recorder.metric("coldstart_compile_cache_total", result="hit") == 1
        checked = (
            subprocess.run(
                ["promtool", "check", "metrics"], input=recorder.text(), capture_output=True, text=True, check=False
            )
            if shutil.which("promtool")
            else None
        )
        assert checked is None or (checked.returncode, checked.stderr + checked.stdout) == (0, "")


def test_two_copies_keep_one_ledger_of_each_start(plane: StartsPlane, tmp_path: Path) -> None:
    with RecorderProcess(plane, tmp_path / "one") as one, RecorderProcess(plane, tmp_path / "two") as two:
        pods = scale(plane, 12)

        def handled() -> bool:
            counts = [copy.metric("coldstart_recorder_ledgers_total") or 0 for copy in (one, two)]
            return counts == [12, 12]

        wait_until(handled, what="both copies have handled every start")
        assert set(ledgers(plane, 12)) == {pod["metadata"]["uid"] for pod in pods}
        assert len(kept(plane.api)) == 12
        written = sum(copy.metric("coldstart_recorder_ledgers_total", result="written") or 0 for copy in (one, two))
        assert written == 12


def test_the_api_server_is_replaced_and_nothing_is_lost(plane: StartsPlane, tmp_path: Path) -> None:
    with RecorderProcess(plane, tmp_path) as recorder:
        first = scale(plane, 2)
        ledgers(plane, 2)
        plane.restart("apiserver")
        second = scale(plane, 5)
        found = ledgers(plane, 5)
        assert set(found) == {pod["metadata"]["uid"] for pod in [*first, *second]}
        assert len(kept(plane.api)) == 5
        assert (recorder.metric("coldstart_recorder_watch_restarts_total") or 0) > 0


def test_a_new_recorder_goes_on_where_the_last_one_ended(plane: StartsPlane, tmp_path: Path) -> None:
    recorder = RecorderProcess(plane, tmp_path)
    with recorder:
        scale(plane, 1)
        ledgers(plane, 1)
    pods = scale(plane, 3)
    with recorder:
        assert set(ledgers(plane, 3)) == {pod["metadata"]["uid"] for pod in pods}
        wait_until(lambda: recorder.metric("coldstart_starts_total", state="ready") == 3, what="all are counted once")
        assert recorder.metric("coldstart_recorder_ledgers_total", result="written") == 2


def test_a_pod_that_goes_before_it_is_ready_is_kept_as_such(plane: StartsPlane, tmp_path: Path) -> None:
    deployment = plane.deployment(1)
    deployment["spec"]["template"]["metadata"]["annotations"] = {"test/never-ready": "yes"}
    plane.launcher.texts.clear()
    with RecorderProcess(plane, tmp_path) as recorder:
        plane.api.apply(deployment)
        wait_until(lambda: recorder.metric("coldstart_starting_pods", model=MODEL) == 1, what="the pod starts")
        assert recorder.metric("coldstart_oldest_start_timestamp_seconds", model=MODEL)
        wait_until(lambda: any(pod["status"].get("phase") == "Running" for pod in plane.pods()), what="it runs")
        plane.api.apply(plane.deployment(0))
        (ledger,) = ledgers(plane, 1).values()
        assert ledger["state"] == "deleted"
        assert ledger["phases"]["warmup"]["seconds"] is None
        wait_until(lambda: recorder.metric("coldstart_starting_pods") is None, what="nothing starts")


def test_the_oldest_ledgers_make_room(plane: StartsPlane, tmp_path: Path) -> None:
    with RecorderProcess(plane, tmp_path, COLDSTART_KEEP="3") as recorder:
        for replicas in range(1, 6):
            scale(plane, replicas)
            wait_until(lambda n=replicas: recorder.metric("coldstart_recorder_ledgers_total") == n, what="it is kept")
        wait_until(lambda: len(kept(plane.api)) == 3, what="three are left")


class Collector(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Take)
        self.taken: list[dict[str, Any]] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class _Take(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


def test_spans_and_cloudwatch_lines_go_out(plane: StartsPlane, tmp_path: Path) -> None:
    collector = Collector()
    endpoint = f"http://127.0.0.1:{collector.server_address[1]}"
    with RecorderProcess(plane, tmp_path, COLDSTART_OTLP_ENDPOINT=endpoint, COLDSTART_CLOUDWATCH="log") as recorder:
        scale(plane, 1)
        ledgers(plane, 1)
        wait_until(lambda: collector.taken, what="spans came")
        wait_until(lambda: "_aws" in recorder.said(), what="the line is printed")
    spans = collector.taken[0]["resourceSpans"][0]["scopeSpans"][0]["spans"]
    root = spans[0]
    assert root["name"] == "cold start"
    assert {span["name"] for span in spans[1:]} >= {"pull", "start", "weights", "engine", "warmup"}
    assert all(span["parentSpanId"] == root["spanId"] for span in spans[1:])
    embedded = json.loads(next(line for line in recorder.said().splitlines() if "_aws" in line))
    assert embedded["weights_seconds"] == 12.0
    collector.shutdown()
    collector.server_close()


def test_its_account_reads_no_secret_and_no_log(plane: StartsPlane) -> None:
    bearer = {"Authorization": f"Bearer {token(plane.api)}"}
    for path in (
        f"/api/v1/namespaces/{NAMESPACE}/secrets",
        f"/api/v1/namespaces/{LEDGERS}/secrets",
        f"/api/v1/namespaces/{NAMESPACE}/configmaps",
        f"/api/v1/namespaces/{NAMESPACE}/pods/any/log",
        "/api/v1/nodes/gpu-1/proxy/metrics",
    ):
        with pytest.raises(ApiError) as refused:
            plane.api.request("GET", path, headers=bearer)
        assert refused.value.code == 403
    with pytest.raises(ApiError) as refused:
        plane.api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/any", headers=bearer)
    assert refused.value.code == 403


class _TooOld(InCluster):
    """Asks its first watch from a version that is long gone; the answer is the server's own."""

    watches = 0

    def stream(self, path: str, query: Mapping[str, str], timeout_s: float) -> Iterator[str]:
        self.watches += 1
        version = "1" if self.watches == 1 else query["resourceVersion"]
        return super().stream(path, {**query, "resourceVersion": version}, timeout_s)


def test_a_version_that_is_too_old_means_a_new_list(plane: StartsPlane, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(plane.api.token)
    api = _TooOld(plane.api.endpoint, tmp_path / "token", plane.folder / "certificates" / "ca.crt")
    watcher = Watcher(api=api, path="/api/v1/nodes", query={}, stopping=threading.Event())
    listed = 0
    changes = watcher.changes()
    for change in changes:
        listed += change.kind == "listed"
        if listed == 2:
            break
    changes.close()
    api.close()
    assert watcher.counts.expired == 1
    assert watcher.counts.lists == 2
