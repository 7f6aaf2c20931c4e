"""VPCs: free, but everything that bills by the hour hangs in one, so a VPC of ours proves what is inside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account.found import FREE, Facts, Kind
from scripts.account.ownership import Ours, Owners, Verdict, tags_of
from scripts.account.session import PAGES, Clients

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import VpcTypeDef


def _listed(clients: Clients) -> Iterator[VpcTypeDef]:
    for page in clients.ec2.get_paginator("describe_vpcs").paginate(PaginationConfig=PAGES):
        yield from page["Vpcs"]


def _verdict(vpc: VpcTypeDef, owners: Owners) -> Verdict:
    verdict = owners.by_tags(tags_of(vpc.get("Tags")))
    if isinstance(verdict, Ours):
        owners.vpcs[vpc.get("VpcId", "")] = verdict
    return verdict


def _facts(vpc: VpcTypeDef, clients: Clients) -> Facts:
    del clients
    name = vpc.get("VpcId", "")
    return Facts(
        id=name,
        detail=vpc.get("CidrBlock", ""),
        created=None,
        price=FREE,
        remove=f"ec2 delete-vpc --vpc-id {name}",
        pulumi_id=name,
    )


KIND = Kind(
    name="VPC",
    rule="tags",
    actions=("ec2:DescribeVpcs",),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
)
