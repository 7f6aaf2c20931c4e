"""Metrics, alerts and dashboard where they live: the recorder in a control plane, scraped by a real Prometheus."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from scripts.ledger.observability import files
from tests.cluster.recorder_process import RecorderProcess, install
from tests.cluster.starts_plane import MODEL, NAMESPACE, StartsPlane, launcher_document
from tests.metrics.prometheus import RULES, Prometheus
from tests.toolchain.waiting import wait_until

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StartsPlane, RecorderProcess, Prometheus]]:
    folder = tmp_path_factory.mktemp("metrics")
    with StartsPlane(folder / "plane") as plane:
        plane.gpu_node("gpu-1", 16)
        install(plane.api)
        with (
            RecorderProcess(plane, folder / "recorder") as recorder,
            Prometheus(folder / "prometheus", recorder.port) as prometheus,
        ):
            one_more(plane, weights_high_s=30.0)
            stuck(plane)
            yield plane, recorder, prometheus


def one_more(plane: StartsPlane, *, weights_high_s: float, hit: bool = True) -> None:
    """A start whose budget allows the weights so many seconds; they take 12."""
    document = launcher_document("")
    document["budget"]["weights"] = {"low_s": 1.0, "expected_s": 5.0, "high_s": weights_high_s}
    document["compile_cache"] = {"restore": "restored", "hit": hit, "evidence": "the engine's own line"}

    def text(_: str) -> str:
        return json.dumps(document | {"started_at": datetime.now(UTC).isoformat()})

    plane.launcher.texts["/ledger"] = text
    replicas = len(plane.ready_pods()) + 1
    plane.api.apply(plane.deployment(replicas))
    wait_until(lambda: len(plane.ready_pods()) == replicas, what="the pod is Ready")


def stuck(plane: StartsPlane) -> None:
    """A pod of the model that never becomes Ready."""
    template = plane.deployment(1)["spec"]["template"]
    meta = {"name": "stuck", "namespace": NAMESPACE, "labels": template["metadata"]["labels"]}
    meta["annotations"] = {"test/never-ready": "yes"}
    plane.api.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]})


def test_an_alert_fires_over_the_budget_and_resolves(scene: tuple[StartsPlane, RecorderProcess, Prometheus]) -> None:
    plane, _, prometheus = scene
    over = ("ColdStartPhaseOverBudget", "weights")
    one_more(plane, weights_high_s=10.0)
    wait_until(lambda: over in prometheus.firing(), what="the alert fires")
    assert prometheus.query('coldstart_phase_seconds{phase="weights"}')[0]["value"][1] == "12"
    assert {alert for alert, _ in prometheus.firing()} == {"ColdStartPhaseOverBudget"}
    one_more(plane, weights_high_s=30.0)
    wait_until(lambda: not prometheus.firing(), what="the alert resolves")


def test_a_start_that_is_stuck_and_misses_of_the_cache_are_told(
    scene: tuple[StartsPlane, RecorderProcess, Prometheus],
) -> None:
    plane, recorder, prometheus = scene
    one_more(plane, weights_high_s=30.0, hit=False)
    wait_until(lambda: recorder.metric("coldstart_compile_cache_total", result="miss") == 1, what="the miss is counted")
    (miss,) = wait_until(lambda: prometheus.query('coldstart_compile_cache_total{result="miss"}'), what="it is scraped")
    assert miss["value"][1] == "1"
    oldest = "time() - min by (model) (coldstart_oldest_start_timestamp_seconds)"
    (age,) = wait_until(lambda: prometheus.query(oldest), what="a start is under way")
    assert 0 <= float(age["value"][1]) < 600


@pytest.mark.parametrize(
    "panel", json.loads(files()["metrics/dashboard.json"])["panels"], ids=lambda panel: panel["title"]
)
def test_every_panel_shows_something(
    scene: tuple[StartsPlane, RecorderProcess, Prometheus], panel: dict[str, Any]
) -> None:
    _, _, prometheus = scene
    query = panel["targets"][0]["expr"].replace("$model", MODEL)
    wait_until(lambda: prometheus.query(query), what=f"{panel['title']} has data: {query}")


def test_promtool_accepts_metrics_and_rules(scene: tuple[StartsPlane, RecorderProcess, Prometheus]) -> None:
    _, recorder, _ = scene
    rules = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert rules.returncode == 0, rules.stdout + rules.stderr
    metrics = subprocess.run(
        ["promtool", "check", "metrics"], input=recorder.text(), capture_output=True, text=True, check=False
    )
    assert (metrics.returncode, metrics.stdout, metrics.stderr) == (0, "", "")
