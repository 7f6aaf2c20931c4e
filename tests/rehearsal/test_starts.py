"""The whole chain with the real engine: stage, render, run, warm, serve, stop; then again with the compile cache."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scripts.rehearsal.local_pod import buckets, workload
from scripts.rehearsal.pod import RunningPod
from scripts.rehearsal.site import Site, changed
from scripts.rehearsal.starts import READY_WITHIN_S, Start, ask
from serving.launcher.config import Config


def test_every_phase_is_told_and_they_sum_to_the_wall_clock(starts: tuple[Start, Start]) -> None:
    for start in starts:
        ledger = start.ledger
        assert ledger["engine"]["version"].startswith("0.32.0")
        assert None not in ledger["phases_s"].values()
        assert sum(ledger["phases_s"].values()) == pytest.approx(ledger["total_s"], abs=0.01)
        assert ledger["unattributed_s"] == 0
        assert ledger["attempts"] == []


def test_the_ledger_agrees_with_a_clock_outside(site: Site, starts: tuple[Start, Start]) -> None:
    """From the process's start to the first 200 of /ready, measured here: within 0.2 s and a poll."""
    del starts
    pod = site.fresh_pod()
    with RunningPod.started(pod, site.folder / "clock") as running:
        ledger = running.ready(READY_WITHIN_S)
        seen_s = time.monotonic() - running.started_at
        running.stop()
    assert 0.0 <= seen_s - ledger["total_s"] < 0.5


def test_the_weights_were_streamed_whole(site: Site, starts: tuple[Start, Start]) -> None:
    for start in starts:
        weights = start.ledger["weights"]
        assert weights["kind"] == "stream"
        assert weights["weights_bytes"] == pytest.approx(site.staged.manifest.weights_bytes, rel=0.05)
        assert weights["read_s"] > 0


def test_the_first_start_keeps_what_it_compiled_and_the_second_uses_it(starts: tuple[Start, Start]) -> None:
    cold, warm = starts
    assert cold.ledger["compile_cache"]["restore"] == "miss"
    assert cold.ledger["compile_cache"]["hit"] is False
    assert cold.published["publish"] == "published"
    assert warm.ledger["compile_cache"]["restore"] == "restored"
    assert warm.ledger["compile_cache"]["hit"] is True
    assert "cache hit for key" in warm.ledger["compile_cache"]["evidence"]
    assert warm.ledger["compile_cache"]["key"] == cold.ledger["compile_cache"]["key"]


def test_warm_up_and_answer(starts: tuple[Start, Start]) -> None:
    for start in starts:
        warmup = start.ledger["warmup"]
        assert warmup["requests"] > 10
        assert warmup["failed"] == []
        assert warmup["unsupported"] == []
        assert start.ledger["answer"]["right"] is True
        assert len(start.ledger["answer"]["token_ids"]) == 24
        assert start.ledger["answer"]["firm_tokens"] > 1


def test_users_get_the_same_answers_from_both(starts: tuple[Start, Start]) -> None:
    cold, warm = starts
    assert cold.answers["text"] == warm.answers["text"] != ""
    assert cold.answers["chat"]
    assert cold.answers["streamed"]
    assert (cold.exit_code, warm.exit_code) == (0, 0)


@pytest.fixture(scope="module")
def recorded(site: Site, starts: tuple[Start, Start]) -> tuple[dict[str, Any], str]:
    """Ledger, and the engine's own metrics, of a start whose staged manifest holds what the first one answered."""
    answer = starts[0].ledger["answer"]
    place = {"Bucket": site.staged.bucket, "Key": site.staged.model.manifest_key}
    manifest = json.loads(site.store.client().get_object(**place)["Body"].read())
    manifest["answer"] = {name: answer[name] for name in ("prompt", "token_ids", "firm_tokens", "text")}
    site.store.client().put_object(**place, Body=json.dumps(manifest).encode())
    pod = site.fresh_pod()
    with RunningPod.started(pod, site.folder / "known") as running:
        ledger = running.ready(READY_WITHIN_S)
        with urllib.request.urlopen(f"http://127.0.0.1:{pod.config['engine_port']}/metrics") as page:
            metrics = page.read().decode()
        running.stop()
    return ledger, metrics


def test_an_answer_that_was_recorded_is_right_the_next_time(recorded: tuple[dict[str, Any], str]) -> None:
    answer = recorded[0]["answer"]
    assert answer["check"] == "known"
    assert answer["right"] is True


def test_the_scaler_finds_in_the_engines_metrics_what_it_looks_for(
    site: Site, recorded: tuple[dict[str, Any], str]
) -> None:
    (scaled,) = (found for found in site.objects if found["kind"] == "ScaledObject")
    asked = [trigger["metadata"] for trigger in scaled["spec"]["triggers"] if trigger["type"] == "metrics-api"]
    shown = {
        f'{sample.name}{{model_name="{sample.labels.get("model_name")}"}}': sample.value
        for family in text_string_to_metric_families(recorded[1])
        for sample in family.samples
    }
    assert len(asked) == 2
    assert [shown[about["valueLocation"]] for about in asked] == [0.0, 0.0]


def node_cached(site: Site, config: Any) -> dict[str, Any]:
    """The node-cache path, then streaming."""
    stream = config["weights"]["paths"][0]
    path = {
        "kind": "node-cache",
        "source": stream["source"],
        "engine_args": ["{dir}", "--load-format", "safetensors"],
        "dir": str(site.folder / "node-cache"),
        "limit_bytes": 10**9,
        "manifest": site.staged.model.manifest_uri(site.staged.bucket),
        "fill_timeout_s": 120,
        "connections": 8,
    }
    return {"paths": [path, stream]}


def test_pods_of_a_node_share_one_copy(site: Site, starts: tuple[Start, Start]) -> None:
    """The first pod fills it from what was staged, verified; the second reads it; both answer as the streamed one."""
    for origin in ("s3", "node"):
        pod = site.fresh_pod()
        pod = changed(pod, weights=node_cached(site, pod.config))
        with RunningPod.started(pod, site.folder / f"node-cache-{origin}") as running:
            ledger = running.ready(READY_WITHIN_S)
            answers = ask(site, pod, 1)
            running.stop()
        assert (ledger["weights"]["kind"], ledger["weights"]["origin"]) == ("node-cache", origin)
        assert ledger["weights"]["failed"] == {}
        assert ledger["weights"]["weights_bytes"] == site.staged.manifest.weights_bytes
        assert answers["text"] == starts[0].answers["text"]


def test_the_rehearsed_pod_is_the_rendered_one(site: Site) -> None:
    """Every difference is listed with its reason; the launcher is byte for byte the shipped one."""
    pod = site.pod()
    container, config_map = workload(site.objects)
    assert pod.launcher == config_map["data"]["launch.py"]
    assert "python3" in {change.what for change in pod.changes}
    assert all(change.why for change in pod.changes)
    kept = [argument for argument in container["command"] if argument.startswith("--")]
    listed = " ".join(change.what for change in pod.changes)
    assert [option for option in kept if option not in pod.argv and option not in listed] == []
    assert Config.from_json(pod.config).gpus == 0
    assert buckets(pod.config) == {site.staged.bucket}
