"""EBS volumes, of nodes and of claims that a driver inside a cluster fulfilled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account import dollars
from scripts.account.found import Facts, Kind
from scripts.account.kinds.tagged import by_tags
from scripts.account.session import PAGES, Clients

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import VolumeTypeDef


def _listed(clients: Clients) -> Iterator[VolumeTypeDef]:
    for page in clients.ec2.get_paginator("describe_volumes").paginate(PaginationConfig=PAGES):
        yield from page["Volumes"]


def _facts(volume: VolumeTypeDef, clients: Clients) -> Facts:
    del clients
    name, kind, gib = volume.get("VolumeId", ""), str(volume.get("VolumeType", "")), volume.get("Size", 0)
    return Facts(
        id=name,
        detail=f"{kind} {gib} GiB, {volume.get('State', '?')}",
        created=volume.get("CreateTime"),
        price=dollars.volume(kind, gib, volume.get("Iops", 0), volume.get("Throughput", 0)),
        remove=f"ec2 delete-volume --volume-id {name}",
    )


def _remove(clients: Clients, name: str) -> None:
    clients.ec2.delete_volume(VolumeId=name)


KIND = Kind(
    name="volume",
    rule="tags of the launch template, or a driver's tag kubernetes.io/cluster/<cluster>=owned",
    actions=("ec2:DescribeVolumes",),
    listed=_listed,
    verdict=by_tags,
    facts=_facts,
    remove=_remove,
)
