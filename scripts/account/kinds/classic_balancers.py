"""Classic load balancers: what the cloud provider inside Kubernetes makes for a Service without a controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict

from scripts.account import dollars
from scripts.account.found import Facts, Kind
from scripts.account.kinds.load_balancers import TAGS_AT_ONCE
from scripts.account.ownership import Owners, Verdict, tags_of
from scripts.account.session import Clients

if TYPE_CHECKING:
    from mypy_boto3_elb.type_defs import LoadBalancerDescriptionTypeDef


class Tagged(TypedDict):
    """A load balancer with its tags, which have to be asked for apart."""

    balancer: LoadBalancerDescriptionTypeDef
    tags: dict[str, str]


def _listed(clients: Clients) -> Iterator[Tagged]:
    for page in clients.elb.get_paginator("describe_load_balancers").paginate():
        balancers = page["LoadBalancerDescriptions"]
        for start in range(0, len(balancers), TAGS_AT_ONCE):
            some = balancers[start : start + TAGS_AT_ONCE]
            answer = clients.elb.describe_tags(LoadBalancerNames=[each.get("LoadBalancerName", "") for each in some])
            tags = {
                entry.get("LoadBalancerName", ""): tags_of(entry.get("Tags")) for entry in answer["TagDescriptions"]
            }
            for balancer in some:
                yield Tagged(balancer=balancer, tags=tags.get(balancer.get("LoadBalancerName", ""), {}))


def _verdict(tagged: Tagged, owners: Owners) -> Verdict:
    return owners.by_tags(tagged["tags"])


def _facts(tagged: Tagged, clients: Clients) -> Facts:
    del clients
    name = tagged["balancer"].get("LoadBalancerName", "")
    return Facts(
        id=name,
        detail=tagged["tags"].get("kubernetes.io/service-name", "classic"),
        created=tagged["balancer"].get("CreatedTime"),
        price=dollars.item("classic_load_balancer_usd_per_hour", note="plus the bytes it carries"),
        remove=f"elb delete-load-balancer --load-balancer-name {name}",
    )


def _remove(clients: Clients, name: str) -> None:
    clients.elb.delete_load_balancer(LoadBalancerName=name)


KIND = Kind(
    name="classic load balancer",
    rule="the cloud provider's tag kubernetes.io/cluster/<cluster>=owned",
    actions=("elasticloadbalancing:DescribeLoadBalancers", "elasticloadbalancing:DescribeTags"),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
    remove=_remove,
)
