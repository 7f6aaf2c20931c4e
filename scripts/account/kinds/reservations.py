"""Capacity reservations: they bill whether or not an instance runs in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account import dollars
from scripts.account.found import Facts, Kind, Price
from scripts.account.kinds.tagged import by_tags
from scripts.account.session import PAGES, Clients

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import CapacityReservationTypeDef

OVER = ("expired", "cancelled", "failed", "payment-failed", "unsupported")


def _listed(clients: Clients) -> Iterator[CapacityReservationTypeDef]:
    for page in clients.ec2.get_paginator("describe_capacity_reservations").paginate(PaginationConfig=PAGES):
        yield from (each for each in page["CapacityReservations"] if each.get("State") not in OVER)


def _price(reservation: CapacityReservationTypeDef) -> Price:
    if reservation.get("ReservationType") == "capacity-block":
        return Price(usd_per_hour=0.0, note="a capacity block is paid in advance")
    idle = reservation.get("AvailableInstanceCount", 0)
    each = dollars.instance(reservation.get("InstanceType", ""), "running", spot=False)
    if each.usd_per_hour is None:
        return each
    return Price(usd_per_hour=idle * each.usd_per_hour, note=f"{idle} idle; those in use are counted as instances")


def _facts(reservation: CapacityReservationTypeDef, clients: Clients) -> Facts:
    del clients
    name = reservation.get("CapacityReservationId", "")
    return Facts(
        id=name,
        detail=f"{reservation.get('TotalInstanceCount', 0)} x {reservation.get('InstanceType', '?')} "
        f"in {reservation.get('AvailabilityZone', '?')}",
        created=reservation.get("CreateDate"),
        price=_price(reservation),
        remove=f"ec2 cancel-capacity-reservation --capacity-reservation-id {name}",
    )


KIND = Kind(
    name="capacity reservation",
    rule="tags",
    actions=("ec2:DescribeCapacityReservations",),
    listed=_listed,
    verdict=by_tags,
    facts=_facts,
)
