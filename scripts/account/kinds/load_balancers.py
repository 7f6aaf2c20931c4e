"""Load balancers (application, network, gateway), made by a controller for a Service or an Ingress."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict

from scripts.account import dollars
from scripts.account.found import Facts, Kind
from scripts.account.ownership import Owners, Verdict, tags_of
from scripts.account.session import Clients

if TYPE_CHECKING:
    from mypy_boto3_elbv2.type_defs import LoadBalancerTypeDef

TAGS_AT_ONCE = 20
"""ARNs of one DescribeTags request (Elastic Load Balancing API reference)."""


class Tagged(TypedDict):
    """A load balancer with its tags, which have to be asked for apart."""

    balancer: LoadBalancerTypeDef
    tags: dict[str, str]


def tags_by_arn(clients: Clients, arns: list[str]) -> dict[str, dict[str, str]]:
    """Tags of load balancers or target groups."""
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(arns), TAGS_AT_ONCE):
        answer = clients.elbv2.describe_tags(ResourceArns=arns[start : start + TAGS_AT_ONCE])
        for entry in answer["TagDescriptions"]:
            found[entry.get("ResourceArn", "")] = tags_of(entry.get("Tags"))
    return found


def _listed(clients: Clients) -> Iterator[Tagged]:
    for page in clients.elbv2.get_paginator("describe_load_balancers").paginate():
        balancers = page["LoadBalancers"]
        tags = tags_by_arn(clients, [each.get("LoadBalancerArn", "") for each in balancers])
        for balancer in balancers:
            yield Tagged(balancer=balancer, tags=tags.get(balancer.get("LoadBalancerArn", ""), {}))


def _verdict(tagged: Tagged, owners: Owners) -> Verdict:
    return owners.by_tags(tagged["tags"])


def _facts(tagged: Tagged, clients: Clients) -> Facts:
    del clients
    balancer = tagged["balancer"]
    arn, kind = balancer.get("LoadBalancerArn", ""), str(balancer.get("Type", ""))
    return Facts(
        id=arn,
        detail=f"{balancer.get('LoadBalancerName', '')}, {kind}",
        created=balancer.get("CreatedTime"),
        price=dollars.item(
            "gateway_load_balancer_usd_per_hour" if kind == "gateway" else "load_balancer_usd_per_hour",
            note="plus capacity units of its traffic",
        ),
        remove=f"elbv2 delete-load-balancer --load-balancer-arn {arn}",
    )


def _remove(clients: Clients, arn: str) -> None:
    clients.elbv2.delete_load_balancer(LoadBalancerArn=arn)


KIND = Kind(
    name="load balancer",
    rule="the controller's tag elbv2.k8s.aws/cluster or kubernetes.io/cluster/<cluster>=owned",
    actions=("elasticloadbalancing:DescribeLoadBalancers", "elasticloadbalancing:DescribeTags"),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
    remove=_remove,
)
