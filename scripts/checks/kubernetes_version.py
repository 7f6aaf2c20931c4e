"""The Kubernetes version: in standard support, and the cluster's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from botocore.exceptions import ClientError

from scripts.account.refusals import is_gone
from scripts.checks.finding import Check, Finding, Permission, Subject, Wanted, failed, passed, warned

SOON = timedelta(days=60)


def _run(subject: Subject) -> Iterator[Finding]:
    version = subject.wanted.stack.environment.kubernetes_version
    pages = subject.clients.eks.get_paginator("describe_cluster_versions").paginate(clusterVersions=[version])
    found = [each for page in pages for each in page["clusterVersions"]]
    if not found:
        yield failed(f"EKS has no Kubernetes {version}", "Set environment.kubernetes_version to one that it has.")
    for each in found:
        end, status = each.get("endOfStandardSupportDate"), each.get("versionStatus", "")
        if status != "STANDARD_SUPPORT":
            yield failed(
                f"Kubernetes {version} is in {status.replace('_', ' ').lower() or 'no support'}: six times the price",
                "Set environment.kubernetes_version to a newer one and run `pulumi up`.",
            )
        elif end is not None and end - datetime.now(UTC) < SOON:
            yield warned(f"standard support of {version} ends on {end:%Y-%m-%d}", "Plan the upgrade now.")
        else:
            yield passed(f"Kubernetes {version} is in standard support" + (f" until {end:%Y-%m-%d}" if end else ""))
    if subject.wanted.specs is not None:
        yield _cluster(subject, version)


def _cluster(subject: Subject, version: str) -> Finding:
    name, environment = subject.wanted.cluster, subject.wanted.stack.environment_name
    try:
        cluster = subject.clients.eks.describe_cluster(name=name)["cluster"]
    except ClientError as error:
        if not is_gone(error):
            raise
        return failed(f"there is no cluster {name}", f"First: pulumi up --stack {environment}")
    if cluster.get("status") != "ACTIVE":
        return warned(f"cluster {name} is {cluster.get('status')}", "Wait until it is ACTIVE.")
    if cluster.get("version") != version:
        return warned(
            f"cluster {name} runs {cluster.get('version')}, its settings say {version}",
            f"pulumi up --stack {environment}",
        )
    return passed(f"cluster {name} is active, Kubernetes {version}")


def _permissions(wanted: Wanted) -> Sequence[Permission]:
    versions = Permission(actions=("eks:DescribeClusterVersions",))
    if wanted.specs is None:
        return (versions,)
    arn = f"arn:{wanted.partition}:eks:{wanted.region}:{wanted.stack.environment.account}:cluster/{wanted.cluster}"
    return (versions, Permission(actions=("eks:DescribeCluster",), resources=(arn,)))


CHECK = Check(name="Kubernetes version", permissions=_permissions, run=_run)
