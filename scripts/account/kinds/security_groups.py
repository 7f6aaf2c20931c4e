"""Security groups: free; those that controllers make keep the VPC from going away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account.found import FREE, Facts, Kind
from scripts.account.ownership import Owners, Unknown, Verdict, tags_of
from scripts.account.session import PAGES, Clients

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import SecurityGroupTypeDef


def _listed(clients: Clients) -> Iterator[SecurityGroupTypeDef]:
    for page in clients.ec2.get_paginator("describe_security_groups").paginate(PaginationConfig=PAGES):
        # The default group comes and goes with its VPC.
        yield from (each for each in page["SecurityGroups"] if each.get("GroupName") != "default")


def _verdict(group: SecurityGroupTypeDef, owners: Owners) -> Verdict:
    by_tags, vpc = owners.by_tags(tags_of(group.get("Tags"))), owners.vpcs.get(group.get("VpcId", ""))
    if by_tags is None and vpc is not None:
        return Unknown("in a VPC of ours, without a tag that says who made it", vpc.environment)
    return by_tags


def _facts(group: SecurityGroupTypeDef, clients: Clients) -> Facts:
    del clients
    name = group.get("GroupId", "")
    controllers = any(each.startswith("kubernetes.io/cluster/") for each in tags_of(group.get("Tags")))
    return Facts(
        id=name,
        detail=group.get("GroupName", ""),
        created=None,
        price=FREE,
        remove=f"ec2 delete-security-group --group-id {name}",
        pulumi_id=None if controllers else name,
    )


def _remove(clients: Clients, name: str) -> None:
    clients.ec2.delete_security_group(GroupId=name)


KIND = Kind(
    name="security group",
    rule="tags, or a controller's tag kubernetes.io/cluster/<cluster>=owned",
    actions=("ec2:DescribeSecurityGroups",),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
    remove=_remove,
)
