"""Unit prices and what a stack's parts cost per hour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal, cast

from budget.disk import GP3_DEFAULT_IOPS, GP3_DEFAULT_MIB_S
from budget.instances import Instance
from budget.tables import document

Purchase = Literal["on-demand", "spot", "capacity-block", "reservation"]

IO2_IOPS_TIERS = ((32_000, "to_32000"), (64_000, "to_64000"), (None, "above_64000"))


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceTable:
    """List prices of one region on one day.

    Attributes:
        usd: item name (its unit is in the name) → US dollars.
        sources: item name → where the figure comes from.
    """

    region: str
    priced_on: str
    hours_per_month: float
    usd: Mapping[str, float]
    sources: Mapping[str, str]

    def per_hour(self, item: str) -> float:
        """Dollars per hour of an item priced per hour or per month."""
        value = self.usd[item]
        return value if item.endswith("_per_hour") else value / self.hours_per_month


@dataclass(frozen=True, kw_only=True, slots=True)
class CostItem:
    """One line of an hourly bill.

    Attributes:
        item: what is paid for, with its size.
        usd_per_hour: None when no list price is known; never counted as free.
        note: how to read the figure, or an empty string.
    """

    item: str
    usd_per_hour: float | None
    note: str = ""


@cache
def prices() -> PriceTable:
    """The shipped price table."""
    table = document("prices.json")
    items = cast("Mapping[str, Mapping[str, float | str]]", table["items"])
    return PriceTable(
        region=cast("str", table["region"]),
        priced_on=cast("str", table["priced_on"]),
        hours_per_month=float(cast("float", table["hours_per_month"])),
        usd=MappingProxyType({name: float(item["usd"]) for name, item in items.items()}),
        sources=MappingProxyType({name: str(item["source"]) for name, item in items.items()}),
    )


def node_cost(
    instance: Instance, *, count: int = 1, purchase: Purchase = "on-demand", usd_per_hour: float | None = None
) -> CostItem:
    """Nodes of one type.

    Spot, capacity-block and reservation prices follow the market or a contract and are in no table: the on-demand
    price stands as their ceiling and the note says so, unless the caller knows the price.

    Args:
        instance: the type.
        count: how many of them run.
        purchase: how they are bought.
        usd_per_hour: price of one when known (`coldstart preflight` reads spot prices); replaces the table's.
    """
    unit = usd_per_hour if usd_per_hour is not None else instance.usd_per_hour
    label = f"{count} x {instance.name} ({purchase})"
    if unit is None:
        return CostItem(item=label, usd_per_hour=None, note="no on-demand list price in us-east-1")
    known = purchase == "on-demand" or usd_per_hour is not None
    note = f"list price of {instance.priced_on}" if usd_per_hour is None else "price as given"
    return CostItem(
        item=label,
        usd_per_hour=count * unit,
        note=note if known else f"on-demand price of {instance.priced_on} as the ceiling of {purchase}",
    )


def volume_cost(
    kind: str,
    *,
    gib: float,
    iops: float = GP3_DEFAULT_IOPS,
    throughput_mib_s: float = GP3_DEFAULT_MIB_S,
    count: int = 1,
) -> CostItem:
    """EBS volumes of one shape: capacity, and for gp3 what goes beyond 3,000 IOPS and 125 MiB/s.

    A kind that the table doesn't price costs None.
    """
    table, label = prices(), f"{count} x {kind} {gib:.0f} GiB"
    match kind:
        case "gp3":
            label += f", {iops:.0f} IOPS, {throughput_mib_s:.0f} MiB/s"
            performance = _gp3_month(iops, throughput_mib_s)
        case "io2":
            label += f", {iops:.0f} IOPS"
            performance = _io2_iops_month(iops)
        case "gp2":
            performance = 0.0
        case _:
            return CostItem(item=label, usd_per_hour=None, note=f"no list price of {kind} in the table")
    # EBS bills capacity per "GB-month" of the provisioned GiB.
    month = gib * table.usd[f"{kind}_usd_per_gb_month"] + performance
    return CostItem(item=label, usd_per_hour=count * month / table.hours_per_month)


def _gp3_month(iops: float, throughput_mib_s: float) -> float:
    usd = prices().usd
    beyond_iops, beyond_mib_s = max(0, iops - GP3_DEFAULT_IOPS), max(0, throughput_mib_s - GP3_DEFAULT_MIB_S)
    return beyond_iops * usd["gp3_usd_per_iops_month"] + beyond_mib_s * usd["gp3_usd_per_mib_s_month"]


def _io2_iops_month(iops: float) -> float:
    table, total, floor = prices(), 0.0, 0.0
    for ceiling, tier in IO2_IOPS_TIERS:
        top = iops if ceiling is None else min(iops, ceiling)
        total += max(0.0, top - floor) * table.usd[f"io2_usd_per_iops_month_{tier}"]
        floor = float(ceiling or iops)
    return total


def control_plane_cost(*, extended_support: bool = False) -> CostItem:
    """One EKS cluster."""
    item = "eks_extended_support_usd_per_hour" if extended_support else "eks_control_plane_usd_per_hour"
    return CostItem(item="EKS control plane", usd_per_hour=prices().usd[item])


def nat_cost(gateways: int) -> CostItem:
    """NAT gateways with their public addresses, before the bytes they carry."""
    table = prices()
    each = table.usd["nat_gateway_usd_per_hour"] + table.usd["public_ipv4_usd_per_hour"]
    return CostItem(item=f"{gateways} x NAT gateway", usd_per_hour=gateways * each, note="plus $0.045 per GB carried")


def endpoint_cost(endpoints: int, zones: int) -> CostItem:
    """Interface endpoints, each in every zone. Gateway endpoints (S3) cost nothing."""
    hourly = endpoints * zones * prices().usd["interface_endpoint_usd_per_hour"]
    return CostItem(
        item=f"{endpoints} interface endpoints x {zones} zones", usd_per_hour=hourly, note="plus $0.01 per GB carried"
    )


def bucket_cost(stored_bytes: float) -> CostItem:
    """Weights at rest in S3 Standard."""
    hourly = stored_bytes / 1e9 * prices().per_hour("s3_standard_usd_per_gb_month")
    return CostItem(item=f"S3 {stored_bytes / 1e9:.0f} GB", usd_per_hour=hourly)


def registry_cost(stored_bytes: float) -> CostItem:
    """Images at rest in ECR."""
    hourly = stored_bytes / 1e9 * prices().per_hour("ecr_usd_per_gb_month")
    return CostItem(item=f"ECR {stored_bytes / 1e9:.0f} GB", usd_per_hour=hourly)


def total_usd_per_hour(items: Iterable[CostItem]) -> float | None:
    """The hourly bill; None as soon as one line has no price, since a sum without it would look complete."""
    total = 0.0
    for item in items:
        if item.usd_per_hour is None:
            return None
        total += item.usd_per_hour
    return total
