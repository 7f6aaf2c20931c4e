"""Node groups as EKS takes them."""

from __future__ import annotations

import pytest
from pulumi_aws import ec2, eks

from infra.model_settings import Capacity
from infra.nodes import AMI_TYPES, CAPACITY_TYPES
from serving.placement import GPU_TAINT
from tests.unit.infra.declared_nodes import LARGE, LLAMA, MODELS, QWEN, RESERVED, Declared, groups, templates


@pytest.mark.parametrize("stack", MODELS)
@pytest.mark.parametrize("mode", ["up", "preview"])
def test_a_group_starts_empty_and_the_autoscaler_owns_its_size(declared: Declared, stack: str, mode: str) -> None:
    (group,) = groups(declared(stack, mode=mode)).values()
    assert group.inputs["scalingConfig"]["minSize"] == 0
    assert group.inputs["scalingConfig"]["desiredSize"] == 0
    assert group.inputs["scalingConfig"]["maxSize"] >= 1
    assert group.ignore_changes == ("scalingConfig.desiredSize",)
    assert "desiredSize" in group.inputs["scalingConfig"]  # the path that is ignored exists


def test_the_maximum_is_what_the_most_replicas_need(declared: Declared) -> None:
    (group,) = groups(declared(LLAMA)).values()
    assert group.inputs["scalingConfig"]["maxSize"] == 4
    two_a_node = declared(LARGE, {"model.engine.tensor_parallel": 2, "model.scaling.max_replicas": 5})
    (group,) = groups(two_a_node).values()
    assert group.inputs["scalingConfig"]["maxSize"] == 3


def test_the_group_names_a_pinned_release_of_the_nvidia_variant(declared: Declared) -> None:
    found = declared(LLAMA)
    (group,) = groups(found).values()
    assert group.inputs["amiType"] == "BOTTLEROCKET_x86_64_NVIDIA"
    assert group.inputs["releaseVersion"] == "1.69.0-offline"
    (own,) = groups(declared(LLAMA, {"model.nodes.bottlerocket_release": "1.68.0"})).values()
    assert own.inputs["releaseVersion"] == "1.68.0-offline"


def test_arm_instances_run_an_arm_image(declared: Declared) -> None:
    changes = {"model.nodes.instance": "g5g.4xlarge"}
    (group,) = groups(declared(QWEN, changes)).values()
    assert group.inputs["amiType"] == "BOTTLEROCKET_ARM_64_NVIDIA"


def test_ami_types_are_eks_own_words() -> None:
    assert set(AMI_TYPES.values()) == {
        "BOTTLEROCKET_x86_64_NVIDIA",
        "BOTTLEROCKET_ARM_64_NVIDIA",
        "BOTTLEROCKET_x86_64",
        "BOTTLEROCKET_ARM_64",
    }
    assert set(CAPACITY_TYPES) == set(Capacity)
    assert set(CAPACITY_TYPES.values()) == {"ON_DEMAND", "SPOT", "CAPACITY_BLOCK"}


def test_system_nodes_have_no_gpu_no_taint_and_a_fixed_size(declared: Declared) -> None:
    (group,) = groups(declared("dev")).values()
    assert group.inputs["amiType"] == "BOTTLEROCKET_x86_64"
    assert group.inputs["scalingConfig"] == {"minSize": 2, "maxSize": 2, "desiredSize": 2}
    assert group.inputs.get("taints", []) == []
    assert group.inputs["updateConfig"] == {"maxUnavailable": 1, "updateStrategy": "DEFAULT"}
    assert not declared("dev").of_type("autoscaling/tag:Tag")


@pytest.mark.parametrize("stack", MODELS)
def test_taint_and_label_are_those_the_pod_asks_for(declared: Declared, stack: str) -> None:
    found = declared(stack)
    (group,) = groups(found).values()
    (deployment,) = found.of_type(":Deployment")
    pod = deployment.inputs["spec"]["template"]["spec"]
    assert group.inputs["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}]
    assert pod["tolerations"] == [GPU_TAINT.toleration()]
    assert pod["nodeSelector"].items() <= group.inputs["labels"].items()


def test_scarce_nodes_are_taken_away_before_others_are_added(declared: Declared) -> None:
    """There is no spare GPU to surge into, but where a spot market has one."""
    (group,) = groups(declared(LLAMA)).values()
    assert group.inputs["updateConfig"] == {"maxUnavailable": 1, "updateStrategy": "MINIMAL"}
    (spot,) = groups(declared(QWEN)).values()
    assert spot.inputs["updateConfig"] == {"maxUnavailable": 1, "updateStrategy": "DEFAULT"}


@pytest.mark.parametrize("stack", ["dev", *MODELS])
def test_broken_nodes_are_replaced_and_slow_ones_are_waited_for(declared: Declared, stack: str) -> None:
    for group in groups(declared(stack)).values():
        assert group.inputs["nodeRepairConfig"] == {"enabled": True}
        minutes = 30 if stack == "dev" else 45
        assert group.timeouts == {"create": f"{minutes}m", "update": f"{minutes}m", "delete": "30m"}


def test_a_new_template_version_reaches_the_group(declared: Declared) -> None:
    (group,) = groups(declared(LLAMA)).values()
    assert group.inputs["launchTemplate"] == {"id": f"lt-offline-{LLAMA}", "version": "1"}


def test_group_names_are_left_to_the_engine(declared: Declared) -> None:
    """A fixed name can't be replaced: the new group would meet the old one."""
    for stack in ("dev", *MODELS):
        for group in groups(declared(stack)).values():
            assert "nodeGroupName" not in group.inputs


def test_every_input_is_one_the_provider_knows(declared: Declared) -> None:
    """A misspelt member of a nested dict would be passed on and ignored."""
    for stack in ("dev", *MODELS):
        found = declared(stack, RESERVED if stack == LLAMA else {})
        for group in groups(found).values():
            assert group.inputs.keys() <= wire_names(eks.NodeGroup)
        for template in templates(found).values():
            assert template.inputs.keys() <= wire_names(ec2.LaunchTemplate)


def wire_names(resource: type) -> set[str]:
    """Property names of a resource class as they go over the wire."""
    names = {name for name in dir(resource) if isinstance(getattr(resource, name), property)}
    return {camel(name) for name in names}


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
