"""Auto Scaling groups: free by themselves; EKS makes one for each node group and copies no tags of ours to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account.found import FREE, Facts, Kind
from scripts.account.kinds.tagged import by_tags
from scripts.account.session import Clients

if TYPE_CHECKING:
    from mypy_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef


def _listed(clients: Clients) -> Iterator[AutoScalingGroupTypeDef]:
    for page in clients.autoscaling.get_paginator("describe_auto_scaling_groups").paginate():
        yield from page["AutoScalingGroups"]


def _facts(group: AutoScalingGroupTypeDef, clients: Clients) -> Facts:
    del clients
    name = group["AutoScalingGroupName"]
    return Facts(
        id=name,
        detail=f"{group['MinSize']} to {group['MaxSize']}, {len(group.get('Instances', []))} running",
        created=group["CreatedTime"],
        price=FREE,
        remove=f"autoscaling delete-auto-scaling-group --force-delete --auto-scaling-group-name {name}",
    )


KIND = Kind(
    name="auto scaling group",
    rule="tags, or eks:cluster-name names a cluster of ours",
    actions=("autoscaling:DescribeAutoScalingGroups",),
    listed=_listed,
    verdict=by_tags,
    facts=_facts,
)
