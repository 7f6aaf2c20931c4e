"""The nodes of a node group: as many as it has instances, with its labels and taints, kept Ready by kwok."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.toolchain.kube_api import KubeApi
from tests.toolchain.nodes import is_ready, node_object
from tests.toolchain.waiting import wait_until

GROUP_LABEL = "eks.amazonaws.com/nodegroup"
TAINT_EFFECTS = {
    "NO_SCHEDULE": "NoSchedule",
    "NO_EXECUTE": "NoExecute",
    "PREFER_NO_SCHEDULE": "PreferNoSchedule",
}
OVERHEAD = 0.075
"""Memory that the hypervisor and the kernel keep: Karpenter's default for a type that it has not met yet."""
EVICTION_MIB = 100
SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
MANY_VCPU = 30


@dataclass(frozen=True, kw_only=True)
class GroupOfNodes:
    """What the nodes of a group have in common, and the instances they are (id → zone)."""

    name: str
    capacity_type: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]
    instances: Mapping[str, str]
    region: str


def sync_nodes(kube: KubeApi, group: GroupOfNodes, instance: Mapping[str, Any]) -> None:
    """Joins a node for each new instance, updates the labels and taints of the others, removes what is left over."""
    there = {node["metadata"]["name"] for node in nodes_of(kube, group.name)}
    wanted = {_node_name(instance_id): instance_id for instance_id in group.instances}
    for name in sorted(there - set(wanted)):
        kube.delete(f"/api/v1/nodes/{name}")
    for name, instance_id in sorted(wanted.items()):
        node = _node(group, instance, name, instance_id)
        if name in there:
            kube.apply({part: node[part] for part in node if part != "status"})
        else:
            kube.create(node)
    for name in sorted(wanted):
        wait_until(
            lambda name=name: (node := kube.get(f"/api/v1/nodes/{name}")) and is_ready(node),
            what=f"node {name} is Ready",
        )


def nodes_of(kube: KubeApi, group: str) -> list[dict[str, Any]]:
    """The nodes of a node group."""
    return kube.items(f"/api/v1/nodes?labelSelector={GROUP_LABEL}={group}")


def wipe(kube: KubeApi) -> None:
    """What the end of a cluster means for everything in it: namespaces and nodes are gone."""
    for node in kube.items("/api/v1/nodes"):
        kube.delete(f"/api/v1/nodes/{node['metadata']['name']}")
    for namespace in _user_namespaces(kube):
        kube.delete(f"/api/v1/namespaces/{namespace}")
    wait_until(lambda: not _user_namespaces(kube), what=lambda: f"namespaces are gone: {_user_namespaces(kube)}")


def allocatable(instance: Mapping[str, Any]) -> dict[str, str]:
    """What pods may use on an instance, in Kubernetes quantities.

    Reservations are those of EKS nodes: 6 % of the first core, 1 % of the second, 0.5 % of two more, 0.25 % of the
    rest; 255 MiB and 11 MiB a pod of memory, and 100 MiB for eviction.
    """
    vcpu = instance["VCpuInfo"]["DefaultVCpus"]
    pods = 110 if vcpu < MANY_VCPU else 250
    reserved_mcpu = 60 + 10 * (vcpu > 1) + 5 * min(max(vcpu - 2, 0), 2) + 2.5 * max(vcpu - 4, 0)
    memory_mib = instance["MemoryInfo"]["SizeInMiB"] * (1 - OVERHEAD) - (255 + 11 * pods) - EVICTION_MIB
    resources = {
        "cpu": f"{int(vcpu * 1000 - reserved_mcpu)}m",
        "memory": f"{int(memory_mib)}Mi",
        "ephemeral-storage": "400Gi",
        "pods": str(pods),
    }
    gpus = sum(int(gpu["Count"]) for gpu in instance.get("GpuInfo", {}).get("Gpus", []))
    return resources | ({"nvidia.com/gpu": str(gpus)} if gpus else {})


def _node(group: GroupOfNodes, instance: Mapping[str, Any], name: str, instance_id: str) -> dict[str, Any]:
    zone = group.instances[instance_id]
    architectures = instance["ProcessorInfo"]["SupportedArchitectures"]
    labels = {
        "node.kubernetes.io/instance-type": instance["InstanceType"],
        "topology.kubernetes.io/region": group.region,
        "topology.kubernetes.io/zone": zone,
        "kubernetes.io/arch": "arm64" if "arm64" in architectures else "amd64",
        "eks.amazonaws.com/capacityType": group.capacity_type,
        GROUP_LABEL: group.name,
    }
    taints = [
        {"key": taint["key"], "value": taint.get("value", ""), "effect": TAINT_EFFECTS[taint["effect"]]}
        for taint in group.taints
    ]
    return node_object(
        name,
        labels=labels | dict(group.labels),
        taints=taints,
        allocatable=allocatable(instance),
        provider_id=f"aws:///{zone}/{instance_id}",
    )


def _node_name(instance_id: str) -> str:
    return f"{instance_id}.nodes.internal"


def _user_namespaces(kube: KubeApi) -> list[str]:
    names = [namespace["metadata"]["name"] for namespace in kube.items("/api/v1/namespaces")]
    return [name for name in names if name not in SYSTEM_NAMESPACES]
