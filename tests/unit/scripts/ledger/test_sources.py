"""Small readers: durations, skew, kubelet metrics, kept ledgers, the exposition, and what AWS adds."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from budget.phases import PHASES as BUDGETED
from scripts.ledger.amazon import Amazon
from scripts.ledger.bundle import Bundle
from scripts.ledger.collect import kept_ledgers
from scripts.ledger.exposition import Exposition
from scripts.ledger.facts import PHASES
from scripts.ledger.kube_api import ApiError
from scripts.ledger.kubelet_facts import only_pull_s
from scripts.ledger.merge import ledger_of
from scripts.ledger.node_probe import Probe, probe_pod
from scripts.ledger.raw import Object
from scripts.ledger.record import Measured, document
from scripts.ledger.skew import skew_of
from scripts.ledger.times import go_duration_s, stamp


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1m52.33s", 112.33),
        ("812.4ms", 0.8124),
        ("2h3m4s", 7384.0),
        ("5µs", 5e-6),
        ("0s", 0.0),
        ("12", None),
        ("", None),
    ],
)
def test_go_durations(text: str, seconds: float | None) -> None:
    found = go_duration_s(text)
    assert found == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("text", "resolution_s"),
    [("2026-11-30T12:00:00Z", 1.0), ("2026-11-30T12:00:00.5Z", 0.1), ("2026-11-30T13:00:00.123456+01:00", 1e-6)],
)
def test_stamps_say_how_fine_they_are(text: str, resolution_s: float) -> None:
    at_s, found = stamp(text)
    assert int(at_s) == datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
    assert found == pytest.approx(resolution_s)


@settings(deadline=None)
@given(st.integers(-30, 30), st.lists(st.floats(0, 3), min_size=1, max_size=6))
def test_skew_is_found_within_a_second(skew_s: int, delays_s: list[float]) -> None:
    """Whatever the writes' delays, as long as one of them is short."""
    events = []
    for index, delay_s in enumerate([*delays_s, 0.0]):
        api_s = 1_796_000_000 + 7.3 * index
        written = datetime.fromtimestamp(int(api_s + delay_s), UTC).isoformat()
        said = datetime.fromtimestamp(int(api_s + skew_s), UTC).isoformat()
        events.append(
            {
                "reason": "Pulling",
                "metadata": {"creationTimestamp": written},
                "firstTimestamp": said,
                "source": {"component": "kubelet"},
            }
        )
    found = skew_of(Bundle(events=events))
    assert found is not None
    assert found.low_s <= skew_s <= found.high_s
    assert abs(found.estimate_s - skew_s) <= 1.0


KUBELET = """\
kubelet_image_pull_duration_seconds_sum{image_size_in_bytes="0-10MB"} 1.2
kubelet_image_pull_duration_seconds_count{image_size_in_bytes="0-10MB"} 3
kubelet_image_pull_duration_seconds_sum{image_size_in_bytes="5GB-10GB"} 44.974
kubelet_image_pull_duration_seconds_count{image_size_in_bytes="5GB-10GB"} 1
"""


def test_the_only_large_pull_of_a_node_is_the_engines() -> None:
    assert only_pull_s(KUBELET) == 44.974
    assert only_pull_s(KUBELET.replace('5GB-10GB"} 1', '5GB-10GB"} 2')) is None
    assert only_pull_s("") is None


def test_the_kubelets_metric_stands_in_for_a_lost_event() -> None:
    pod = {
        "metadata": {"name": "p", "creationTimestamp": "2026-11-30T12:00:00Z"},
        "spec": {"containers": [{"name": "engine"}]},
        "status": {
            "containerStatuses": [{"name": "engine", "state": {"running": {"startedAt": "2026-11-30T12:01:00Z"}}}]
        },
    }
    pull = ledger_of(Bundle(pod=pod, kubelet_metrics=KUBELET)).phases["pull"]
    assert (pull.seconds, pull.source) == (pytest.approx(44.974), "kubelet-metrics")


