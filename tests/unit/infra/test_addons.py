"""What runs on the cluster besides models: in which order, at which versions, and with which rights."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from infra.addons import AFTER_NODES, AUTOSCALER, BEFORE_NODES, KEDA, autoscaler_policy
from infra.offline import Evaluation, Recorded
from tests.unit.infra.order import waits_for

Declared = Callable[..., Evaluation]


def addons(found: Evaluation) -> dict[str, Recorded]:
    return {resource.inputs["addonName"]: resource for resource in found.of_type("eks/addon:Addon")}


def releases(found: Evaluation) -> dict[str, Recorded]:
    return {resource.inputs["name"]: resource for resource in found.of_type(":Release")}


def test_what_a_node_needs_comes_before_it_and_what_needs_a_node_after(declared: Declared) -> None:
    found = declared("dev")
    assert set(addons(found)) == {*BEFORE_NODES, *AFTER_NODES}
    (group,) = found.of_type("eks/nodeGroup:NodeGroup")
    for name in BEFORE_NODES:
        assert addons(found)[name].urn in waits_for(found, group)
    for name in AFTER_NODES:
        assert group.urn in waits_for(found, addons(found)[name])


def test_the_identity_agent_comes_before_any_node() -> None:
    assert "eks-pod-identity-agent" in BEFORE_NODES
    assert "vpc-cni" in BEFORE_NODES
    assert "coredns" in AFTER_NODES


def test_lost_gpus_are_noticed(declared: Declared) -> None:
    """EKS replaces a node whose GPUs are gone only where its monitoring agent says so."""
    assert "eks-node-monitoring-agent" in addons(declared("dev"))
    (group,) = declared("dev").of_type("eks/nodeGroup:NodeGroup")
    assert group.inputs["nodeRepairConfig"] == {"enabled": True}


def test_network_policies_are_enforced(declared: Declared) -> None:
    configuration = json.loads(addons(declared("dev"))["vpc-cni"].inputs["configurationValues"])
    assert configuration == {"enableNetworkPolicy": "true"}


def test_addons_are_waited_for_and_a_persons_changes_are_kept(declared: Declared) -> None:
    for addon in addons(declared("dev")).values():
        assert addon.timeouts == {"create": "20m", "update": "20m", "delete": "20m"}
        assert addon.inputs["resolveConflictsOnCreate"] == "OVERWRITE"
        assert addon.inputs["resolveConflictsOnUpdate"] == "PRESERVE"


@pytest.mark.parametrize(
    ("changes", "installed"),
    [
        ({}, {"keda", "cluster-autoscaler"}),
        ({"environment.addons.keda": "present"}, {"cluster-autoscaler"}),
        ({"environment.addons.cluster_autoscaler": "present"}, {"keda"}),
        ({"environment.addons.keda": "present", "environment.addons.cluster_autoscaler": "present"}, set[str]()),
    ],
)
def test_a_controller_is_installed_or_left_to_whoever_has_it(
    declared: Declared, changes: dict[str, Any], installed: set[str]
) -> None:
    found = declared("dev", changes)
    assert set(releases(found)) == installed
    autoscaler = [resource for resource in found.resources if resource.name == "dev-autoscaler"]
    assert bool(autoscaler) == ("cluster-autoscaler" in installed)


def test_charts_are_pinned_and_named_with_their_repository(declared: Declared) -> None:
    found = releases(declared("dev"))
    for chart in (KEDA, AUTOSCALER):
        inputs = found[chart.name].inputs
        assert inputs["chart"] == chart.name
        assert inputs["version"] == chart.version
        assert all(part.isdigit() for part in chart.version.split("."))
        assert inputs["repositoryOpts"] == {"repo": chart.repository}
        assert chart.repository.startswith("https://")
        assert inputs["namespace"] == chart.namespace
        assert inputs["atomic"] is True


@pytest.mark.parametrize("mode", ["up", "preview"])
def test_a_release_is_gone_with_its_cluster(declared: Declared, mode: str) -> None:
    """A chart can't be uninstalled from a cluster that is not there any more: destroy would hang on it."""
    found = declared("dev", mode=mode)
    (cluster,) = found.of_type("eks/cluster:Cluster")
    for release in releases(found).values():
        assert release.deleted_with == cluster.urn


def test_controllers_start_when_there_is_a_node_to_run_on(declared: Declared) -> None:
    found = declared("dev")
    (group,) = found.of_type("eks/nodeGroup:NodeGroup")
    for release in releases(found).values():
        assert group.urn in waits_for(found, release)
    identity = [resource for resource in found.of_type(":PodIdentityAssociation") if resource.name == "dev-autoscaler"]
    assert identity[0].urn in waits_for(found, releases(found)["cluster-autoscaler"])


def test_the_autoscaler_knows_its_cluster_and_its_own_account(declared: Declared) -> None:
    found = declared("dev")
    values = releases(found)["cluster-autoscaler"].inputs["values"]
    assert values["autoDiscovery"] == {"clusterName": "coldstart-dev"}
    assert values["awsRegion"] == "us-west-2"
    (association,) = [item for item in found.of_type(":PodIdentityAssociation") if item.name == "dev-autoscaler"]
    assert association.inputs["namespace"] == releases(found)["cluster-autoscaler"].inputs["namespace"]
    assert association.inputs["serviceAccount"] == values["rbac"]["serviceAccount"]["name"]


def test_a_gpu_node_that_is_empty_goes(declared: Declared) -> None:
    arguments = releases(declared("dev"))["cluster-autoscaler"].inputs["values"]["extraArgs"]
    assert arguments["ignore-daemonsets-utilization"] is True
    assert arguments["skip-nodes-with-local-storage"] is False


@pytest.mark.parametrize("partition", ["aws", "aws-us-gov"])
def test_the_autoscaler_changes_groups_of_its_own_cluster_alone(partition: str) -> None:
    policy: Any = autoscaler_policy(partition, "us-west-2", "111122223333", "coldstart-dev")
    by_sid = {statement["Sid"]: statement for statement in policy["Statement"]}
    changing = by_sid["Scale"]
    assert set(changing["Action"]) == {
        "autoscaling:SetDesiredCapacity",
        "autoscaling:TerminateInstanceInAutoScalingGroup",
    }
    assert changing["Resource"] == f"arn:{partition}:autoscaling:us-west-2:111122223333:autoScalingGroup:*"
    # EKS puts this tag on every group it makes.
    assert changing["Condition"] == {
        "StringEquals": {"aws:ResourceTag/k8s.io/cluster-autoscaler/coldstart-dev": "owned"}
    }
    for sid, statement in by_sid.items():
        if statement["Resource"] == "*":
            assert all(action.partition(":")[2].startswith(("Describe", "Get")) for action in statement["Action"]), sid


def test_labels_and_taints_of_an_empty_group_can_be_read() -> None:
    policy: Any = autoscaler_policy("aws", "us-west-2", "111122223333", "coldstart-dev")
    (statement,) = [item for item in policy["Statement"] if "eks:DescribeNodegroup" in item["Action"]]
    assert statement["Resource"] == "arn:aws:eks:us-west-2:111122223333:nodegroup/coldstart-dev/*/*"
