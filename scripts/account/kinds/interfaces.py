"""Network interfaces: free, but one that a CNI left behind keeps its security group and subnet from going away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account import dollars
from scripts.account.found import FREE, Facts, Kind
from scripts.account.ownership import Ours, Owners, Unknown, Verdict, tags_of
from scripts.account.session import PAGES, Clients

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import NetworkInterfaceTypeDef

INSTANCE_TAG = "node.k8s.amazonaws.com/instance_id"
"""The VPC CNI's own tag. With the VPC's id it proves whose an interface is; nothing else does."""


def _listed(clients: Clients) -> Iterator[NetworkInterfaceTypeDef]:
    for page in clients.ec2.get_paginator("describe_network_interfaces").paginate(PaginationConfig=PAGES):
        yield from page["NetworkInterfaces"]


def _verdict(interface: NetworkInterfaceTypeDef, owners: Owners) -> Verdict:
    tags, vpc = tags_of(interface.get("TagSet")), owners.vpcs.get(interface.get("VpcId", ""))
    by_tags = owners.by_tags(tags)
    if vpc is None:
        return by_tags
    if INSTANCE_TAG in tags:
        return owners.first(by_tags, Ours(vpc.environment, None, "the CNI's tag, in a VPC of ours"))
    if interface.get("RequesterManaged"):
        return vpc  # AWS made it for an endpoint, a NAT gateway or the cluster in there, and takes it away with that
    return by_tags or Unknown("in a VPC of ours, without a tag that says who made it", vpc.environment)


def _facts(interface: NetworkInterfaceTypeDef, clients: Clients) -> Facts:
    del clients
    name, association = interface.get("NetworkInterfaceId", ""), interface.get("Association", {})
    borrowed = association.get("PublicIp") and not association.get("AllocationId")
    return Facts(
        id=name,
        detail=f"{interface.get('Status', '?')}, {interface.get('Description') or 'no description'}",
        created=None,
        price=dollars.item("public_ipv4_usd_per_hour", note="its public address") if borrowed else FREE,
        remove=f"ec2 delete-network-interface --network-interface-id {name}",
    )


def _remove(clients: Clients, name: str) -> None:
    clients.ec2.delete_network_interface(NetworkInterfaceId=name)


KIND = Kind(
    name="network interface",
    rule="tags; or the CNI's tag node.k8s.amazonaws.com/instance_id, or made by AWS itself, in a VPC of ours",
    actions=("ec2:DescribeNetworkInterfaces",),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
    remove=_remove,
)
