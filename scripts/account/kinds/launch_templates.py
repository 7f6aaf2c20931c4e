"""Launch templates: free; a node group has ours, and a copy that EKS makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account.found import FREE, Facts, Kind
from scripts.account.kinds.tagged import by_tags
from scripts.account.session import PAGES, Clients

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import LaunchTemplateTypeDef


def _listed(clients: Clients) -> Iterator[LaunchTemplateTypeDef]:
    for page in clients.ec2.get_paginator("describe_launch_templates").paginate(PaginationConfig=PAGES):
        yield from page["LaunchTemplates"]


def _facts(template: LaunchTemplateTypeDef, clients: Clients) -> Facts:
    del clients
    name = template.get("LaunchTemplateId", "")
    eks = template.get("LaunchTemplateName", "").startswith("eks-")
    return Facts(
        id=name,
        detail=template.get("LaunchTemplateName", ""),
        created=template.get("CreateTime"),
        price=FREE,
        remove=f"ec2 delete-launch-template --launch-template-id {name}",
        pulumi_id=None if eks else name,
    )


KIND = Kind(
    name="launch template",
    rule="tags, or eks:cluster-name names a cluster of ours",
    actions=("ec2:DescribeLaunchTemplates",),
    listed=_listed,
    verdict=by_tags,
    facts=_facts,
)
