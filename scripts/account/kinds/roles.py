"""IAM roles: free, but a leftover one may still do what it could."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account.found import FREE, Facts, Kind
from scripts.account.ownership import Ours, Owners, Verdict, tags_of
from scripts.account.session import Clients

if TYPE_CHECKING:
    from mypy_boto3_iam.type_defs import RoleDetailTypeDef


def _listed(clients: Clients) -> Iterator[RoleDetailTypeDef]:
    # ListRoles leaves the tags out; this operation brings them for a whole page of roles at once.
    for page in clients.iam.get_paginator("get_account_authorization_details").paginate(Filter=["Role"]):
        yield from page["RoleDetailList"]


def _verdict(role: RoleDetailTypeDef, owners: Owners) -> Verdict:
    verdict = owners.by_tags(tags_of(role.get("Tags")))
    if isinstance(verdict, Ours):
        owners.roles[role.get("RoleName", "")] = verdict
    return verdict


def _facts(role: RoleDetailTypeDef, clients: Clients) -> Facts:
    del clients
    name = role.get("RoleName", "")
    return Facts(
        id=name,
        detail=role.get("Path", ""),
        created=role.get("CreateDate"),
        price=FREE,
        remove=f"iam delete-role --role-name {name}",
        pulumi_id=name,
    )


KIND = Kind(
    name="IAM role",
    rule="tags",
    actions=("iam:GetAccountAuthorizationDetails",),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
    everywhere=True,
)
