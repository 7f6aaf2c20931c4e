"""What an evaluation declares of nodes: groups, templates, tags, volumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from infra.offline import Evaluation, Recorded

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
