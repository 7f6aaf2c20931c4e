"""KMS keys of the account's own, those that wait for their deletion included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict

from scripts.account import dollars
from scripts.account.found import Facts, Kind, Price
from scripts.account.ownership import Owners, Verdict, tags_of
from scripts.account.session import Clients

if TYPE_CHECKING:
    from mypy_boto3_kms.type_defs import KeyMetadataTypeDef

PENDING = "PendingDeletion"


class Tagged(TypedDict):
    """A key with its tags, which have to be asked for one by one."""

    key: KeyMetadataTypeDef
    tags: dict[str, str]


def _listed(clients: Clients) -> Iterator[Tagged]:
    for page in clients.kms.get_paginator("list_keys").paginate():
        for entry in page["Keys"]:
            name = entry.get("KeyId", "")
            key = clients.kms.describe_key(KeyId=name)["KeyMetadata"]
            if key.get("KeyManager") == "CUSTOMER":
                yield Tagged(key=key, tags=tags_of(clients.kms.list_resource_tags(KeyId=name)["Tags"]))


def _verdict(tagged: Tagged, owners: Owners) -> Verdict:
    return owners.by_tags(tagged["tags"])


def _facts(tagged: Tagged, clients: Clients) -> Facts:
    del clients
    key = tagged["key"]
    name, deletion = key["KeyId"], key.get("DeletionDate")
    pending = key.get("KeyState") == PENDING
    return Facts(
        id=name,
        detail=f"deleted on {deletion:%Y-%m-%d}" if pending and deletion else str(key.get("KeyState", "")).lower(),
        created=key.get("CreationDate"),
        price=Price(usd_per_hour=0.0, note="pending deletion: not billed")
        if pending
        else dollars.item("kms_key_usd_per_month"),
        remove=f"kms schedule-key-deletion --pending-window-in-days 7 --key-id {name}",
        pulumi_id=name,
    )


KIND = Kind(
    name="KMS key",
    rule="tags",
    actions=("kms:ListKeys", "kms:DescribeKey", "kms:ListResourceTags"),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
)
