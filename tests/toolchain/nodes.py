"""Simulated nodes: what a Node object of a GPU instance looks like to the scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PLAIN_NODE = {"cpu": "2", "memory": "8Gi", "ephemeral-storage": "80Gi", "pods": "110"}


def node_object(
    name: str,
    *,
    labels: Mapping[str, str],
    taints: Sequence[Mapping[str, str]] = (),
    allocatable: Mapping[str, str],
    provider_id: str = "",
) -> dict[str, Any]:
    """A Node as a kubelet registers it. kwok keeps it Ready.

    Args:
        name: the node's name.
        labels: beside those that every kubelet sets.
        taints: as in a Node's spec.
        allocatable: replaces or adds to PLAIN_NODE, in Kubernetes quantities.
        provider_id: the instance behind it (`aws:///us-west-2a/i-0123`), when there is one.
    """
    resources = {**PLAIN_NODE, **allocatable}
    everywhere = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    spec: dict[str, Any] = {"taints": [dict(taint) for taint in taints]}
    if provider_id:
        spec["providerID"] = provider_id
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**everywhere, **labels},
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": spec,
        "status": {"allocatable": resources, "capacity": resources},
    }


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether a node reports Ready and carries no taint that says otherwise."""
    conditions = {entry["type"]: entry["status"] for entry in node["status"].get("conditions", [])}
    taints = {taint["key"] for taint in node["spec"].get("taints", [])}
    return conditions.get("Ready") == "True" and not any(key.startswith("node.kubernetes.io/") for key in taints)
