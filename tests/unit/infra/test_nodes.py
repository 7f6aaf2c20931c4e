"""Launch template and node group: the shape that EKS takes, that scales from nothing, and that no update kills."""

from __future__ import annotations

import base64
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from pulumi_aws import ec2, eks

from budget.instances import instance
from infra.nodes import AMI_TYPES, CAPACITY_TYPES
from infra.offline import Evaluation, Recorded
from infra.settings import Capacity
from infra.specs import model_specs
from infra.stack_file import read
from nodeconfig.bottlerocket import user_data
from serving.placement import GPU_TAINT, MODEL_LABEL

Declared = Callable[..., Evaluation]
LLAMA, QWEN, LARGE = "dev-llama-3-1-8b", "dev-qwen2-5-0-5b", "dev-qwen3-32b"
MODELS = (LLAMA, QWEN, LARGE)
RESERVATION = "cr-0123456789abcdef0"
RESERVED = {
    "model.nodes.capacity": "reservation",
    "model.nodes.reservation_id": RESERVATION,
    "model.nodes.zones": ["b"],
}
BLOCK = {
    "model.nodes.instance": "p5.48xlarge",
    "model.nodes.capacity": "capacity-block",
    "model.nodes.reservation_id": RESERVATION,
    "model.nodes.zones": ["c"],
    "model.engine": {"tensor_parallel": 8},
}
SPLIT = {"model.nodes.group_per_zone": True}


def groups(found: Evaluation) -> dict[str, Recorded]:
    return {resource.name: resource for resource in found.of_type("eks/nodeGroup:NodeGroup")}


def templates(found: Evaluation) -> dict[str, Recorded]:
    return {resource.name: resource for resource in found.of_type("launchTemplate:LaunchTemplate")}


def autoscaler_tags(found: Evaluation, group: str) -> dict[str, str]:
    """What the autoscaler is told of a group it has never seen a node of."""
    prefix = "k8s.io/cluster-autoscaler/node-template/"
    return {
        resource.inputs["tag"]["key"].removeprefix(prefix): resource.inputs["tag"]["value"]
        for resource in found.of_type("autoscaling/tag:Tag")
        if resource.inputs["autoscalingGroupName"] == f"eks-{group}-offline"
    }


def volumes(template: Recorded) -> dict[str, Mapping[str, Any]]:
    return {mapping["deviceName"]: mapping["ebs"] for mapping in template.inputs["blockDeviceMappings"]}


# ---- launch template ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", MODELS)
@pytest.mark.parametrize("mode", ["up", "preview"])
def test_the_template_holds_what_eks_merges_with_and_nothing_it_refuses(
    declared: Declared, stack: str, mode: str
) -> None:
    (template,) = templates(declared(stack, mode=mode)).values()
    assert "imageId" not in template.inputs  # EKS would stop merging, and the node would not know its cluster
    for refused in (
        "iamInstanceProfile",
        "networkInterfaces",
        "instanceInitiatedShutdownBehavior",
        "securityGroupNames",
    ):
        assert refused not in template.inputs
    assert "vpcSecurityGroupIds" not in template.inputs  # would take the place of the cluster's own
    assert template.inputs["updateDefaultVersion"] is True


def test_the_type_is_on_the_template_and_not_on_the_group(declared: Declared) -> None:
    """Only there can a capacity block have it, and a group takes one or the other."""
    found = declared(LLAMA)
    assert templates(found)[LLAMA].inputs["instanceType"] == "g6e.2xlarge"
    assert not {"instanceTypes", "diskSize", "remoteAccess"} & groups(found)[LLAMA].inputs.keys()


def test_no_pod_reaches_the_nodes_own_credentials(declared: Declared) -> None:
    for stack in ("dev", *MODELS):
        for template in templates(declared(stack)).values():
            assert template.inputs["metadataOptions"] == {
                "httpEndpoint": "enabled",
                "httpTokens": "required",
                "httpPutResponseHopLimit": 1,
            }


