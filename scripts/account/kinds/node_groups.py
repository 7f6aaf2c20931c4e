"""EKS node groups: free by themselves, their instances and volumes are counted apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account.found import FREE, Facts, Kind
from scripts.account.ownership import Owners, Verdict
from scripts.account.session import Clients

if TYPE_CHECKING:
    from mypy_boto3_eks.type_defs import NodegroupTypeDef


def _listed(clients: Clients) -> Iterator[NodegroupTypeDef]:
    for clusters in clients.eks.get_paginator("list_clusters").paginate():
        for cluster in clusters["clusters"]:
            for page in clients.eks.get_paginator("list_nodegroups").paginate(clusterName=cluster):
                for name in page["nodegroups"]:
                    yield clients.eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]


def _verdict(group: NodegroupTypeDef, owners: Owners) -> Verdict:
    return owners.by_tags(dict(group.get("tags", {})) | {"eks:cluster-name": group.get("clusterName", "")})


def _facts(group: NodegroupTypeDef, clients: Clients) -> Facts:
    del clients
    cluster, name = group.get("clusterName", ""), group.get("nodegroupName", "")
    sizes = group.get("scalingConfig", {})
    return Facts(
        id=f"{cluster}/{name}",
        detail=f"{sizes.get('desiredSize', '?')} of at most {sizes.get('maxSize', '?')} nodes",
        created=group.get("createdAt"),
        price=FREE,
        remove=f"eks delete-nodegroup --cluster-name {cluster} --nodegroup-name {name}",
        pulumi_id=f"{cluster}:{name}",
    )


KIND = Kind(
    name="EKS node group",
    rule="tags, or it is in a cluster of ours",
    actions=("eks:ListClusters", "eks:ListNodegroups", "eks:DescribeNodegroup"),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
)
