"""Log groups. EKS and Container Insights make theirs by name and copy no tags; one without an end bills for ever."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypedDict

from scripts.account import dollars
from scripts.account.found import Facts, Kind
from scripts.account.ownership import Owners, Verdict, tags_of
from scripts.account.session import Clients

if TYPE_CHECKING:
    from mypy_boto3_logs.type_defs import LogGroupTypeDef

NAMES = (
    "/aws/eks/coldstart-{}/cluster",
    "/aws/containerinsights/coldstart-{}/application",
    "/aws/containerinsights/coldstart-{}/dataplane",
    "/aws/containerinsights/coldstart-{}/host",
    "/aws/containerinsights/coldstart-{}/performance",
)


class Tagged(TypedDict):
    """A log group with its tags. Thousands of groups are usual, so the tags are asked for once for all of them."""

    group: LogGroupTypeDef
    tags: dict[str, str]


def _listed(clients: Clients) -> Iterator[Tagged]:
    tags: dict[str, dict[str, str]] = {}
    pages = clients.tagging.get_paginator("get_resources").paginate(
        ResourceTypeFilters=["logs:log-group"], TagFilters=[{"Key": "application", "Values": ["coldstart"]}]
    )
    for page in pages:
        for entry in page["ResourceTagMappingList"]:
            tags[entry.get("ResourceARN", "").removesuffix(":*")] = tags_of(entry.get("Tags"))
    for page in clients.logs.get_paginator("describe_log_groups").paginate():
        for group in page["logGroups"]:
            arn = group.get("arn", "").removesuffix(":*")
            yield Tagged(group=group, tags=tags.get(arn, {}))


def _verdict(tagged: Tagged, owners: Owners) -> Verdict:
    name = tagged["group"].get("logGroupName", "")
    return owners.first(owners.by_tags(tagged["tags"]), owners.by_name(name, *NAMES))


def _facts(tagged: Tagged, clients: Clients) -> Facts:
    del clients
    group = tagged["group"]
    name, size, days = group.get("logGroupName", ""), group.get("storedBytes", 0), group.get("retentionInDays")
    created = group.get("creationTime")
    return Facts(
        id=name,
        detail=f"{dollars.in_gb(size)}, kept {f'{days} days' if days else 'for ever'}",
        created=datetime.fromtimestamp(created / 1000, tz=UTC) if created else None,
        price=dollars.stored("log_storage_usd_per_gb_month", size),
        remove=f"logs delete-log-group --log-group-name {name}",
        pulumi_id=name,
    )


def _remove(clients: Clients, name: str) -> None:
    clients.logs.delete_log_group(logGroupName=name)


KIND = Kind(
    name="log group",
    rule="tags, or the name that EKS or Container Insights gives it for a cluster of ours",
    actions=("logs:DescribeLogGroups", "tag:GetResources"),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
    remove=_remove,
)
