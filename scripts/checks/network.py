"""The environment's network: subnets in the chosen zones with free addresses, S3 without NAT on their routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from infra.accounts import APPLICATION
from scripts.checks.finding import Check, Finding, Subject, always, failed, passed, warned

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import SubnetTypeDef

ADDRESSES_PER_NODE = 100
"""The VPC CNI keeps one whole interface ready beside the one in use, and no type has more than 50 addresses on one
(amazon-vpc-cni-k8s, WARM_ENI_TARGET; EC2, IP addresses per interface)."""
USD_PER_NAT_GB = 0.045


def _run(subject: Subject) -> Iterator[Finding]:
    wanted = subject.wanted
    if wanted.specs is None:
        return
    zones = sorted({zone for _, group in wanted.specs.zone_groups for zone in group})
    subnets = _subnets(subject, zones)
    uncovered = sorted(set(zones) - {subnet.get("AvailabilityZone", "") for subnet in subnets})
    if not subnets:
        yield failed(
            f"no private subnet of {wanted.stack.environment_name} in {', '.join(zones)}",
            f"First: pulumi up --stack {wanted.stack.environment_name}",
        )
        return
    if uncovered:
        yield warned(f"no private subnet in {', '.join(uncovered)}", "Add the zone to environment.network.zones.")
    yield _addresses(subject, subnets)
    yield _gateway(subject, subnets)


def _subnets(subject: Subject, zones: Sequence[str]) -> Sequence[SubnetTypeDef]:
    pages = subject.clients.ec2.get_paginator("describe_subnets").paginate(
        Filters=[
            {"Name": "tag:application", "Values": [APPLICATION]},
            {"Name": "tag:environment", "Values": [subject.wanted.stack.environment_name]},
            {"Name": "tag:kubernetes.io/role/internal-elb", "Values": ["1"]},
            {"Name": "availability-zone", "Values": list(zones)},
        ]
    )
    return [subnet for page in pages for subnet in page["Subnets"]]


def _addresses(subject: Subject, subnets: Sequence[SubnetTypeDef]) -> Finding:
    specs = subject.wanted.specs
    nodes = specs.max_nodes * len(specs.zone_groups) if specs else 0
    free = sum(subnet.get("AvailableIpAddressCount", 0) for subnet in subnets)
    need = nodes * ADDRESSES_PER_NODE
    words = f"{free:,} addresses free in {len(subnets)} subnets; {nodes} nodes take up to {need:,}"
    if free < nodes:
        return failed(words, "Use a larger environment.network.cidr.")
    if free < need:
        return warned(words, "Use a larger environment.network.cidr, or fewer replicas.")
    return passed(words)


def _gateway(subject: Subject, subnets: Sequence[SubnetTypeDef]) -> Finding:
    """Whether each subnet's route table has the S3 gateway endpoint."""
    ec2, vpc = subject.clients.ec2, subnets[0].get("VpcId", "")
    endpoints = ec2.get_paginator("describe_vpc_endpoints").paginate(
        Filters=[
            {"Name": "vpc-id", "Values": [vpc]},
            {"Name": "service-name", "Values": [f"com.amazonaws.{subject.wanted.region}.s3"]},
        ]
    )
    routed = {
        table
        for page in endpoints
        for endpoint in page["VpcEndpoints"]
        if endpoint.get("VpcEndpointType") == "Gateway" and str(endpoint.get("State", "")).lower() == "available"
        for table in endpoint.get("RouteTableIds", [])
    }
    tables = _route_tables(subject, vpc)
    main = tables.get("", "")
    without = [name for subnet in subnets if tables.get(name := subnet.get("SubnetId", ""), main) not in routed]
    if not without:
        return passed("the S3 gateway endpoint is on the route tables of all of them")
    specs = subject.wanted.specs
    usd = (specs.weights_bytes if specs else 0) / 1e9 * USD_PER_NAT_GB
    return failed(
        f"no S3 gateway endpoint on the routes of {', '.join(without)}: weights would go through NAT, "
        f"${usd:.2f} a start",
        f"pulumi up --stack {subject.wanted.stack.environment_name} adds it; or associate the VPC's own endpoint.",
    )


def _route_tables(subject: Subject, vpc: str) -> dict[str, str]:
    """Subnet → its route table; the main one of the VPC under an empty name."""
    found: dict[str, str] = {}
    pages = subject.clients.ec2.get_paginator("describe_route_tables").paginate(
        Filters=[{"Name": "vpc-id", "Values": [vpc]}]
    )
    for page in pages:
        for table in page["RouteTables"]:
            for association in table.get("Associations", []):
                subnet = "" if association.get("Main") else association.get("SubnetId", "")
                found[subnet] = table.get("RouteTableId", "")
    return found


CHECK = Check(
    name="network",
    permissions=always("ec2:DescribeSubnets", "ec2:DescribeVpcEndpoints", "ec2:DescribeRouteTables"),
    run=_run,
)
