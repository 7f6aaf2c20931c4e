"""Fast snapshot restore: billed by the hour for each snapshot and zone in which it is on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account import dollars
from scripts.account.found import Facts, Kind
from scripts.account.ownership import Owners, Verdict
from scripts.account.session import PAGES, Clients

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import DescribeFastSnapshotRestoreSuccessItemTypeDef

ON = ("enabling", "optimizing", "enabled")


def _listed(clients: Clients) -> Iterator[DescribeFastSnapshotRestoreSuccessItemTypeDef]:
    pages = clients.ec2.get_paginator("describe_fast_snapshot_restores").paginate(
        Filters=[{"Name": "state", "Values": list(ON)}], PaginationConfig=PAGES
    )
    for page in pages:
        yield from page["FastSnapshotRestores"]


def _verdict(restore: DescribeFastSnapshotRestoreSuccessItemTypeDef, owners: Owners) -> Verdict:
    return owners.snapshots.get(restore.get("SnapshotId", ""))


def _facts(restore: DescribeFastSnapshotRestoreSuccessItemTypeDef, clients: Clients) -> Facts:
    del clients
    snapshot, zone = restore.get("SnapshotId", ""), restore.get("AvailabilityZone", "")
    return Facts(
        id=f"{snapshot}/{zone}",
        detail=str(restore.get("State", "")),
        created=restore.get("EnabledTime"),
        price=dollars.item("fast_snapshot_restore_usd_per_hour"),
        remove=f"ec2 disable-fast-snapshot-restores --availability-zones {zone} --source-snapshot-ids {snapshot}",
    )


KIND = Kind(
    name="fast snapshot restore",
    rule="it is of a snapshot of ours",
    actions=("ec2:DescribeFastSnapshotRestores",),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
)
