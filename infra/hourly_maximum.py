"""The most that a stack's declared resources can cost per hour: what the policy pack holds against the limit.

Computed from the resources and not from the settings, so that it counts what is really going to be made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from budget.instances import instance as instance_type
from budget.price import CostItem, control_plane_cost, endpoint_cost, nat_cost, node_cost, volume_cost
from budget.problems import BadInput
from infra.guardrails import Properties, section

Declared = tuple[str, str, Properties]
"""Type token, logical name and properties of a resource. A node group and its launch template share a name."""


def most(resources: Iterable[Declared]) -> Sequence[CostItem]:
    """What costs by the hour, each at its most: groups at their maximum, warm pools beside them.

    An instance type or a kind of volume that the table doesn't know costs None, never nothing.
    """
    listed = list(resources)
    templates = {name: properties for kind, name, properties in listed if kind.endswith(":LaunchTemplate")}
    return [item for kind, name, properties in listed for item in _items(kind, properties, templates.get(name, {}))]


def violation(resources: Iterable[Declared], limit_usd_per_hour: float | None) -> str | None:
    """Why a stack exceeds its limit, or why nobody can tell; None when it stays below, or has no limit."""
    if limit_usd_per_hour is None:
        return None
    items = most(resources)
    unknown = [item.item for item in items if item.usd_per_hour is None]
    known_usd = sum(item.usd_per_hour for item in items if item.usd_per_hour is not None)
    if known_usd > limit_usd_per_hour:
        at_least = "at least " if unknown else ""
        return f"can cost {at_least}${known_usd:.2f} per hour; cost.max_usd_per_hour is {limit_usd_per_hour:g}"
    if unknown:
        return f"no price is known for {', '.join(unknown)}; cost.max_usd_per_hour can't be kept"
    return None


def _items(kind: str, properties: Properties, template: Properties) -> Iterator[CostItem]:
    match kind:
        case "aws:eks/cluster:Cluster":
            yield control_plane_cost(
                extended_support=section(properties, "upgradePolicy").get("supportType") != "STANDARD"
            )
        case "aws:ec2/natGateway:NatGateway":
            yield nat_cost(1)
        case "aws:ec2/vpcEndpoint:VpcEndpoint" if properties.get("vpcEndpointType") == "Interface":
            yield endpoint_cost(1, len(cast("Sequence[object]", properties.get("subnetIds") or ())))
        case "aws:eks/nodeGroup:NodeGroup":
            yield from _nodes(properties, template)
        case _:
            return


def _nodes(group: Properties, template: Properties) -> Iterator[CostItem]:
    pool = section(group, "warmPoolConfig")
    in_service, prepared = int(section(group, "scalingConfig").get("maxSize") or 0), int(pool.get("minSize") or 0)
    running = in_service + (prepared if pool.get("poolState") == "RUNNING" else 0)
    name = str(template.get("instanceType") or "an instance type of its launch template's own")
    try:
        yield node_cost(instance_type(name), count=running)
    except BadInput:
        yield CostItem(item=f"{running} x {name}", usd_per_hour=None)
    for mapping in cast("Sequence[Properties]", template.get("blockDeviceMappings") or ()):
        volume = section(mapping, "ebs")
        yield volume_cost(
            str(volume.get("volumeType") or "volume of no stated kind"),
            gib=float(volume.get("volumeSize") or 0),
            iops=float(volume.get("iops") or 0),
            throughput_mib_s=float(volume.get("throughput") or 0),
            count=in_service + prepared,
        )
