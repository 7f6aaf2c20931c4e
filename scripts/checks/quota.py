"""vCPU quotas: with a quota of 0 `pulumi up` succeeds, and no node ever appears."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from budget.instances import instance as instance_type
from budget.instances import instances
from infra.model_settings import Capacity
from infra.specs import nodes_for
from scripts.account.refusals import code_of
from scripts.account.session import Clients
from scripts.checks.finding import Check, Finding, Subject, always, failed, passed, warned

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

SPOT, ON_DEMAND = "spot", "on-demand"
CODES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("G and VT", ON_DEMAND): ("L-DB2E81BA",),
    ("G and VT", SPOT): ("L-3819A6DF",),
    ("P", ON_DEMAND): ("L-417A185B",),
    ("P4 and older", SPOT): ("L-7212CCBC",),
    ("P5", SPOT): ("L-C4BD4855",),
    # Public lists disagree under which of the two p6 counts: both have to be enough.
    ("P6", SPOT): ("L-C4BD4855", "L-7212CCBC"),
    ("Standard", ON_DEMAND): ("L-1216C47A",),
    ("Standard", SPOT): ("L-34B43A08",),
}
"""Class of instance and how it is bought → quota codes of service `ec2`, in vCPU of a region."""
STANDARD = frozenset("acdhimrtz")
SERVICE = "ec2"
SURGE_NODES = 1
"""An update of a group that is not scarce adds a node before it takes one away (maxUnavailable 1)."""


def class_of(family: str, purchase: str) -> str:
    """The class under which a family counts (EC2 on-demand and spot instance limits)."""
    if family.startswith(("g", "vt")):
        return "G and VT"
    if family.startswith("p"):
        if purchase == ON_DEMAND:
            return "P"
        return {"p5": "P5", "p6": "P6"}.get(family[:2], "P4 and older")
    return "Standard"


def _run(subject: Subject) -> Iterator[Finding]:
    wanted = subject.wanted
    if wanted.model is None or wanted.specs is None:
        nodes = wanted.stack.environment.system_nodes
        yield from _judge(subject, nodes.instance, nodes.count, nodes.count, ON_DEMAND)
        return
    if wanted.model.nodes.capacity is Capacity.CAPACITY_BLOCK:
        yield passed("a capacity block has a quota of its own, met when it was bought")
        return
    spot = wanted.model.nodes.capacity is Capacity.SPOT
    pool = wanted.model.nodes.warm_pool
    most = (wanted.specs.max_nodes + (pool.size if pool else 0)) * len(wanted.specs.zone_groups)
    most += SURGE_NODES if spot else 0
    least = max(1, nodes_for(wanted.model.scaling.min_replicas, wanted.specs.pods_per_node))
    yield from _judge(subject, wanted.specs.node.instance.name, most, least, SPOT if spot else ON_DEMAND)


def _judge(subject: Subject, name: str, most: int, least: int, purchase: str) -> Iterator[Finding]:
    instance = instance_type(name)
    kind = class_of(instance.family, purchase)
    used = _used_vcpu(subject, kind, purchase)
    for code in CODES[kind, purchase]:
        quota = _quota(subject.clients, code)
        need = most * instance.vcpu
        words = (
            f"{kind} {purchase}: quota {quota:,.0f} vCPU ({code}), {used} in use by others; "
            f"at most {most} x {name} need {need}"
        )
        fix = (
            f"aws service-quotas request-service-quota-increase --service-code {SERVICE} --quota-code {code} "
            f"--desired-value {used + need} --region {subject.wanted.region}"
        )
        if quota - used >= need:
            yield passed(words)
        elif quota - used >= least * instance.vcpu:
            yield warned(f"{words}: it starts, but can't grow that far", fix)
        else:
            yield failed(f"{words}: not even {least} would start", fix)


def _quota(clients: Clients, code: str) -> float:
    """The account's quota; where none was ever applied, the default. Denied is an error, never zero."""
    try:
        return clients.quotas.get_service_quota(ServiceCode=SERVICE, QuotaCode=code)["Quota"].get("Value", 0.0)
    except ClientError as error:
        if code_of(error) != "NoSuchResourceException":
            raise
        default = clients.quotas.get_aws_default_service_quota(ServiceCode=SERVICE, QuotaCode=code)
        return default["Quota"].get("Value", 0.0)


def _used_vcpu(subject: Subject, kind: str, purchase: str) -> int:
    """What runs under the same quota, without the stack's own nodes: those are part of what it needs. In vCPU."""
    pages = subject.clients.ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": "instance-state-name", "Values": ["pending", "running", "stopping"]}]
    )
    used = 0
    for page in pages:
        for reservation in page["Reservations"]:
            for each in reservation.get("Instances", []):
                bought = SPOT if each.get("InstanceLifecycle") == "spot" else ON_DEMAND
                family = str(each.get("InstanceType", "")).partition(".")[0]
                if bought == purchase and class_of(family, purchase) == kind and not _own(subject, each):
                    used += _vcpu(each)
    return used


def _own(subject: Subject, each: InstanceTypeDef) -> bool:
    return any(
        tag.get("Key") == "stack" and tag.get("Value") == subject.wanted.stack.name for tag in each.get("Tags", [])
    )


def _vcpu(each: InstanceTypeDef) -> int:
    options = each.get("CpuOptions", {})
    if options.get("CoreCount"):
        return options.get("CoreCount", 0) * options.get("ThreadsPerCore", 1)
    known = instances().get(str(each.get("InstanceType", "")))
    return known.vcpu if known else 0


CHECK = Check(
    name="quota",
    permissions=always(
        "servicequotas:GetServiceQuota", "servicequotas:GetAWSDefaultServiceQuota", "ec2:DescribeInstances"
    ),
    run=_run,
)
