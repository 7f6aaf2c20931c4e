"""The launcher around a scripted engine: streams, signals, ends, probes, and every way a start can go wrong."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.toolchain.waiting import wait_until
from tests.unit.serving.pod import CACHED, COMPILED, LOAD, LOADED, STEPS, Pod, environment, launcher_config, zombies_of


def completions(pod: Pod, prompt: object) -> tuple[int, dict[str, Any]]:
    """What a user's request gets."""
    connection = http.client.HTTPConnection("127.0.0.1", pod.config["engine_port"], timeout=120)
    connection.request("POST", "/v1/completions", json.dumps({"prompt": prompt}), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


def test_becomes_ready_and_stops_with_the_engine(tmp_path: Path) -> None:
    with Pod.started(tmp_path) as pod:
        assert pod.until("/ready", 200)["state"] == "ready"
        assert pod.get("/startup")[0] == 200
        assert pod.get("/live")[0] == 200
        assert pod.get("/nothing")[0] == 404
        ledger = pod.ledger()
        assert ledger["warmup"]["steady"] is True
        assert ledger["answer"]["check"] == "sanity"
        assert ledger["weights"]["kind"] == "stream"
        pod.signal(signal.SIGTERM)
        assert pod.ended() == 0
    assert len(pod.events("ready")) == 1
    assert pod.events("ready")[0]["ledger"]["phases_s"].keys() == {"start", "weights", "engine", "warmup"}


def test_phases_sum_to_the_wall_clock(tmp_path: Path) -> None:
    with Pod.started(tmp_path) as pod:
        pod.until("/ready", 200)
        ledger = pod.ledger()
    assert sum(ledger["phases_s"].values()) == pytest.approx(ledger["total_s"], abs=0.005)
    bounds = [(segment["begin_s"], segment["end_s"]) for segment in ledger["segments"]]
    assert bounds[0][0] == 0.0
    assert all(earlier[1] == later[0] for earlier, later in pairwise(bounds))


def test_phases_that_no_line_told_apart_are_missing_not_zero(tmp_path: Path) -> None:
    with Pod.started(tmp_path, script={"steps": [["out", "another engine says nothing we know\n"]]}) as pod:
        pod.until("/ready", 200)
        ledger = pod.ledger()
        metrics = pod.get("/metrics")[1]
    assert ledger["phases_s"]["weights"] is None
    assert ledger["phases_s"]["engine"] is None
    assert ledger["unattributed_s"] > 0
    assert ledger["phases_s"]["warmup"] > 0
    measured = [line for line in metrics.splitlines() if line.startswith("coldstart_phase_seconds{")]
    assert [line for line in measured if 'phase="weights"' in line] == []
    assert len([line for line in measured if 'phase="warmup"' in line]) == 1


def test_both_streams_pass_through_unchanged(tmp_path: Path) -> None:
    """A line of 1 MB, carriage returns, bytes that are no text, a last line without an end: all arrive as they were."""
    long = "x" * 1_000_000
    out = [LOAD, LOADED, f"{long}\n", "50%\r100%\r\n", "no newline at the end"]
    err = ["colour \x1b[31mred\x1b[0m\n", "half a line"]
    steps = [*(["out", text] for text in out), *(["err", text] for text in err), ["exit", 3]]
    with Pod.started(tmp_path, script={"steps": steps}) as pod:
        assert pod.ended() == 3
    own = [line for line in pod.stdout().split(b"\n") if line.startswith(b'{"coldstart"')]
    rest = pod.stdout()
    for line in own:
        rest = rest.replace(line + b"\n", b"")
    assert rest.removesuffix(b"\n") == "".join(out).encode()
    assert pod.stderr() == "".join(err).encode()


@pytest.mark.parametrize("code", [0, 1, 7, 137])
def test_exits_with_the_engines_code_after_ready(tmp_path: Path, code: int) -> None:
    with Pod.started(tmp_path, script={"exit_code": code}) as pod:
        pod.until("/ready", 200)
        pod.signal(signal.SIGTERM)
        assert pod.ended() == code


def test_engine_that_dies_while_loading_ends_the_pod_once(tmp_path: Path) -> None:
    """Exit code and last lines are told; the launcher does not start it again: back-off is the kubelet's."""
    steps = [["out", LOAD], ["err", "torch.OutOfMemoryError: CUDA out of memory\n"], ["exit", 9]]
    with Pod.started(tmp_path, script={"steps": steps}) as pod:
        assert pod.ended() == 9
    assert len(pod.events("engine-starts")) == 1
    died = pod.events("engine-died")[0]
    assert died["phase"] == "weights"
    assert died["exit_code"] == 9
    assert died["last_lines"][-1] == "torch.OutOfMemoryError: CUDA out of memory"


def test_engine_killed_by_a_signal_gives_128_and_the_signal(tmp_path: Path) -> None:
    with Pod.started(tmp_path, script={"steps": [["kill", 9]]}) as pod:
        assert pod.ended() == 137
    assert pod.events("engine-died")[0]["phase"] == "start"


def test_engine_program_that_does_not_exist(tmp_path: Path) -> None:
    with Pod.started(tmp_path, engine=["/no/such/engine", "{weights}"]) as pod:
        assert pod.ended() == 127
    assert "/no/such/engine" in pod.events("refused")[0]["reason"]


def test_signals_are_forwarded(tmp_path: Path) -> None:
    with Pod.started(tmp_path) as pod:
        pod.until("/ready", 200)
        pod.signal(signal.SIGUSR1)
        wait_until(lambda: b"got SIGUSR1" in pod.stdout(), what=pod.said)
        assert pod.get("/ready")[0] == 200


def test_orphans_are_reaped(tmp_path: Path) -> None:
    """The engine's grandchild outlives its parent and becomes the launcher's: it must not stay a zombie."""
    with Pod.started(tmp_path, script={"steps": [["orphan"], ["orphan"], *STEPS]}) as pod:
        pod.until("/ready", 200)
        wait_until(lambda: not zombies_of(pod.process.pid), what="zombies below the launcher")


def test_sigterm_while_loading(tmp_path: Path) -> None:
    with Pod.started(tmp_path, script={"steps": [["out", LOAD], ["wait", str(tmp_path / "never")]]}) as pod:
        wait_until(lambda: LOAD.encode() in pod.stdout(), what=pod.said)
        pod.signal(signal.SIGTERM)
        assert pod.ended() == 0
    assert pod.events("engine-ended")[0]["asked_to_stop"] is True
    assert not pod.events("ready")


def test_sigterm_while_serving_lets_requests_finish(tmp_path: Path) -> None:
    """Out of the Service at once; the request in flight gets its whole answer; then the engine's code."""
    finish = tmp_path / "finish"
    answers: list[tuple[int, dict[str, Any]]] = []
    with Pod.started(tmp_path, script={"slow": str(finish), "requests": str(tmp_path / "requests")}) as pod:
        pod.until("/ready", 200)
        user = threading.Thread(target=lambda: answers.append(completions(pod, "slow")))
        user.start()
        wait_until(lambda: '"prompt": "slow"' in (tmp_path / "requests").read_text(), what="the request")
        pod.signal(signal.SIGTERM)
        state = pod.until("/ready", 503)
        assert state["state"] == "draining"
        assert pod.get("/live")[0] == 200
        assert not answers
        finish.touch()
        user.join()
        assert pod.ended() == 0
    assert answers[0][0] == 200
    assert answers[0][1]["choices"][0]["token_ids"] == [5, 6, 7, 8]


def test_engine_that_ignores_sigterm_is_killed_when_patience_ends(tmp_path: Path) -> None:
    config = launcher_config(drain={"timeout_s": 0.3})
    with Pod.started(tmp_path, config, script={"ignore_sigterm": True}) as pod:
        pod.until("/ready", 200)
        pod.signal(signal.SIGTERM)
        assert pod.ended() == 137
    assert "0.3 s" in pod.events("killed")[0]["reason"]


@pytest.mark.parametrize("which", ["port", "engine_port"])
def test_port_taken_is_refused_before_anything_starts(tmp_path: Path, which: str) -> None:
    config = launcher_config()
    with socket.create_server(("", config[which])), Pod.started(tmp_path, config) as pod:
        assert pod.ended() == 1
    assert f"port {config[which]} is taken" in pod.events("refused")[0]["reason"]
    assert not pod.events("engine-starts")


def test_missing_gpus_are_refused(tmp_path: Path) -> None:
    with Pod.started(tmp_path, launcher_config(gpus=64)) as pod:
        assert pod.ended() == 1
    assert "must have 64 GPUs" in pod.events("refused")[0]["reason"]


def test_bad_configuration_names_every_problem(tmp_path: Path) -> None:
    config = launcher_config(gpus=-1, surprise=1)
    with Pod.started(tmp_path, config) as pod:
        assert pod.ended() == 2
    problems = pod.events("bad-configuration")[0]["problems"]
    assert any(problem.startswith("gpus:") for problem in problems)
    assert "surprise: is unknown" in problems


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ([], "no engine command"),
        (["vllm", "serve"], "exactly once, not 0 times"),
        (["vllm", "{weights}", "{weights}"], "exactly once, not 2 times"),
        (["vllm", "{weights}", "--port", "1"], "--port 1"),
    ],
)
def test_contradictory_engine_command(tmp_path: Path, engine: list[str], words: str) -> None:
    with Pod.started(tmp_path, engine=engine) as pod:
        assert pod.ended() == 2
    assert words in pod.events("bad-configuration")[0]["problems"][0]


