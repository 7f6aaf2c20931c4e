"""EBS snapshots of this account."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account import dollars
from scripts.account.found import Facts, Kind
from scripts.account.ownership import Ours, Owners, Verdict, tags_of
from scripts.account.session import PAGES, Clients

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import SnapshotTypeDef


def _listed(clients: Clients) -> Iterator[SnapshotTypeDef]:
    for page in clients.ec2.get_paginator("describe_snapshots").paginate(OwnerIds=["self"], PaginationConfig=PAGES):
        yield from (snapshot for snapshot in page["Snapshots"] if snapshot.get("OwnerId") == clients.account)


def _verdict(snapshot: SnapshotTypeDef, owners: Owners) -> Verdict:
    verdict = owners.by_tags(tags_of(snapshot.get("Tags")))
    if isinstance(verdict, Ours):
        owners.snapshots[snapshot.get("SnapshotId", "")] = verdict
    return verdict


def _facts(snapshot: SnapshotTypeDef, clients: Clients) -> Facts:
    del clients
    name, gib = snapshot.get("SnapshotId", ""), snapshot.get("VolumeSize", 0)
    return Facts(
        id=name,
        detail=f"of a volume of {gib} GiB",
        created=snapshot.get("StartTime"),
        price=dollars.item(
            "ebs_snapshot_usd_per_gb_month", gib, "at most: only blocks that differ from older snapshots bill"
        ),
        remove=f"ec2 delete-snapshot --snapshot-id {name}",
    )


KIND = Kind(
    name="snapshot",
    rule="tags",
    actions=("ec2:DescribeSnapshots",),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
)
