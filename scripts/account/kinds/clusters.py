"""EKS clusters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account import dollars
from scripts.account.found import Facts, Kind
from scripts.account.ownership import Owners, Verdict
from scripts.account.session import Clients

if TYPE_CHECKING:
    from mypy_boto3_eks.type_defs import ClusterTypeDef

EXTENDED = "EXTENDED"


def _listed(clients: Clients) -> Iterator[ClusterTypeDef]:
    for page in clients.eks.get_paginator("list_clusters").paginate():
        for name in page["clusters"]:
            yield clients.eks.describe_cluster(name=name)["cluster"]


def _verdict(cluster: ClusterTypeDef, owners: Owners) -> Verdict:
    return owners.by_tags(cluster.get("tags", {}))


def _facts(cluster: ClusterTypeDef, clients: Clients) -> Facts:
    del clients
    name = cluster.get("name", "")
    extended = cluster.get("upgradePolicy", {}).get("supportType") == EXTENDED
    return Facts(
        id=name,
        detail=f"Kubernetes {cluster.get('version', '?')}, {cluster.get('status', '?').lower()}",
        created=cluster.get("createdAt"),
        price=dollars.item(
            "eks_control_plane_usd_per_hour",
            note="six times as much once its version is in extended support" if extended else "",
        ),
        remove=f"eks delete-cluster --name {name}",
        pulumi_id=name,
    )


KIND = Kind(
    name="EKS cluster",
    rule="tags",
    actions=("eks:ListClusters", "eks:DescribeCluster"),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
)