def test_wrong_answer_keeps_the_pod_out_and_up(tmp_path: Path) -> None:
    answer = {"prompt": "2 + 2 =", "token_ids": [5, 6, 9, 8], "firm_tokens": 3, "text": "t5t6t9t8"}
    with Pod.started(tmp_path, launcher_config(answer=answer)) as pod:
        state = pod.until("/startup", 200)
        assert state["state"] == "refused"
        assert state["reason"] == "wrong answer: token 3 of 3 is 7 instead of 9"
        assert pod.get("/ready")[0] == 503
        assert pod.get("/live")[0] == 200
        assert "coldstart_answer_right" in pod.get("/metrics")[1]
        assert pod.process.poll() is None
    assert pod.events("refused")[0]["ledger"]["answer"]["right"] is False


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ({"token_ids": [9, 9, 9, 9]}, "one token is repeated 4 times"),
        ({"token_ids": []}, "the answer is empty"),
        ({"logprob": None}, "log-probabilities are missing or not finite"),
    ],
)
def test_without_a_known_answer_it_must_be_sane(tmp_path: Path, script: dict[str, Any], reason: str) -> None:
    with Pod.started(tmp_path, script=script) as pod:
        assert pod.until("/startup", 200)["reason"] == f"wrong answer: {reason}"
        assert pod.get("/ready")[0] == 503