def test_gauges_are_the_newest_starts_whatever_the_order() -> None:
    empty = ledger_of(Bundle())

    def took(seconds: float | None, asked_s: float) -> Any:
        phases = dict(empty.phases) | {"pull": Measured(seconds=seconds, missing="" if seconds is not None else "gone")}
        return replace(empty, model="m", state="ready", phases=phases, asked_at_s=asked_s, wall_clock_s=50.0)

    metrics = Exposition()
    metrics.observe(took(40.0, 200.0))
    metrics.observe(took(99.0, 100.0))
    assert 'coldstart_phase_seconds{model="m",phase="pull"} 40\n' in metrics.text()
    assert 'coldstart_starts_total{model="m",state="ready"} 2\n' in metrics.text()
    assert 'coldstart_wall_clock_seconds_bucket{model="m",cold="unknown",le="60"} 2\n' in metrics.text()
    metrics.observe(took(None, 300.0))
    assert "coldstart_phase_seconds{" not in metrics.text()


def test_label_values_are_escaped() -> None:
    metrics = Exposition()
    metrics.count("coldstart_recorder_ledgers_total", ('a"b\\c\nd',))
    assert 'result="a\\"b\\\\c\\nd"' in metrics.text()


class _Ec2:
    def describe_instances(self, InstanceIds: list[str]) -> Any:  # noqa: N803 - AWS's name
        if InstanceIds != ["i-0123"]:
            raise ClientError({"Error": {"Code": "InvalidInstanceID.NotFound", "Message": "gone"}}, "DescribeInstances")
        launched = datetime(2026, 11, 30, 12, 0, 5, tzinfo=UTC)
        return {"Reservations": [{"Instances": [{"LaunchTime": launched, "InstanceType": "g6e.4xlarge"}]}]}

    def describe_nat_gateways(self, Filters: list[Any]) -> Any:  # noqa: N803 - AWS's name
        assert {"Name": "tag:environment", "Values": ["dev"]} in Filters
        return {"NatGateways": [{"NatGatewayId": "nat-1"}]}


class _CloudWatch:
    def get_metric_statistics(self, **asked: Any) -> Any:
        assert (asked["StartTime"].second, asked["EndTime"].second) == (0, 0)
        assert asked["MetricName"] == "BytesInFromDestination"
        return {"Datapoints": [{"Sum": 1000.0}, {"Sum": 500.0}]}