def test_the_system_volume_is_small_and_the_data_volume_is_the_specs(declared: Declared) -> None:
    for stack in MODELS:
        (template,) = templates(declared(stack)).values()
        parsed = read(stack)
        assert parsed.model is not None
        volume = model_specs(parsed, parsed.model).node.storage.volume
        assert volumes(template) == {
            "/dev/xvda": {
                "volumeType": "gp3",
                "volumeSize": 4,
                "encrypted": "true",
                "deleteOnTermination": "true",
            },
            "/dev/xvdb": {
                "volumeType": volume.kind,
                "volumeSize": volume.size_gib,
                "iops": volume.iops,
                "throughput": volume.throughput_mib_s,
                "encrypted": "true",
                "deleteOnTermination": "true",
            },
        }


def test_io2_has_iops_and_no_throughput(declared: Declared) -> None:
    changes = {"model.nodes.volume": {"kind": "io2", "size_gib": 200, "iops": 20_000}, "model.nodes.disk": "ebs"}
    (template,) = templates(declared(LARGE, changes)).values()
    data = volumes(template)["/dev/xvdb"]
    assert (data["volumeType"], data["volumeSize"], data["iops"]) == ("io2", 200, 20_000)
    assert "throughput" not in data


def test_a_data_volume_somebody_sized_is_that_size(declared: Declared) -> None:
    changes = {
        "model.nodes.disk": "ebs",
        "model.nodes.volume": {"size_gib": 300, "iops": 8_000, "throughput_mib_s": 2_000},
    }
    (template,) = templates(declared(LARGE, changes)).values()
    data = volumes(template)["/dev/xvdb"]
    assert (data["volumeSize"], data["iops"], data["throughput"]) == (300, 8_000, 2_000)


def test_a_data_volume_starts_from_a_snapshot_at_the_rate_that_is_paid_for(declared: Declared) -> None:
    snapshot = {"snapshot_id": "snap-0123456789abcdef0", "initialization_mib_s": 300}
    changes = {"model.nodes.disk": "ebs", "model.nodes.volume": snapshot}
    (template,) = templates(declared(LLAMA, changes)).values()
    data = volumes(template)["/dev/xvdb"]
    assert (data["snapshotId"], data["volumeInitializationRate"]) == ("snap-0123456789abcdef0", 300)
    assert "encrypted" not in data  # EC2 refuses it beside a snapshot; the snapshot decides
    assert "snapshotId" not in volumes(template)["/dev/xvda"]


def test_with_fast_snapshot_restore_there_is_no_rate(declared: Declared) -> None:
    changes = {"model.nodes.disk": "ebs", "model.nodes.volume": {"snapshot_id": "snap-01234567"}}
    (template,) = templates(declared(LLAMA, changes)).values()
    assert volumes(template)["/dev/xvdb"]["snapshotId"] == "snap-01234567"
    assert "volumeInitializationRate" not in volumes(template)["/dev/xvdb"]


@pytest.mark.parametrize("stack", MODELS)
def test_the_user_data_is_the_rendered_one_in_plain_toml(declared: Declared, stack: str) -> None:
    (template,) = templates(declared(stack)).values()
    text = base64.b64decode(template.inputs["userData"]).decode()
    parsed = read(stack)
    assert parsed.model is not None
    assert text == user_data(model_specs(parsed, parsed.model).node)
    assert tomllib.loads(text)["settings"]["container-runtime"] == {"snapshotter": "soci"}
    assert len(text) < 16_384  # EC2's limit before encoding


def test_system_nodes_boot_with_bottlerockets_defaults(declared: Declared) -> None:
    assert "userData" not in templates(declared("dev"))["dev-system"].inputs


@pytest.mark.parametrize("stack", MODELS)
def test_instances_volumes_and_interfaces_say_whose_they_are(declared: Declared, stack: str) -> None:
    """The provider's default tags end at the template: what EC2 makes from it has only these."""
    (template,) = templates(declared(stack)).values()
    specifications = {entry["resourceType"]: entry["tags"] for entry in template.inputs["tagSpecifications"]}
    assert set(specifications) == {"instance", "volume", "network-interface"}
    for tags in specifications.values():
        assert tags["Name"] == stack
        assert (tags["application"], tags["environment"], tags["stack"]) == ("coldstart", "dev", stack)
        assert tags["owner"] == "platform-team"


