"""Instance types are not sold in every zone."""

from __future__ import annotations

from collections.abc import Iterator

from infra.accounts import zone_names
from scripts.checks.finding import Check, Finding, Subject, always, failed, passed, warned


def _run(subject: Subject) -> Iterator[Finding]:
    wanted = subject.wanted
    environment = wanted.stack.environment
    if wanted.specs is None:
        name = environment.system_nodes.instance
        chosen = set(zone_names(wanted.region, environment.network.zones))
    else:
        name = wanted.specs.node.instance.name
        chosen = {zone for _, zones in wanted.specs.zone_groups for zone in zones}
    offered: set[str] = set()
    pages = subject.clients.ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [name]}]
    )
    for page in pages:
        offered |= {offering.get("Location", "") for offering in page["InstanceTypeOfferings"]}
    here, missing = sorted(chosen & offered), sorted(chosen - offered)
    letters = ", ".join(sorted(zone.removeprefix(wanted.region) for zone in offered)) or "none"
    key = "model.nodes.zones" if wanted.specs else "environment.network.zones"
    if not here:
        yield failed(
            f"{name} is sold in zones {letters} of {wanted.region}; chosen are {', '.join(sorted(chosen))}",
            f"Set {key} to zones among {letters}."
            if offered
            else "Choose another instance type: coldstart plan --model.",
        )
    elif missing:
        yield warned(
            f"{name} is sold in {', '.join(here)}, not in {', '.join(missing)}",
            f"Leave {', '.join(missing)} out of {key}: nodes there never come.",
        )
    else:
        yield passed(f"{name} is sold in {', '.join(here)}")


CHECK = Check(name="offering", permissions=always("ec2:DescribeInstanceTypeOfferings"), run=_run)
