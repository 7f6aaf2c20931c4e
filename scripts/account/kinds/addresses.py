"""Elastic IP addresses: every public IPv4 address bills, in use or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account import dollars
from scripts.account.found import Facts, Kind
from scripts.account.kinds.tagged import by_tags
from scripts.account.session import Clients

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import AddressTypeDef


def _listed(clients: Clients) -> Iterator[AddressTypeDef]:
    # This operation knows no pages.
    yield from clients.ec2.describe_addresses()["Addresses"]


def _facts(address: AddressTypeDef, clients: Clients) -> Facts:
    del clients
    name = address.get("AllocationId", "")
    used = address.get("AssociationId") or address.get("NetworkInterfaceId")
    return Facts(
        id=name,
        detail=f"{address.get('PublicIp', '')}, {'in use' if used else 'unused'}",
        created=None,
        price=dollars.item("public_ipv4_usd_per_hour"),
        remove=f"ec2 release-address --allocation-id {name}",
        pulumi_id=name,
    )


KIND = Kind(
    name="elastic IP",
    rule="tags",
    actions=("ec2:DescribeAddresses",),
    listed=_listed,
    verdict=by_tags,
    facts=_facts,
)
