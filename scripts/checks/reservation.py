"""A capacity reservation or block: it has to be there, of the type, in the zone, with room and with time left."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from infra.accounts import zone_names
from infra.model_settings import Capacity
from scripts.checks.finding import Check, Finding, Subject, always, failed, passed, warned

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import CapacityReservationTypeDef

BEFORE_END = timedelta(minutes=40)
"""EKS takes nodes of a capacity block away this long before its end (EKS user guide, capacity blocks)."""


def _run(subject: Subject) -> Iterator[Finding]:
    model, specs = subject.wanted.model, subject.wanted.specs
    if model is None or specs is None or model.nodes.reservation_id is None:
        return
    name = model.nodes.reservation_id
    found: list[CapacityReservationTypeDef] = []
    pages = subject.clients.ec2.get_paginator("describe_capacity_reservations").paginate(
        Filters=[{"Name": "capacity-reservation-id", "Values": [name]}]
    )
    for page in pages:
        found += page["CapacityReservations"]
    if not found:
        yield failed(f"{name} is not in {subject.wanted.region}", "Name a reservation of this account and region.")
        return
    problems = list(_problems(found[0], subject))
    yield from problems
    if not problems:
        yield passed(
            f"{name}: {found[0].get('AvailableInstanceCount')} of {found[0].get('TotalInstanceCount')} "
            f"{found[0].get('InstanceType')} free in {found[0].get('AvailabilityZone')}"
        )


def _problems(found: CapacityReservationTypeDef, subject: Subject) -> Iterator[Finding]:
    model, specs = subject.wanted.model, subject.wanted.specs
    assert model is not None  # noqa: S101 - asked by the caller
    assert specs is not None  # noqa: S101 - as above
    name, state = found.get("CapacityReservationId", "?"), found.get("State", "?")
    block = found.get("ReservationType") == "capacity-block"
    if state not in ("active", "scheduled"):
        yield failed(f"{name} is {state}", "Use one that is active.")
    if block != (model.nodes.capacity is Capacity.CAPACITY_BLOCK):
        kind = "a capacity block" if block else "an on-demand reservation"
        yield failed(f"{name} is {kind}, model.nodes.capacity is {model.nodes.capacity}", "Make the two agree.")
    if found.get("InstanceType") != specs.node.instance.name:
        yield failed(
            f"{name} is of {found.get('InstanceType')}, the model wants {specs.node.instance.name}",
            "Set model.nodes.instance to the reserved type, or name another reservation.",
        )
    zones = zone_names(subject.wanted.region, model.nodes.zones)
    if found.get("AvailabilityZone") not in zones:
        zone = str(found.get("AvailabilityZone", "?"))
        letter = zone.removeprefix(subject.wanted.region)
        yield failed(f"{name} is in {zone}, the model in {', '.join(zones)}", f"Set model.nodes.zones: [{letter}].")
    free = found.get("AvailableInstanceCount", 0)
    if free < specs.max_nodes:
        finding = failed if free == 0 else warned
        yield finding(
            f"{name} has room for {free} more, the model may want {specs.max_nodes}",
            "Enlarge the reservation, or lower model.scaling.max_replicas.",
        )
    yield from _time_left(found, specs.slowest_start_s, block=block)


def _time_left(found: CapacityReservationTypeDef, start_s: float, *, block: bool) -> Iterator[Finding]:
    end = found.get("EndDate")
    if end is None:
        return
    left = end - datetime.now(UTC) - (BEFORE_END if block else timedelta())
    if left < timedelta(seconds=start_s):
        yield failed(
            f"{found.get('CapacityReservationId')} ends at {end:%Y-%m-%d %H:%M} UTC: a start takes {start_s / 60:.0f} "
            "minutes",
            "Extend the reservation, or name another.",
        )


CHECK = Check(name="reservation", permissions=always("ec2:DescribeCapacityReservations"), run=_run)
