"""Prices of found things, from the budget room's table. Whatever it does not list is unknown, never free."""

from __future__ import annotations

from budget.instances import instances
from budget.price import prices, volume_cost
from scripts.account.found import FREE, UNPRICED, Price

GIB = 2**30
OCCUPYING = frozenset({"pending", "running", "stopping"})
"""States of an instance in which it bills (a stopping one does while it hibernates)."""


def item(name: str, count: float = 1.0, note: str = "") -> Price:
    """`count` of an item of the price table, which is priced by the hour or by the month."""
    table = prices()
    if name not in table.usd:
        return UNPRICED
    return Price(usd_per_hour=count * table.per_hour(name), note=note)


def instance(name: str, state: str, *, spot: bool) -> Price:
    """An EC2 instance; a stopped one costs its volumes alone, which are counted apart."""
    if state not in OCCUPYING:
        return Price(usd_per_hour=0.0, note=f"{state}: only its volumes bill")
    known = instances().get(name)
    if known is None or known.usd_per_hour is None:
        return Price(usd_per_hour=None, note=f"no list price for {name}")
    return Price(usd_per_hour=known.usd_per_hour, note="on-demand price as the ceiling of spot" if spot else "")


def volume(kind: str, gib: float, iops: float, mib_s: float) -> Price:
    """An EBS volume by what is provisioned."""
    cost = volume_cost(kind, gib=gib, iops=iops, throughput_mib_s=mib_s)
    return UNPRICED if cost.usd_per_hour is None else Price(usd_per_hour=cost.usd_per_hour)


def stored(name: str, size_bytes: float, note: str = "") -> Price:
    """Bytes at rest, of an item priced per GB and month."""
    return FREE if not size_bytes else item(name, size_bytes / 1e9, note)


def in_gb(size_bytes: float) -> str:
    """Bytes for a person."""
    return f"{size_bytes / 1e9:,.1f} GB"
