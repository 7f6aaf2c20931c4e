"""Probes, deadlines and grace periods follow the budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.launcher.engine_api import HEALTH_TIMEOUT_S
from serving.manifests import (
    Phase,
    launcher_config,
    startup_seconds,
)
from tests.unit.serving.made_specs import BUDGET, ENGINE, SPEC, by_kind, container_of, pod_of

pytestmark = pytest.mark.usefixtures("short_launcher")

PHASES = st.fixed_dictionaries(
    {
        name: st.floats(0, 5_000).map(lambda high: Phase(low_s=high / 4, expected_s=high / 2, high_s=high))
        for name in BUDGET
    }
)


@given(budget=PHASES)
@settings(max_examples=15, deadline=None)
def test_a_start_within_the_budget_is_never_killed_nor_reported_stuck(budget: Mapping[str, Phase]) -> None:
    spec = replace(SPEC, budget=budget)
    deployment = by_kind(spec)["Deployment"]["spec"]
    probe = container_of(spec)["startupProbe"]
    in_pod = sum(budget[name].high_s for name in ("start", "weights", "engine", "warmup"))
    total = sum(phase.high_s for phase in budget.values())
    allowed = probe["periodSeconds"] * probe["failureThreshold"]
    assert max(60, 1.5 * in_pod) <= allowed <= max(60, 1.5 * in_pod) + probe["periodSeconds"] + 1
    assert startup_seconds(spec) <= allowed
    assert deployment["progressDeadlineSeconds"] >= max(total, 1.5 * total - 2)


def test_known_deadlines() -> None:
    """180 s in the pod and 150 s before it, each with half as much again."""
    assert startup_seconds(SPEC) == 270
    assert container_of()["startupProbe"] == {
        "httpGet": {"path": "/startup", "port": "launcher"},
        "periodSeconds": 5,
        "timeoutSeconds": 3,
        "failureThreshold": 54,
    }
    assert by_kind()["Deployment"]["spec"]["progressDeadlineSeconds"] == 270 + 225


def test_a_very_short_budget_still_leaves_a_minute() -> None:
    instant = dict.fromkeys(BUDGET, Phase(low_s=0, expected_s=0, high_s=0))
    assert startup_seconds(replace(SPEC, budget=instant)) == 60


def test_every_probe_asks_the_launcher() -> None:
    """The engine's own /health answers before it is warm."""
    container = container_of()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8000, "launcher": 8001}
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    assert probes == {
        "startup": {"path": "/startup", "port": "launcher"},
        "readiness": {"path": "/ready", "port": "launcher"},
        "liveness": {"path": "/live", "port": "launcher"},
    }


def test_a_busy_engine_is_not_killed_for_a_slow_answer() -> None:
    """Kubelet waits longer for the launcher than the launcher for the engine; its own default is one second."""
    container = container_of()
    for name in ("startup", "readiness", "liveness"):
        assert container[f"{name}Probe"]["timeoutSeconds"] > HEALTH_TIMEOUT_S


def test_replicas_spread_over_zones_where_there_is_a_choice() -> None:
    (spread,) = pod_of()["topologySpreadConstraints"]
    assert spread["topologyKey"] == "topology.kubernetes.io/zone"
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    assert spread["labelSelector"] == {"matchLabels": {"coldstart/model": "llama"}}


@given(shutdown=st.integers(0, 3_600))
@settings(max_examples=15, deadline=None)
def test_the_kubelet_waits_longer_than_everybody_before_it(shutdown: int) -> None:
    spec = replace(SPEC, engine=replace(ENGINE, shutdown_timeout_s=shutdown))
    pod, drain = pod_of(spec), launcher_config(spec)["drain"]["timeout_s"]
    pre_stop = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert shutdown < drain
    assert pod["terminationGracePeriodSeconds"] > pre_stop + drain
    command = pod["containers"][0]["command"]
    assert command[command.index("--shutdown-timeout") + 1] == str(shutdown)
