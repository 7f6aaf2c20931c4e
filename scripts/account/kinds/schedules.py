"""EventBridge schedules. A schedule carries no tags, its group does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict

from scripts.account.found import FREE, Facts, Kind
from scripts.account.ownership import Owners, Verdict, tags_of
from scripts.account.session import Clients

if TYPE_CHECKING:
    from mypy_boto3_scheduler.type_defs import ScheduleSummaryTypeDef

DEFAULT_GROUP = "default"


class Tagged(TypedDict):
    """A schedule with the tags of its group."""

    schedule: ScheduleSummaryTypeDef
    tags: dict[str, str]


def _listed(clients: Clients) -> Iterator[Tagged]:
    for page in clients.scheduler.get_paginator("list_schedule_groups").paginate():
        for group in page["ScheduleGroups"]:
            name = group.get("Name", "")
            tags = {} if name == DEFAULT_GROUP else _tags(clients, group.get("Arn", ""))
            for schedules in clients.scheduler.get_paginator("list_schedules").paginate(GroupName=name):
                for schedule in schedules["Schedules"]:
                    yield Tagged(schedule=schedule, tags=tags)


def _tags(clients: Clients, arn: str) -> dict[str, str]:
    return tags_of(clients.scheduler.list_tags_for_resource(ResourceArn=arn).get("Tags"))


def _verdict(tagged: Tagged, owners: Owners) -> Verdict:
    return owners.by_tags(tagged["tags"])


def _facts(tagged: Tagged, clients: Clients) -> Facts:
    del clients
    schedule = tagged["schedule"]
    group, name = schedule.get("GroupName", ""), schedule.get("Name", "")
    return Facts(
        id=f"{group}/{name}",
        detail=str(schedule.get("State", "")).lower(),
        created=schedule.get("CreationDate"),
        price=FREE,
        remove=f"scheduler delete-schedule --group-name {group} --name {name}",
        pulumi_id=f"{group}/{name}",
    )


KIND = Kind(
    name="schedule",
    rule="tags of its group",
    actions=("scheduler:ListScheduleGroups", "scheduler:ListSchedules", "scheduler:ListTagsForResource"),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
)
