"""VPC endpoints: interface ones bill in every subnet, gateway ones are free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account import dollars
from scripts.account.found import FREE, Facts, Kind
from scripts.account.kinds.tagged import by_tags
from scripts.account.session import PAGES, Clients

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import VpcEndpointTypeDef


def _listed(clients: Clients) -> Iterator[VpcEndpointTypeDef]:
    for page in clients.ec2.get_paginator("describe_vpc_endpoints").paginate(PaginationConfig=PAGES):
        yield from (each for each in page["VpcEndpoints"] if str(each.get("State", "")).lower() != "deleted")


def _facts(endpoint: VpcEndpointTypeDef, clients: Clients) -> Facts:
    del clients
    name, subnets = endpoint.get("VpcEndpointId", ""), len(endpoint.get("SubnetIds", []))
    gateway = endpoint.get("VpcEndpointType") == "Gateway"
    price = dollars.item("interface_endpoint_usd_per_hour", subnets, "plus the bytes it carries")
    return Facts(
        id=name,
        detail=endpoint.get("ServiceName", "") + ("" if gateway else f" in {subnets} subnets"),
        created=endpoint.get("CreationTimestamp"),
        price=FREE if gateway else price,
        remove=f"ec2 delete-vpc-endpoints --vpc-endpoint-ids {name}",
        pulumi_id=name,
    )


KIND = Kind(
    name="VPC endpoint",
    rule="tags",
    actions=("ec2:DescribeVpcEndpoints",),
    listed=_listed,
    verdict=by_tags,
    facts=_facts,
)