POD: dict[str, Any] = {
    "metadata": {"name": "p", "creationTimestamp": "2026-11-30T12:00:07Z"},
    "spec": {"nodeName": "n", "containers": [{"name": "engine"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-30T12:02:40Z"}]},
}


def test_aws_adds_the_launch_and_the_bytes_through_nat() -> None:
    amazon = Amazon(_Ec2(), _CloudWatch(), "dev")  # type: ignore[arg-type]
    bundle = Bundle(pod=POD, node={"spec": {"providerID": "aws:///us-west-2a/i-0123"}})
    assert amazon.launched(bundle).instance["LaunchTime"] == "2026-11-30T12:00:05Z"
    assert amazon.traffic(bundle).traffic == {"nat_bytes": 1500, "nat_gateways": 1, "source": "cloudwatch"}
    gone = amazon.launched(Bundle(pod=POD, node={"spec": {"providerID": "aws:///us-west-2a/i-9"}}))
    assert "InvalidInstanceID.NotFound" in gone.why("instance", "")


class _Kept:
    """An API whose ConfigMaps are a recorder's."""

    def __init__(self, *documents: str, refuse: bool = False) -> None:
        self.documents, self.refuse = documents, refuse

    def text(self, path: str, query: Any = None) -> str:
        assert path == "/api/v1/namespaces/coldstart/configmaps"
        assert "coldstart/model=llama" in query["labelSelector"]
        if self.refuse:
            raise ApiError(403, "configmaps is forbidden")
        items = [
            {"metadata": {"name": f"ledger-{index}"}, "data": {"ledger.json": written}}
            for index, written in enumerate(self.documents)
        ]
        return json.dumps({"items": items})

    def send(self, method: str, path: str, body: Object | None = None, kind: str = "") -> Object:
        raise AssertionError(f"what is kept is only read: {method} {path} {body} {kind}")

    def stream(self, path: str, query: Any, timeout_s: float) -> Any:
        raise AssertionError(f"what is kept is not watched: {path} {query} {timeout_s}")


def test_a_kept_ledger_that_can_not_be_read_is_said_and_the_others_come_newest_first() -> None:
    old, new = (json.dumps(document(replace(ledger_of(Bundle()), uid=uid, asked_at_s=at_s))) for uid, at_s in AGES)
    said: list[str] = []
    kept = kept_ledgers(_Kept(old, '{"format": 0}', "no JSON", new), "coldstart", "llama", said.append)
    assert [ledger.uid for ledger in kept] == ["new", "old"]
    (line,) = said
    assert "ConfigMap coldstart/ledger-1: format 0 of the ledger is not 1 (and 1 more)" in line


AGES = (("old", 100.0), ("new", 200.0))


def test_kept_ledgers_that_may_not_be_read_are_said() -> None:
    said: list[str] = []
    assert kept_ledgers(_Kept(refuse=True), "coldstart", "llama", said.append) == []
    assert said == ["the ledgers that a recorder kept can't be read: forbidden: configmaps is forbidden"]


def test_the_ledgers_phases_are_the_budgets() -> None:
    assert tuple(BUDGETED) == PHASES


class _Nodes:
    """An API that runs the probe pod: what it printed, and what was asked."""

    def __init__(self, said: str, *, refuse: bool = False) -> None:
        self.said, self.refuse, self.asked = said, refuse, list[str]()

    def text(self, path: str, query: Any = None) -> str:
        del query
        return self.said if path.endswith("/log") else '{"status": {"phase": "Succeeded"}}'

    def send(self, method: str, path: str, body: Object | None = None, kind: str = "") -> Object:
        assert path.startswith("/api/v1/namespaces/kube-system/pods")
        assert kind == "" or kind.startswith("application/")
        self.asked.append(method)
        if self.refuse and method == "POST":
            raise ApiError(403, "violates PodSecurity")
        if method == "DELETE" and self.asked.count("DELETE") == 1:
            raise ApiError(404, "not there")
        return body or {}

    def stream(self, path: str, query: Any, timeout_s: float) -> Any:
        raise AssertionError(f"a probe watches nothing: {path} {query} {timeout_s}")


def probed(api: _Nodes) -> Bundle:
    return Probe(api=api, image="python", meant="nvme", wait=lambda condition, _: condition()).read(Bundle(pod=POD))


def test_a_probe_is_read_and_gone_again() -> None:
    api = _Nodes('noise\n{"soci": {"max_concurrent_downloads_per_image": 20}, "mounts": []}\n')
    assert probed(api).probe == {"soci": {"max_concurrent_downloads_per_image": 20}, "mounts": [], "meant": "nvme"}
    assert api.asked == ["DELETE", "POST", "DELETE"]


@pytest.mark.parametrize(
    ("api", "why"), [(_Nodes("", refuse=True), "violates PodSecurity"), (_Nodes("Traceback"), "probe pod on n")]
)
def test_a_probe_that_can_not_be_read_is_an_absence(api: _Nodes, why: str) -> None:
    bundle = probed(api)
    assert why in bundle.why("probe", "")
    assert api.asked[-1] == "DELETE"


def test_the_probe_changes_nothing_and_has_no_token() -> None:
    spec = probe_pod("n", "python")["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert all(mount["readOnly"] for mount in spec["containers"][0]["volumeMounts"])
    assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    compile(spec["containers"][0]["command"][2], "probe", "exec")