def test_right_answer_on_other_hardware_may_differ_after_a_near_tie(tmp_path: Path) -> None:
    answer = {"prompt": "2 + 2 =", "token_ids": [5, 6, 9, 9], "firm_tokens": 2, "text": ""}
    with Pod.started(tmp_path, launcher_config(answer=answer)) as pod:
        pod.until("/ready", 200)


def test_warmup_never_steady_ends_at_its_cap(tmp_path: Path) -> None:
    """Noise is no reason to keep a pod out for ever: Ready, and the ledger says that it was not steady."""
    config = launcher_config()
    config["warmup"] |= {"cap_s": 1, "tolerance": 0.0, "window": 3}
    with Pod.started(tmp_path, config, script={"latencies_s": [n / 1000 for n in range(1, 400)]}) as pod:
        pod.until("/ready", 200)
        warmup = pod.ledger()["warmup"]
    assert warmup["steady"] is False
    assert len(warmup["probes_s"]) > 3
    assert warmup["steady_s"] > warmup["first_s"]


def test_warmup_asks_what_the_plan_says(tmp_path: Path) -> None:
    with Pod.started(tmp_path, script={"requests": str(tmp_path / "requests")}) as pod:
        pod.until("/ready", 200)
    requests = [json.loads(line) for line in (tmp_path / "requests").read_text().splitlines()]
    completed = [r for r in requests if r["path"] == "/v1/completions"]
    lengths = {len(r["prompt"]) for r in completed if isinstance(r["prompt"], list) and isinstance(r["prompt"][0], int)}
    assert {4, 64} <= lengths
    assert any(len(r["prompt"]) == 2 and isinstance(r["prompt"][0], list) for r in completed)
    assert sum(1 for r in requests if r.get("stream")) == 2
    assert sum(1 for r in requests if r["path"] == "/v1/chat/completions") == 2
    assert all(r["model"] == "tiny" for r in requests)


def test_a_model_without_chat_is_warm_without_it(tmp_path: Path) -> None:
    with Pod.started(tmp_path, script={"refuse": {"/v1/chat/completions": 400}}) as pod:
        pod.until("/ready", 200)
        assert any(note.startswith("chat: HTTP 400") for note in pod.ledger()["warmup"]["unsupported"])


def test_warmup_without_one_success_is_no_ready(tmp_path: Path) -> None:
    config = launcher_config()
    config["warmup"] |= {"cap_s": 1}
    refuse = {"/v1/completions": 500, "/v1/chat/completions": 500}
    with Pod.started(tmp_path, config, script={"refuse": refuse}) as pod:
        state = pod.until("/startup", 200)
        assert state["reason"].startswith("no request of the warm-up succeeded: probe: HTTP 500")
        assert pod.get("/ready")[0] == 503


