"""Rules of the merger, over anything that the sources may say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.ledger.bundle import Bundle
from scripts.ledger.merge import ledger_of
from scripts.ledger.record import Expected

START = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC).timestamp()


def at(seconds: float) -> str:
    return datetime.fromtimestamp(START + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


moment = st.one_of(st.none(), st.integers(-500, 900))


@st.composite
def bundles(draw: st.DrawFn) -> Bundle:
    """A start whose moments are in any order, or not there at all."""
    scheduled, started, ready, pulled, pulling = (draw(moment) for _ in range(5))
    conditions: list[dict[str, Any]] = []
    if scheduled is not None:
        conditions.append({"type": "PodScheduled", "status": "True", "lastTransitionTime": at(scheduled)})
    if ready is not None:
        conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": at(ready)})
    status = (
        [{"name": "engine", "state": {"running": {"startedAt": at(started)}}, "restartCount": 0}]
        if started is not None
        else []
    )
    pod = {
        "metadata": {"name": "p", "uid": "u", "creationTimestamp": at(0)},
        "spec": {"containers": [{"name": "engine", "image": "vllm"}], "nodeName": "n"},
        "status": {"conditions": conditions, "containerStatuses": status},
    }
    events: list[dict[str, Any]] = []
    skew = draw(st.integers(-5, 5))
    for reason, seconds, message in (
        ("Pulling", pulling, "Pulling image"),
        ("Pulled", pulled, f'Successfully pulled image "x" in {draw(st.integers(1, 200))}.5s'),
    ):
        if seconds is not None:
            events.append(
                {
                    "metadata": {"creationTimestamp": at(seconds - skew)},
                    "reason": reason,
                    "message": message,
                    "firstTimestamp": at(seconds),
                    "lastTimestamp": at(seconds),
                    "source": {"component": "kubelet"},
                }
            )
    launched, node_ready = draw(moment), draw(moment)
    node = {"metadata": {"name": "n", "creationTimestamp": at(launched)}} if launched is not None else {}
    if node and node_ready is not None:
        node["status"] = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(node_ready)}]}
    began = draw(moment)
    launcher: dict[str, Any] = {}
    if began is not None:
        cuts = sorted(draw(st.lists(st.floats(0, 300), min_size=4, max_size=4)))
        bounds = [0.0, *cuts]
        shared = draw(st.booleans())
        names = [
            ["start", "weights"] if shared else ["start"],
            ["weights"] if not shared else ["engine"],
            ["engine"],
            ["warmup"],
        ]
        launcher = {
            "started_at": at(began),
            "state": draw(st.sampled_from(["ready", "warming", "refused"])),
            "segments": [
                {"phases": names[i], "detail": "x", "begin_s": bounds[i], "end_s": bounds[i + 1]} for i in range(4)
            ],
        }
    return Bundle(pod=pod, node=node, events=events, launcher=launcher, collected_s=START + 1000)


@settings(deadline=None)
@given(bundles())
def test_phases_and_unaccounted_are_the_wall_clock_whatever_is_said(bundle: Bundle) -> None:
    ledger = ledger_of(bundle)
    seen = [phase.seconds for phase in ledger.phases.values() if phase.seconds is not None]
    assert all(seconds >= 0 for seconds in seen)
    assert ledger.unaccounted_s >= -1e-6
    assert sum(seen) + ledger.unaccounted_s == pytest.approx(ledger.wall_clock_s, abs=1e-6)
    now = 0.0
    for segment in ledger.segments:
        assert segment.begin_s == pytest.approx(now, abs=1e-6)
        now = segment.end_s
    assert now == pytest.approx(ledger.wall_clock_s, abs=1e-6)
    by_phase: dict[str, float] = {}
    for segment in ledger.segments:
        by_phase[segment.phase or ""] = by_phase.get(segment.phase or "", 0.0) + segment.end_s - segment.begin_s
    for name, phase in ledger.phases.items():
        assert by_phase.get(name, 0.0) == pytest.approx(phase.seconds or 0.0, abs=1e-6)


@settings(deadline=None)
@given(bundles())
def test_nothing_is_zero_without_evidence(bundle: Bundle) -> None:
    for phase in ledger_of(bundle).phases.values():
        assert (phase.seconds is None) == bool(phase.missing)
        if phase.seconds == 0.0:
            assert phase.evidence


def test_nothing_at_all_is_measured_as_nothing() -> None:
    ledger = ledger_of(Bundle())
    assert not ledger.measured
    assert ledger.wall_clock_s == 0
    assert all(phase.missing for phase in ledger.phases.values())


def test_the_budget_given_comes_before_the_pods_own() -> None:
    launcher = {
        "started_at": at(0),
        "state": "ready",
        "segments": [{"phases": ["start"], "detail": "", "begin_s": 0, "end_s": 9}],
    }
    told = launcher | {"budget": {"start": {"low_s": 1, "expected_s": 2, "high_s": 3}}}
    assert ledger_of(Bundle(launcher=told)).over_budget() == [("start", 6.0)]
    mine = {"start": Expected(low_s=1, expected_s=5, high_s=10)}
    assert ledger_of(Bundle(launcher=told), mine).over_budget() == []
    assert ledger_of(Bundle(launcher=launcher)).budget == {}


def test_ec2_is_believed_before_the_node_claim() -> None:
    claim = {
        "status": {
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": at(s)}
                for kind, s in (("Launched", 20), ("Initialized", 90))
            ]
        }
    }
    pod = {
        "metadata": {"name": "p", "creationTimestamp": at(0)},
        "spec": {"nodeName": "n", "containers": [{"name": "engine"}]},
        "status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(91)}]},
    }
    node = {"metadata": {"name": "n", "creationTimestamp": at(50)}}
    assert ledger_of(Bundle(pod=pod, node=node, node_claim=claim)).phases["node"].seconds == 70.0
    ec2 = ledger_of(Bundle(pod=pod, node=node, node_claim=claim, instance={"LaunchTime": at(12)}))
    assert ec2.phases["node"].seconds == 78.0
    alone = ledger_of(Bundle(pod=pod, node=node))
    assert alone.phases["node"].seconds is None
    assert "nobody says when the instance was launched" in alone.phases["node"].missing
