"""GPU node groups of model stacks: how many nodes they may have, and what they had before they were held at zero.

A group is held by the maximum of its Auto Scaling group: at zero neither the autoscaler nor a waiting pod brings a node
back. What it had is written on the group itself before it is touched, so nothing is ever restored by guessing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from infra.accounts import APPLICATION
from infra.paused import RECORD_TAG
from scripts.account.ownership import tags_of
from scripts.account.refusals import is_gone, told
from scripts.account.session import Clients
from scripts.failure import Failure

if TYPE_CHECKING:
    from mypy_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef
    from mypy_boto3_eks.type_defs import NodegroupTypeDef


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """Bounds and size of a group, in nodes."""

    least: int
    most: int
    desired: int

    def __str__(self) -> str:
        """For a person."""
        return f"{self.desired} of {self.least} to {self.most}"


ASLEEP = Sizes(least=0, most=0, desired=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What a group had when it was held.

    Attributes:
        pool: its warm pool in the EKS API's own words, or None.
    """

    sizes: Sizes
    pool: Mapping[str, Any] | None

    def text(self) -> str:
        """As it is kept in a tag, whose value holds 256 characters."""
        return json.dumps({"sizes": asdict(self.sizes), "pool": self.pool}, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuGroup:
    """One node group of a model stack.

    Attributes:
        stack: that it belongs to.
        sizes: as they are now.
        running: instances that it has now, prepared ones of its warm pool included.
        pool: its warm pool, if it has one that is on.
        record: what it had before it was held; None when it is not held by `pause`.
    """

    stack: str
    cluster: str
    name: str
    autoscaling_group: str
    sizes: Sizes
    running: Sequence[str]
    pool: Mapping[str, Any] | None
    record: Record | None

    @property
    def asleep(self) -> bool:
        """It can't have a node."""
        return self.sizes.most == 0


def of_environment(clients: Clients, cluster: str, environment: str) -> Sequence[GpuGroup]:
    """Node groups of every model on an environment; none when there is no cluster.

    The environment's own system nodes are never among them: their tag `stack` is the environment's name.
    """
    return [group for group in in_cluster(clients, cluster, environment) if group.stack != environment]


def in_cluster(clients: Clients, cluster: str, environment: str) -> Sequence[GpuGroup]:
    """Every node group of ours in a cluster, system nodes included: those that carry the tags of its environment."""
    with told(f"looking at node groups of {cluster}"):
        found = [
            group for group in _node_groups(clients, cluster) if _is_ours(dict(group.get("tags", {})), environment)
        ]
        names = [_autoscaling_group(group) for group in found]
        sizes = {each["AutoScalingGroupName"]: each for each in _autoscaling_groups(clients, [n for n in names if n])}
        return [
            _group(clients, group, sizes[name])
            for group, name in zip(found, names, strict=True)
            if name is not None and name in sizes
        ]


def hold(clients: Clients, group: GpuGroup) -> None:
    """Puts a group to zero and keeps it there. What it has is written down first, and once.

    A group that is asleep already keeps the record it has: interrupted or repeated, it is that of the first time.
    """
    with told(f"holding {group.name}"):
        if not group.asleep:
            record = Record(sizes=group.sizes, pool=group.pool)
            clients.autoscaling.create_or_update_tags(Tags=[_tag(group, record.text())])
        if group.pool is not None:
            clients.eks.update_nodegroup_config(
                clusterName=group.cluster, nodegroupName=group.name, warmPoolConfig={"enabled": False}
            )
        if group.sizes != ASLEEP:
            _resize(clients, group, ASLEEP)


def release(clients: Clients, group: GpuGroup) -> Sizes:
    """Puts back what was recorded, and forgets the record.

    Raises:
        Failure: nothing was recorded.
    """
    record = group.record
    if record is None:
        raise Failure(f"{group.name} was not paused: nothing is recorded")
    with told(f"waking {group.name}"):
        # Interrupted after the sizes went back and before the record was taken away: then the sizes are right already.
        if group.asleep:
            _resize(clients, group, record.sizes)
        if record.pool is not None and group.pool is None:
            clients.eks.update_nodegroup_config(
                clusterName=group.cluster,
                nodegroupName=group.name,
                warmPoolConfig={**record.pool, "enabled": True},  # pyright: ignore[reportArgumentType] - its own words
            )
        clients.autoscaling.delete_tags(Tags=[_tag(group, record.text())])
    return record.sizes


def wake_within(clients: Clients, group: GpuGroup, sizes: Sizes) -> None:
    """Gives a group bounds again that expired without a record."""
    with told(f"waking {group.name}"):
        _resize(clients, group, sizes)


def _resize(clients: Clients, group: GpuGroup, sizes: Sizes) -> None:
    clients.autoscaling.update_auto_scaling_group(
        AutoScalingGroupName=group.autoscaling_group,
        MinSize=sizes.least,
        MaxSize=sizes.most,
        DesiredCapacity=sizes.desired,
    )


def _tag(group: GpuGroup, value: str) -> Any:  # noqa: ANN401 - one shape for two calls whose stubs differ
    return {
        "ResourceId": group.autoscaling_group,
        "ResourceType": "auto-scaling-group",
        "Key": RECORD_TAG,
        "Value": value,
        "PropagateAtLaunch": False,
    }


def _is_ours(tags: Mapping[str, str], environment: str) -> bool:
    return tags.get("application") == APPLICATION and tags.get("environment") == environment and bool(tags.get("stack"))


def _node_groups(clients: Clients, cluster: str) -> Iterator[NodegroupTypeDef]:
    try:
        pages = clients.eks.get_paginator("list_nodegroups").paginate(clusterName=cluster)
        names = [name for page in pages for name in page["nodegroups"]]
    except clients.eks.exceptions.ClientError as error:
        if is_gone(error):
            return
        raise
    for name in names:
        yield clients.eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]