# ---- node group -----------------------------------------------------------------------------------------------------


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


# ---- how instances are bought ---------------------------------------------------------------------------------------


def test_on_demand_and_spot(declared: Declared) -> None:
    for stack, bought in ((LLAMA, "ON_DEMAND"), (QWEN, "SPOT")):
        found = declared(stack)
        assert groups(found)[stack].inputs["capacityType"] == bought
        template = templates(found)[stack].inputs
        assert "instanceMarketOptions" not in template
        assert "capacityReservationSpecification" not in template


def test_a_reservation_is_named_on_the_template_and_bought_on_demand(declared: Declared) -> None:
    found = declared(LLAMA, RESERVED)
    assert groups(found)[LLAMA].inputs["capacityType"] == "ON_DEMAND"
    template = templates(found)[LLAMA].inputs
    assert template["capacityReservationSpecification"] == {
        "capacityReservationTarget": {"capacityReservationId": RESERVATION}
    }
    assert "instanceMarketOptions" not in template
    assert groups(found)[LLAMA].inputs["subnetIds"] == ["subnet-offline-dev-private-us-west-2b"]


def test_a_capacity_block_is_a_market_of_its_own(declared: Declared) -> None:
    found = declared(LLAMA, BLOCK)
    assert groups(found)[LLAMA].inputs["capacityType"] == "CAPACITY_BLOCK"
    template = templates(found)[LLAMA].inputs
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert template["instanceType"] == "p5.48xlarge"
    assert template["capacityReservationSpecification"] == {
        "capacityReservationTarget": {"capacityReservationId": RESERVATION}
    }
    assert groups(found)[LLAMA].inputs["subnetIds"] == ["subnet-offline-dev-private-us-west-2c"]
    assert groups(found)[LLAMA].inputs["scalingConfig"]["desiredSize"] == 0


@pytest.mark.parametrize("state", ["stopped", "running"])
def test_a_warm_pool(declared: Declared, state: str) -> None:
    """Bottlerocket can neither hibernate nor go back into the pool. With other bounds AWS prepares the whole group."""
    changes = {"model.nodes.warm_pool": {"size": 2, "state": state}}
    (group,) = groups(declared(LLAMA, changes)).values()
    assert group.inputs["warmPoolConfig"] == {
        "minSize": 2,
        "maxGroupPreparedCapacity": 2,
        "poolState": state.upper(),
    }


def test_without_one_the_pool_is_not_mentioned(declared: Declared) -> None:
    """Its mere presence would switch it on."""
    for stack in MODELS:
        (group,) = groups(declared(stack)).values()
        assert "warmPoolConfig" not in group.inputs


# ---- zones ----------------------------------------------------------------------------------------------------------


def test_one_group_over_all_zones(declared: Declared) -> None:
    (group,) = groups(declared(LLAMA)).values()
    assert group.inputs["subnetIds"] == [f"subnet-offline-dev-private-us-west-2{zone}" for zone in "abc"]


@pytest.mark.parametrize("mode", ["up", "preview"])
def test_one_group_a_zone_where_asked(declared: Declared, mode: str) -> None:
    found = declared(LLAMA, SPLIT, mode=mode)
    assert set(groups(found)) == {f"{LLAMA}-{zone}" for zone in "abc"}
    assert set(templates(found)) == set(groups(found))
    if mode == "up":
        for zone in "abc":
            group = groups(found)[f"{LLAMA}-{zone}"]
            assert group.inputs["subnetIds"] == [f"subnet-offline-dev-private-us-west-2{zone}"]
            assert group.inputs["launchTemplate"]["id"] == f"lt-offline-{LLAMA}-{zone}"
            assert autoscaler_tags(found, f"{LLAMA}-{zone}")


