"""EC2 instances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account import dollars
from scripts.account.found import Facts, Kind
from scripts.account.kinds.tagged import by_tags
from scripts.account.session import PAGES, Clients

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

ALIVE = ("pending", "running", "stopping", "stopped", "shutting-down")
"""States short of `terminated`, in which an instance stays visible for an hour."""


def _listed(clients: Clients) -> Iterator[InstanceTypeDef]:
    pages = clients.ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": "instance-state-name", "Values": list(ALIVE)}], PaginationConfig=PAGES
    )
    for page in pages:
        for reservation in page["Reservations"]:
            yield from reservation.get("Instances", [])


def _facts(instance: InstanceTypeDef, clients: Clients) -> Facts:
    del clients
    name, kind = instance.get("InstanceId", ""), str(instance.get("InstanceType", ""))
    state = str(instance.get("State", {}).get("Name", ""))
    spot = instance.get("InstanceLifecycle") == "spot"
    return Facts(
        id=name,
        detail=f"{kind}, {state}" + (", spot" if spot else ""),
        created=instance.get("LaunchTime"),
        price=dollars.instance(kind, state, spot=spot),
        remove=f"ec2 terminate-instances --instance-ids {name}",
    )


def _remove(clients: Clients, name: str) -> None:
    clients.ec2.terminate_instances(InstanceIds=[name])


KIND = Kind(
    name="instance",
    rule="tags of the launch template, or eks:cluster-name names a cluster of ours",
    actions=("ec2:DescribeInstances",),
    listed=_listed,
    verdict=by_tags,
    facts=_facts,
    remove=_remove,
)
