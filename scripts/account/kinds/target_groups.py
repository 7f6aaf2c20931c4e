"""Target groups: free, but a leftover one blocks its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict

from scripts.account.found import FREE, Facts, Kind
from scripts.account.kinds.load_balancers import tags_by_arn
from scripts.account.ownership import Owners, Verdict
from scripts.account.session import Clients

if TYPE_CHECKING:
    from mypy_boto3_elbv2.type_defs import TargetGroupTypeDef


class Tagged(TypedDict):
    """A target group with its tags, which have to be asked for apart."""

    group: TargetGroupTypeDef
    tags: dict[str, str]


def _listed(clients: Clients) -> Iterator[Tagged]:
    for page in clients.elbv2.get_paginator("describe_target_groups").paginate():
        groups = page["TargetGroups"]
        tags = tags_by_arn(clients, [each.get("TargetGroupArn", "") for each in groups])
        for group in groups:
            yield Tagged(group=group, tags=tags.get(group.get("TargetGroupArn", ""), {}))


def _verdict(tagged: Tagged, owners: Owners) -> Verdict:
    return owners.by_tags(tagged["tags"])


def _facts(tagged: Tagged, clients: Clients) -> Facts:
    del clients
    arn = tagged["group"].get("TargetGroupArn", "")
    return Facts(
        id=arn,
        detail=tagged["group"].get("TargetGroupName", ""),
        created=None,
        price=FREE,
        remove=f"elbv2 delete-target-group --target-group-arn {arn}",
    )


def _remove(clients: Clients, arn: str) -> None:
    clients.elbv2.delete_target_group(TargetGroupArn=arn)


KIND = Kind(
    name="target group",
    rule="the controller's tag elbv2.k8s.aws/cluster or kubernetes.io/cluster/<cluster>=owned",
    actions=("elasticloadbalancing:DescribeTargetGroups", "elasticloadbalancing:DescribeTags"),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
    remove=_remove,
)
