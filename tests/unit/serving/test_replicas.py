"""How many replicas, who scales them, and what reaches them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.serving.made_specs import SPEC, WINDOW, by_kind, container_of, scaled
from tests.unit.serving.scaled_object import check_scaled_object

pytestmark = pytest.mark.usefixtures("short_launcher")


@pytest.mark.parametrize(
    ("least", "most", "surge", "unavailable"),
    [(0, 1, 0, 1), (1, 1, 0, 1), (2, 2, 0, 1), (0, 2, 1, "50%"), (1, 2, 1, "50%"), (1, 3, 1, "34%"), (3, 4, 1, "25%")],
)
def test_a_surge_pod_only_where_the_pool_has_room_for_it(
    least: int, most: int, surge: int, unavailable: int | str
) -> None:
    """In a full pool the new pod would wait for the very GPU that its predecessor holds."""
    strategy = by_kind(scaled(min_replicas=least, max_replicas=most))["Deployment"]["spec"]["strategy"]
    assert strategy == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
    }


@given(most=st.integers(2, 40), data=st.data())
@settings(max_examples=20, deadline=None)
def test_a_rollout_ends_at_any_number_of_replicas(most: int, data: st.DataObject) -> None:
    """Kubernetes rounds the share down: none is given up while one more fits, one is where none does."""
    rolling = by_kind(scaled(min_replicas=1, max_replicas=most))["Deployment"]["spec"]["strategy"]["rollingUpdate"]
    share = int(rolling["maxUnavailable"].rstrip("%"))
    replicas = data.draw(st.integers(1, most))
    given_up = replicas * share // 100
    assert given_up >= 1 if replicas == most else given_up <= 1
    assert given_up == 0 or replicas > 1


def test_the_minimum_comes_although_nothing_answers_yet() -> None:
    """KEDA does nothing while its triggers fail, and without a replica they do."""
    triggers = by_kind(scaled(min_replicas=2, max_replicas=3))["ScaledObject"]["spec"]["triggers"]
    (all_year,) = [trigger["metadata"] for trigger in triggers if trigger["type"] == "cron"]
    assert all_year == {"timezone": "UTC", "start": "0 0 1 1 *", "end": "59 23 31 12 *", "desiredReplicas": "2"}
    asleep = by_kind(scaled(min_replicas=0, max_replicas=2, schedule=(WINDOW,)))["ScaledObject"]["spec"]["triggers"]
    assert [trigger["metadata"]["start"] for trigger in asleep if trigger["type"] == "cron"] == [WINDOW.start]


def test_no_replica_at_first_so_that_up_never_waits_for_a_gpu() -> None:
    assert by_kind()["Deployment"]["spec"]["replicas"] == 0


def test_a_drain_is_slowed_but_never_blocked() -> None:
    assert by_kind()["PodDisruptionBudget"]["spec"] == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": {"coldstart/model": "llama"}},
    }


def test_scaling_by_the_queue_and_by_the_clock() -> None:
    manifest = by_kind(scaled(min_replicas=0, max_replicas=3, schedule=(WINDOW,)))["ScaledObject"]
    check_scaled_object(manifest)
    spec = manifest["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"], spec["cooldownPeriod"]) == (0, 3, 700)
    queue, served, clock = spec["triggers"]
    assert queue["type"] == "metrics-api"
    assert queue["metadata"]["url"] == "http://llama.llama.svc:8000/metrics"
    assert queue["metadata"]["valueLocation"] == 'vllm:num_requests_waiting{model_name="llama"}'
    assert queue["metadata"]["targetValue"] == "4"
    assert served["metadata"] == queue["metadata"] | {
        "valueLocation": 'vllm:num_requests_running{model_name="llama"}',
        "targetValue": str(SPEC.engine.concurrency),
    }
    assert clock == {
        "type": "cron",
        "metadata": {
            "timezone": "Europe/Berlin",
            "start": "0 8 * * 1-5",
            "end": "0 18 * * 1-5",
            "desiredReplicas": "2",
        },
    }


def test_the_service_and_the_policy_reach_the_pod_and_its_ports() -> None:
    found = by_kind()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    ports = {port["name"] for port in container_of()["ports"]}
    service = found["Service"]["spec"]
    assert service["type"] == "ClusterIP"
    assert service["selector"].items() <= labels.items()
    assert {port["targetPort"] for port in service["ports"]} == ports
    policy = found["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    opened = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    assert opened == {port["containerPort"] for port in container_of()["ports"]}


def test_the_pod_may_ask_for_names_its_identity_and_https_alone() -> None:
    rules = by_kind()["NetworkPolicy"]["spec"]["egress"]
    reached = {(port["port"], port["protocol"]) for rule in rules for port in rule["ports"]}
    assert reached == {(53, "UDP"), (53, "TCP"), (80, "TCP"), (443, "TCP")}
    (identity,) = [rule for rule in rules if {"port": 80, "protocol": "TCP"} in rule["ports"]]
    assert identity["to"] == [{"ipBlock": {"cidr": "169.254.170.23/32"}}]
