"""Instance profiles: EKS makes one for each node group, without tags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account.found import FREE, Facts, Kind
from scripts.account.ownership import Owners, Verdict, tags_of
from scripts.account.session import Clients

if TYPE_CHECKING:
    from mypy_boto3_iam.type_defs import InstanceProfileTypeDef


def _listed(clients: Clients) -> Iterator[InstanceProfileTypeDef]:
    for page in clients.iam.get_paginator("list_instance_profiles").paginate():
        yield from page["InstanceProfiles"]


def _verdict(profile: InstanceProfileTypeDef, owners: Owners) -> Verdict:
    roles = [owners.roles[role["RoleName"]] for role in profile["Roles"] if role["RoleName"] in owners.roles]
    return owners.first(owners.by_tags(tags_of(profile.get("Tags"))), *roles)


def _facts(profile: InstanceProfileTypeDef, clients: Clients) -> Facts:
    del clients
    name = profile["InstanceProfileName"]
    return Facts(
        id=name,
        detail=f"of {', '.join(role['RoleName'] for role in profile['Roles']) or 'no role'}",
        created=profile["CreateDate"],
        price=FREE,
        remove=f"iam delete-instance-profile --instance-profile-name {name}",
    )


KIND = Kind(
    name="instance profile",
    rule="tags, or its role is ours",
    actions=("iam:ListInstanceProfiles",),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
    everywhere=True,
)
