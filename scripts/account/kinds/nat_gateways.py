"""NAT gateways; their addresses are counted apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account import dollars
from scripts.account.found import Facts, Kind
from scripts.account.kinds.tagged import by_tags
from scripts.account.session import PAGES, Clients

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import NatGatewayTypeDef


def _listed(clients: Clients) -> Iterator[NatGatewayTypeDef]:
    for page in clients.ec2.get_paginator("describe_nat_gateways").paginate(PaginationConfig=PAGES):
        # A deleted one stays visible for an hour.
        yield from (each for each in page["NatGateways"] if each.get("State") not in ("deleted", "failed"))


def _facts(gateway: NatGatewayTypeDef, clients: Clients) -> Facts:
    del clients
    name = gateway.get("NatGatewayId", "")
    return Facts(
        id=name,
        detail=f"in {gateway.get('VpcId', '?')}, {gateway.get('State', '?')}",
        created=gateway.get("CreateTime"),
        price=dollars.item("nat_gateway_usd_per_hour", note="plus the bytes it carries"),
        remove=f"ec2 delete-nat-gateway --nat-gateway-id {name}",
        pulumi_id=name,
    )


KIND = Kind(
    name="NAT gateway",
    rule="tags",
    actions=("ec2:DescribeNatGateways",),
    listed=_listed,
    verdict=by_tags,
    facts=_facts,
)
