"""The cluster's API and the controllers in it: without KEDA nothing asks for a replica, without the other no node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, cast

from infra.environment_settings import Presence
from scripts.checks.finding import Check, Finding, Permission, Subject, Wanted, failed, passed, unknown, warned
from scripts.cluster.api import KubernetesApi, Refused, Unreachable

DEPLOYMENTS = "/apis/apps/v1/deployments"
SCALED_OBJECTS = "/apis/keda.sh/v1alpha1"
KEDA = ("keda-operator",)
AUTOSCALERS = ("cluster-autoscaler", "aws-cluster-autoscaler")
NAME_LABEL = "app.kubernetes.io/name"
"""Label by which the charts of both name their deployments."""


def _run(subject: Subject) -> Iterator[Finding]:
    wanted = subject.wanted
    if wanted.specs is None:
        return
    api = subject.api()
    if api is None:
        yield failed("there is no cluster yet", f"First: pulumi up --stack {wanted.stack.environment_name}")
        return
    try:
        yield from _inside(api, subject)
    except Unreachable as error:
        yield failed(str(error), "Connect to its network, or add your address to environment.access.public_cidrs.")
    except Refused as refused:
        if refused.code not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise
        yield unknown(
            str(refused),
            f"Add the role of {subject.account.arn} to environment.access.admin_roles, and run pulumi up --stack "
            f"{wanted.stack.environment_name}.",
        )


def _inside(api: KubernetesApi, subject: Subject) -> Iterator[Finding]:
    version = (api.get("/version") or {}).get("gitVersion", "?")
    yield passed(f"the Kubernetes API answers, {version}")
    yield from _keda(api, subject)
    yield from _autoscaler(api, subject)


def _keda(api: KubernetesApi, subject: Subject) -> Iterator[Finding]:
    fix = _fix(subject, "keda", subject.wanted.stack.environment.addons.keda)
    if api.get(SCALED_OBJECTS) is None:
        yield failed("KEDA is not there: the cluster knows no ScaledObject", fix)
        return
    yield _running(api, "KEDA", KEDA, fix)


def _autoscaler(api: KubernetesApi, subject: Subject) -> Iterator[Finding]:
    if api.get("/apis/karpenter.sh/v1") is not None:
        yield passed("Karpenter sizes the nodes")
        return
    yield _running(
        api,
        "the cluster autoscaler",
        AUTOSCALERS,
        _fix(subject, "cluster_autoscaler", subject.wanted.stack.environment.addons.cluster_autoscaler),
    )


def _running(api: KubernetesApi, what: str, names: Sequence[str], fix: str) -> Finding:
    selector = f"{NAME_LABEL} in ({','.join(names)})"
    found = [cast("dict[str, Any]", each) for each in api.items(DEPLOYMENTS, labelSelector=selector)]
    if not found:
        return failed(f"{what} is not there", fix)
    available = sum(_available(each) for each in found)
    where = f"{found[0]['metadata']['namespace']}/{found[0]['metadata']['name']}"
    if not available:
        return warned(
            f"{what} ({where}) has no pod that is available",
            f"kubectl describe deployment -n {where.replace('/', ' ')}",
        )
    return passed(f"{what} runs ({where})")


def _available(deployment: dict[str, Any]) -> int:
    status = cast("dict[str, Any]", deployment.get("status") or {})
    return int(status.get("availableReplicas") or 0)


def _fix(subject: Subject, addon: str, presence: Presence) -> str:
    environment = subject.wanted.stack.environment_name
    if presence is Presence.INSTALL:
        return f"pulumi up --stack {environment} installs it."
    return f"Install it, or set environment.addons.{addon}: install and run pulumi up --stack {environment}."


def _permissions(wanted: Wanted) -> Sequence[Permission]:
    if wanted.specs is None:
        return ()
    arn = f"arn:{wanted.partition}:eks:{wanted.region}:{wanted.stack.environment.account}:cluster/{wanted.cluster}"
    return (Permission(actions=("eks:DescribeCluster",), resources=(arn,)),)


CHECK = Check(name="controllers", permissions=_permissions, run=_run)
