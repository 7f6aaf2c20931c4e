"""What the autoscaler knows of a node that it has never seen."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from budget.instances import instance
from infra.offline import Evaluation
from infra.stack_file import read
from serving.placement import MODEL_LABEL
from tests.unit.infra.declared_nodes import LARGE, LLAMA, MODELS, QWEN, Declared, autoscaler_tags, groups


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
