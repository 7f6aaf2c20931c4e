"""Secrets, such as those that a pull-through rule signs in with upstream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scripts.account import dollars
from scripts.account.found import Facts, Kind, Price
from scripts.account.ownership import Owners, Verdict, tags_of
from scripts.account.session import Clients

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager.type_defs import SecretListEntryTypeDef

NAME = "ecr-pullthroughcache/coldstart-{}"


def _listed(clients: Clients) -> Iterator[SecretListEntryTypeDef]:
    for page in clients.secrets.get_paginator("list_secrets").paginate(IncludePlannedDeletion=True):
        yield from page["SecretList"]


def _verdict(secret: SecretListEntryTypeDef, owners: Owners) -> Verdict:
    return owners.first(owners.by_tags(tags_of(secret.get("Tags"))), owners.by_name(secret.get("Name", ""), NAME))


def _facts(secret: SecretListEntryTypeDef, clients: Clients) -> Facts:
    del clients
    name, deleted = secret.get("Name", ""), secret.get("DeletedDate")
    return Facts(
        id=name,
        detail=f"deleted on {deleted:%Y-%m-%d}" if deleted else "in use",
        created=secret.get("CreatedDate"),
        price=Price(usd_per_hour=0.0, note="marked for deletion: not billed")
        if deleted
        else dollars.item("secret_usd_per_month"),
        remove=f"secretsmanager delete-secret --recovery-window-in-days 7 --secret-id {name}",
        pulumi_id=secret.get("ARN"),
    )


KIND = Kind(
    name="secret",
    rule="tags, or named ecr-pullthroughcache/coldstart-<environment>",
    actions=("secretsmanager:ListSecrets",),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
)
