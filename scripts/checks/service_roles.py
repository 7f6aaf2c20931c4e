"""Service-linked roles: AWS makes them at the first use, if whoever uses it first may."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from botocore.exceptions import ClientError

from infra.model_settings import Capacity
from scripts.account.refusals import is_gone
from scripts.checks.finding import Check, Finding, Permission, Subject, Wanted, passed, warned

OF_EVERY_CLUSTER: Mapping[str, str] = {
    "AWSServiceRoleForAmazonEKS": "eks.amazonaws.com",
    "AWSServiceRoleForAmazonEKSNodegroup": "eks-nodegroup.amazonaws.com",
    "AWSServiceRoleForAutoScaling": "autoscaling.amazonaws.com",
}
"""Role → the service that it is of (IAM, services that work with service-linked roles)."""
OF_SPOT: Mapping[str, str] = {"AWSServiceRoleForEC2Spot": "spot.amazonaws.com"}


def needed(wanted: Wanted) -> Mapping[str, str]:
    """The roles that a deployment makes use of."""
    spot = wanted.model is not None and wanted.model.nodes.capacity is Capacity.SPOT
    return {**OF_EVERY_CLUSTER, **(OF_SPOT if spot else {})}


def _run(subject: Subject) -> Iterator[Finding]:
    missing: list[str] = []
    for role, service in needed(subject.wanted).items():
        try:
            subject.clients.iam.get_role(RoleName=role)
        except ClientError as error:
            if not is_gone(error):
                raise
            missing.append(role)
            yield warned(
                f"{role} is not there: its service makes it at the first use, if you may",
                f"aws iam create-service-linked-role --aws-service-name {service}",
            )
    if not missing:
        yield passed(f"{len(needed(subject.wanted))} service-linked roles are there")


def _permissions(wanted: Wanted) -> Sequence[Permission]:
    account = wanted.stack.environment.account
    arns = tuple(
        f"arn:{wanted.partition}:iam::{account}:role/aws-service-role/{service}/{role}"
        for role, service in needed(wanted).items()
    )
    return (Permission(actions=("iam:GetRole",), resources=arns),)


CHECK = Check(name="service roles", permissions=_permissions, run=_run)