def test_only_the_zones_that_are_named(declared: Declared) -> None:
    (group,) = groups(declared(LLAMA, {"model.nodes.zones": ["c", "a"]})).values()
    assert group.inputs["subnetIds"] == [f"subnet-offline-dev-private-us-west-2{zone}" for zone in "ca"]


# ---- scale from zero ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", MODELS)
def test_the_autoscaler_knows_a_node_it_has_never_seen(declared: Declared, stack: str) -> None:
    found = declared(stack)
    (deployment,) = found.of_type(":Deployment")
    tags = autoscaler_tags(found, stack)
    for key, value in deployment.inputs["spec"]["template"]["spec"]["nodeSelector"].items():
        assert tags[f"label/{key}"] == value
    assert tags["taint/nvidia.com/gpu"] == "present:NoSchedule"
    assert tags["resources/nvidia.com/gpu"] == str(instance(read(stack).model.nodes.instance).kubernetes_gpus)  # type: ignore[union-attr]
    assert tags["resources/ephemeral-storage"].endswith("Gi")


def test_what_the_tags_promise_is_what_the_disk_holds(declared: Declared) -> None:
    """450 GB of NVMe are 419 GiB; on EBS it is the data volume."""
    assert autoscaler_tags(declared(LLAMA), LLAMA)["resources/ephemeral-storage"] == "419Gi"
    changes = {
        "model.nodes.disk": "ebs",
        "model.nodes.volume": {"size_gib": 300, "iops": 8_000, "throughput_mib_s": 1_000},
    }
    assert autoscaler_tags(declared(LARGE, changes), LARGE)["resources/ephemeral-storage"] == "300Gi"


def test_tags_stay_on_the_group_and_fit_aws(declared: Declared) -> None:
    for resource in declared(LLAMA).of_type("autoscaling/tag:Tag"):
        assert resource.inputs["tag"]["propagateAtLaunch"] is False
        assert len(resource.inputs["tag"]["key"]) <= 128
        assert len(resource.inputs["tag"]["value"]) <= 256


def resources_a_pod_asks(found: Evaluation) -> Mapping[str, str]:
    (deployment,) = found.of_type(":Deployment")
    return deployment.inputs["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]


def test_a_group_whose_gpus_are_shared_can_be_scaled_from_zero(declared: Declared) -> None:
    changes = {
        "model.nodes.instance": "g6.8xlarge",
        "model.nodes.gpu_sharing": {"time_slicing": 4},
        "model.engine": {"gpu_memory_utilization": 0.2},
    }
    found = declared(QWEN, changes)
    asked = next(key for key in resources_a_pod_asks(found) if key.startswith("nvidia.com/"))
    assert autoscaler_tags(found, QWEN)[f"resources/{asked}"] == "4"


def test_a_group_whose_gpus_are_cut_offers_every_part(declared: Declared) -> None:
    changes = {
        "model.nodes.instance": "p5.48xlarge",
        "model.nodes.capacity": "on-demand",
        "model.nodes.gpu_sharing": {"mig_profile": "3g.40gb"},
    }
    found = declared(QWEN, changes)
    assert resources_a_pod_asks(found)["nvidia.com/gpu"] == "1"
    assert autoscaler_tags(found, QWEN)["resources/nvidia.com/gpu"] == "16", "two of each of eight GPUs"


def test_a_node_whose_gpus_are_not_there_yet_is_not_taken_for_too_small(declared: Declared) -> None:
    """Without this label it sees a node that can't hold the pod, and asks for one more (its aws provider, GPULabel)."""
    (group,) = groups(declared(LLAMA)).values()
    assert group.inputs["labels"]["k8s.amazonaws.com/accelerator"]


def test_the_label_is_the_stacks_own(declared: Declared) -> None:
    for stack in MODELS:
        (group,) = groups(declared(stack)).values()
        assert group.inputs["labels"][MODEL_LABEL] == stack.removeprefix("dev-")


# ---- the SDK --------------------------------------------------------------------------------------------------------


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