def test_ready_only_while_the_engine_is_healthy(tmp_path: Path) -> None:
    """An engine that hangs takes the pod out of the Service; it is not killed for that."""
    with Pod.started(tmp_path) as pod:
        pod.until("/ready", 200)
        (child,) = Path(f"/proc/{pod.process.pid}/task/{pod.process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGSTOP)
        try:
            assert pod.until("/ready", 503)["reason"] == "the engine's /health answers nothing"
            assert pod.get("/live")[0] == 200
        finally:
            os.kill(int(child), signal.SIGCONT)
        pod.until("/ready", 200)


def test_an_engine_that_says_it_is_dead_is_restarted(tmp_path: Path) -> None:
    """The engine answers 503 once its core process is gone: only a restart helps."""
    dead = tmp_path / "dead"
    with Pod.started(tmp_path, script={"dead": str(dead)}) as pod:
        pod.until("/ready", 200)
        dead.touch()
        assert pod.until("/live", 503)["reason"] == "the engine's /health answers 503"
        assert pod.get("/ready")[0] == 503


def test_source_that_fails_falls_back_to_the_next_path_once(tmp_path: Path) -> None:
    """S3 answers 403 to the streamer: the engine dies while loading, and the next path is tried."""
    failing = tmp_path / "failing.json"
    good = tmp_path / "script.json"
    config = launcher_config()
    config["weights"] = {
        "paths": [
            {"kind": "presharded", "source": "s3://b/p/", "engine_args": ["--script", str(failing)]},
            {"kind": "stream", "source": "s3://b/q/", "engine_args": ["--script", str(good)]},
        ]
    }
    error = "ValueError: Could not receive response from libstreamer due to: b'File access error'\n"
    failing.write_text(json.dumps({"port": 1, "steps": [["out", LOAD], ["err", error], ["exit", 1]]}))
    engine = [sys.executable, str(Path(__file__).with_name("fake_engine.py")), "{weights}"]
    with Pod.started(tmp_path, config, engine=engine) as pod:
        pod.until("/ready", 200)
        ledger = pod.ledger()
    assert ledger["weights"]["kind"] == "stream"
    assert "File access error" in ledger["weights"]["failed"]["presharded"]
    assert [attempt["phase"] for attempt in ledger["attempts"]] == ["weights"]
    assert len(pod.events("engine-starts")) == 2
    assert ledger["phases_s"]["weights"] is not None
    assert sum(ledger["phases_s"].values()) == pytest.approx(ledger["total_s"], abs=0.005)


def test_no_path_left_ends_with_the_engines_code(tmp_path: Path) -> None:
    error = (
        "botocore.exceptions.ClientError: An error occurred (403) when calling the HeadObject operation: Forbidden\n"
    )
    with Pod.started(tmp_path, script={"steps": [["err", error], ["exit", 1]]}) as pod:
        assert pod.ended() == 1
    assert "botocore.exceptions.ClientError" in pod.events("refused")[0]["reason"]
    assert len(pod.events("engine-starts")) == 1


def test_secrets_of_the_command_are_not_printed(tmp_path: Path) -> None:
    engine = [sys.executable, "-c", "raise SystemExit(5)", "{weights}", "--api-key", "hunter2", "--hf-token=hunter3"]
    with Pod.started(tmp_path, engine=engine) as pod:
        assert pod.ended() == 5
    assert "hunter" not in pod.said()
    assert pod.events("engine-starts")[0]["argv"][-3:] == ["--api-key", "***", "--hf-token=***"]


def test_same_engine_output_whether_it_was_cached_or_not(tmp_path: Path) -> None:
    for name, line, hit in (("cold", COMPILED, False), ("warm", CACHED, True)):
        steps = [["out", LOAD], ["out", LOADED], ["out", line]]
        with Pod.started(tmp_path / name, script={"steps": steps}) as pod:
            pod.until("/ready", 200)
            cache = pod.ledger()["compile_cache"]
        assert cache["hit"] is hit
        assert cache["evidence"] == line.strip()


def test_the_bundle_is_small_and_stands_alone(tmp_path: Path) -> None:
    """No module of this repository, no package but prometheus_client at start: an empty directory is enough."""
    with Pod.started(tmp_path, cwd=tmp_path, env=environment(PYTHONSAFEPATH="1")) as pod:
        pod.until("/ready", 200)
    source = (tmp_path / "launch.py").read_bytes()
    assert len(source) < 900 * 1024
    assert b"serving.launcher import" not in source