def _autoscaling_groups(clients: Clients, names: Sequence[str]) -> Iterator[AutoScalingGroupTypeDef]:
    if not names:
        return
    paginator = clients.autoscaling.get_paginator("describe_auto_scaling_groups")
    for page in paginator.paginate(AutoScalingGroupNames=list(names)):
        yield from page["AutoScalingGroups"]


def _autoscaling_group(group: NodegroupTypeDef) -> str | None:
    groups = group.get("resources", {}).get("autoScalingGroups", [])
    return groups[0].get("name") if groups else None


def _group(clients: Clients, group: NodegroupTypeDef, sizes: AutoScalingGroupTypeDef) -> GpuGroup:
    pool = cast("Mapping[str, Any]", group.get("warmPoolConfig") or {})
    prepared = _prepared(clients, sizes["AutoScalingGroupName"]) if pool else ()
    record = tags_of(sizes.get("Tags")).get(RECORD_TAG)
    return GpuGroup(
        stack=group.get("tags", {}).get("stack", ""),
        cluster=group.get("clusterName", ""),
        name=group.get("nodegroupName", ""),
        autoscaling_group=sizes["AutoScalingGroupName"],
        sizes=Sizes(least=sizes["MinSize"], most=sizes["MaxSize"], desired=sizes["DesiredCapacity"]),
        running=(*(each["InstanceId"] for each in sizes.get("Instances", [])), *prepared),
        pool=pool if pool.get("enabled") else None,
        record=_record(record) if record else None,
    )


def _prepared(clients: Clients, autoscaling_group: str) -> Sequence[str]:
    pages = clients.autoscaling.get_paginator("describe_warm_pool").paginate(AutoScalingGroupName=autoscaling_group)
    return [each["InstanceId"] for page in pages for each in page["Instances"]]


def _record(text: str) -> Record:
    try:
        found = cast("Mapping[str, Any]", json.loads(text))
        return Record(sizes=Sizes(**found["sizes"]), pool=found["pool"])
    except (ValueError, TypeError, KeyError) as error:
        raise Failure(f"the tag {RECORD_TAG} holds {text!r}, which is not a record of `coldstart pause`") from error
