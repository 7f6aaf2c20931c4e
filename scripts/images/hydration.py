"""What it takes until a volume made from a snapshot is as fast as one that was always there, and what that costs.

A fresh volume fetches each block from S3 when it is first read: ten minutes and more for an engine image
(bottlerocket-images-cache#13), slower than pulling it. So a snapshot without a plan for this is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from budget.counted import counted
from budget.instances import GIB
from budget.price import prices
from budget.problems import bad_input

FAST_SNAPSHOT_RESTORE = "fast-snapshot-restore"
LEAST_MIB_S, MOST_MIB_S = 100, 300
"""Bounds of the provisioned rate (EC2 API, VolumeInitializationRate)."""
FORMS = f"Give --hydrate {LEAST_MIB_S} to {MOST_MIB_S} (MiB/s of each volume) or {FAST_SNAPSHOT_RESTORE} (by the hour)."


@dataclass(frozen=True, kw_only=True, slots=True)
class Hydration:
    """A plan, with its price.

    Attributes:
        rate_mib_s: provisioned rate; None is fast snapshot restore.
        seconds: until every block is on the volume, from its creation.
        usd_per_node: each time that a node starts, at most: as if every block of the volume were in the snapshot.
        usd_per_month: whether or not a node starts.
        words: the price, for a person.
    """

    rate_mib_s: int | None
    seconds: float
    usd_per_node: float
    usd_per_month: float
    words: str


def hydration_of(
    plan: str | None, *, snapshot_bytes: float, volume_gib: int, zones: int, usd_per_gib: float | None
) -> Hydration:
    """The plan that a person asks for.

    Args:
        plan: a rate in MiB/s, or `fast-snapshot-restore`.
        snapshot_bytes: what the snapshot will hold.
        volume_gib: size of the volume, which the bill for a rate goes by.
        zones: where fast restore is switched on.
        usd_per_gib: the region's price of the rate, which no price list that ships here has.

    Raises:
        BadInput: no plan, an unknown one, a rate out of bounds, or one without its price.
    """
    if plan is None:
        raise bad_input(
            "--hydrate", "missing: without a plan the first start from a snapshot is slower than a pull", FORMS
        )
    month = prices().usd["ebs_snapshot_usd_per_gb_month"] * snapshot_bytes / GIB
    if plan == FAST_SNAPSHOT_RESTORE:
        hourly = prices().usd["fast_snapshot_restore_usd_per_hour"] * zones
        return Hydration(
            rate_mib_s=None,
            seconds=0.0,
            usd_per_node=0.0,
            usd_per_month=month + hourly * prices().hours_per_month,
            words=f"at once; ${hourly:.2f} an hour for {counted(zones, 'zone')} of what it always costs",
        )
    if not re.fullmatch(r"\d+", plan) or not LEAST_MIB_S <= int(plan) <= MOST_MIB_S:
        raise bad_input("--hydrate", f"found {plan!r}", FORMS)
    if usd_per_gib is None:
        raise bad_input(
            "--usd-per-gib",
            f"missing: AWS bills a rate of {plan} MiB/s by the GiB of every volume",
            "Give the price that aws.amazon.com/ebs/pricing states for your region and rate.",
        )
    each = usd_per_gib * volume_gib
    seconds = snapshot_bytes / (int(plan) * 2**20)
    return Hydration(
        rate_mib_s=int(plan),
        seconds=seconds,
        usd_per_node=each,
        usd_per_month=month,
        words=f"at most ${each:.2f} for each node that starts ({volume_gib} GiB), done {seconds:.0f} s after launch",
    )
