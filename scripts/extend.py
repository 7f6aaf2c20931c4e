"""`coldstart extend`: moves the appointment at which AWS puts a stack's GPU nodes to zero."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from budget.problems import bad_input
from infra.expiry import EARLIEST, moment
from infra.stack_file import STACKS
from scripts import appointments
from scripts.account.session import Clients, sign_in
from scripts.appointments import Appointment
from scripts.deployed.lazy import LazyBackend
from scripts.targets import Target, targets_of

Later = Callable[[Appointment], datetime]


@dataclass(frozen=True, kw_only=True)
class Moved:
    """An appointment and where it went."""

    appointment: Appointment
    to: datetime


def extend(clients: Clients, target: Target, later: Later) -> Sequence[Moved]:
    """Moves every appointment of a target. Nodes that are asleep stay so: `resume` wakes them.

    Raises:
        BadInput: the target has no appointment.
        Failure: AWS refuses.
    """
    found = [each for each in appointments.of_environment(clients, target.environment) if target.includes(each.stack)]
    if not found:
        raise bad_input(
            ", ".join(sorted(target.stacks or [target.environment])),
            "has no appointment to move",
            "Set environment.cost.expires_after (or model.cost.expires_after) and run `pulumi up`.",
        )
    moved = [Moved(appointment=each, to=later(each)) for each in found]
    for each in moved:
        appointments.move(clients, each.appointment, each.to)
    return moved


def later_of(by: str | None, until: str | None, now: datetime) -> Later:
    """The rule by which appointments move.

    Raises:
        BadInput: not one of the two, no such moment, or one that has passed.
    """
    if (by is None) == (until is None):
        raise bad_input(
            "coldstart extend", "by how much is not clear", "Give one of --by 8h, --until 2026-12-01T18:00Z."
        )
    if by is not None:
        try:
            appointments.later(now, by, now)
        except ValueError as error:
            raise bad_input("--by", str(error), "Write one like 8h or 3d.") from error
        return lambda each: appointments.later(each.at, by, now)
    try:
        at = moment(until or "", now)
    except ValueError as error:
        raise bad_input("--until", f"{until!r} is not a time: {error}", "Write one like 2026-12-01T18:00Z.") from error
    if at < now + EARLIEST:
        raise bad_input("--until", f"{at:%Y-%m-%d %H:%M} UTC has passed, or comes at once", "Name a later moment.")
    return lambda _: at


def document(moved: Sequence[Moved]) -> Sequence[Mapping[str, Any]]:
    """What was moved, as JSON."""
    return [
        {
            "stack": each.appointment.stack,
            "schedule": f"{each.appointment.group}/{each.appointment.name}",
            "from": each.appointment.at.isoformat(),
            "to": each.to.isoformat(),
        }
        for each in moved
    ]


@click.command()
@click.argument("stacks", nargs=-1, required=True, metavar="STACK...")
@click.option("--by", help="A while (8h, 3d), counted from the appointment, or from now when it has passed.")
@click.option("--until", help="A date and time in UTC, 2026-12-01T18:00Z.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(stacks: tuple[str, ...], *, by: str | None, until: str | None, as_json: bool) -> None:
    """Move the moment at which the GPU nodes of STACK go to zero; an environment stands for every model on it."""
    later = later_of(by, until, datetime.now(UTC))
    backend = LazyBackend(STACKS)
    try:
        moved: list[Moved] = []
        for target in targets_of(stacks, STACKS, backend.state):
            clients = sign_in(account=target.account, region=target.region).region(target.region)
            moved += extend(clients, target, later)
    finally:
        backend.close()
    if as_json:
        click.echo(json.dumps(document(moved), indent=2))
        return
    for each in moved:
        old = each.appointment
        was = "expired" if old.passed(datetime.now(UTC)) else "would expire"
        click.echo(f"{old.stack}: {was} at {old.at:%Y-%m-%d %H:%M}, now at {each.to:%Y-%m-%d %H:%M} UTC")
