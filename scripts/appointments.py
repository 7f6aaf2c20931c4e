"""Appointments: the schedules by which AWS puts a stack's GPU groups to zero, and moving them."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from infra.accounts import APPLICATION
from infra.expiry import UNITS, expression, moment
from scripts.account.ownership import tags_of
from scripts.account.refusals import told
from scripts.account.session import Clients
from scripts.failure import Failure

_AT = re.compile(r"^at\((.+)\)$")
_KEPT = (
    "ActionAfterCompletion",
    "Description",
    "EndDate",
    "FlexibleTimeWindow",
    "GroupName",
    "KmsKeyArn",
    "Name",
    "StartDate",
    "State",
    "Target",
)
"""Fields of a schedule that go back as they came: an update sets whatever it leaves out to its default."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Appointment:
    """One schedule of ours.

    Attributes:
        stack: whose groups it puts to zero.
        at: when, in UTC.
    """

    stack: str
    group: str
    name: str
    at: datetime

    def passed(self, now: datetime) -> bool:
        """It has been kept."""
        return self.at <= now


def of_environment(clients: Clients, environment: str) -> Sequence[Appointment]:
    """Appointments of every model on an environment, by the tags of their schedule groups."""
    with told(f"looking at schedules of {environment}"):
        return sorted(_found(clients, environment), key=lambda each: (each.stack, each.group, each.name))


def move(clients: Clients, appointment: Appointment, at: datetime) -> None:
    """Moves one; everything else about the schedule stays."""
    with told(f"moving {appointment.group}/{appointment.name}"):
        schedule = clients.scheduler.get_schedule(Name=appointment.name, GroupName=appointment.group)
        kept = {key: value for key in _KEPT if (value := cast("dict[str, Any]", schedule).get(key)) is not None}
        kept |= {"ScheduleExpression": expression(at), "ScheduleExpressionTimezone": "UTC"}
        clients.scheduler.update_schedule(**kept)


def later(current: datetime, by: str, now: datetime) -> datetime:
    """An appointment moved by a while (8h, 3d); one that has passed is moved from now on.

    Raises:
        ValueError: no while.
    """
    if not re.fullmatch(rf"\d{{1,4}}[{''.join(UNITS)}]", by):
        raise ValueError(f"{by!r} is not a duration such as 8h or 3d")
    return moment(by, max(current, now))


def _found(clients: Clients, environment: str) -> Iterator[Appointment]:
    for page in clients.scheduler.get_paginator("list_schedule_groups").paginate():
        for group in page["ScheduleGroups"]:
            if group.get("Name") == "default":
                continue
            tags = tags_of(clients.scheduler.list_tags_for_resource(ResourceArn=group.get("Arn", "")).get("Tags"))
            if tags.get("application") == APPLICATION and tags.get("environment") == environment:
                yield from _of_group(clients, group.get("Name", ""), tags.get("stack", ""))


def _of_group(clients: Clients, group: str, stack: str) -> Iterator[Appointment]:
    for page in clients.scheduler.get_paginator("list_schedules").paginate(GroupName=group):
        for each in page["Schedules"]:
            name = each.get("Name", "")
            schedule = clients.scheduler.get_schedule(Name=name, GroupName=group)
            at = _moment(schedule["ScheduleExpression"], schedule.get("ScheduleExpressionTimezone") or "UTC")
            if at is None:
                raise Failure(
                    f"schedule {group}/{name} is {schedule['ScheduleExpression']}, which is not an appointment"
                )
            yield Appointment(stack=stack, group=group, name=name, at=at)


def _moment(text: str, zone: str) -> datetime | None:
    found = _AT.match(text)
    if found is None:
        return None
    return datetime.fromisoformat(found[1]).replace(tzinfo=zoneinfo.ZoneInfo(zone)).astimezone(UTC)
