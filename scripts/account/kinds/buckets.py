"""S3 buckets. A weight bucket outlives its environment on purpose, unless the settings say otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict

from botocore.exceptions import ClientError

from infra.accounts import APPLICATION
from scripts.account import dollars
from scripts.account.found import Facts, Kind
from scripts.account.ownership import Owners, Verdict, tags_of
from scripts.account.refusals import is_gone
from scripts.account.session import Clients

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import BucketTypeDef

WEIGHT_BUCKET_TAG = "bucket"
"""The program puts a weight bucket's own name here, and finds it again by it."""


class Tagged(TypedDict):
    """A bucket with its tags, which have to be asked for one by one."""

    bucket: BucketTypeDef
    tags: dict[str, str]


def name_shape(account: str, region: str) -> str:
    """The name of a weight bucket that the settings don't name."""
    return f"{APPLICATION}-{{}}-{account}-{region}"


def buckets_here(clients: Clients) -> Iterator[Tagged]:
    """Buckets of the clients' region, with their tags."""
    for page in clients.s3.get_paginator("list_buckets").paginate(BucketRegion=clients.region):
        for bucket in page.get("Buckets", []):
            name = bucket.get("Name", "")
            if bucket.get("BucketRegion") in (None, clients.region) and _region(clients, name) == clients.region:
                yield Tagged(bucket=bucket, tags=_tags(clients, name))


def verdict(tagged: Tagged, owners: Owners, account: str, region: str) -> Verdict:
    """Whose a bucket is."""
    by_name = owners.by_name(tagged["bucket"].get("Name", ""), name_shape(account, region))
    return owners.first(owners.by_tags(tagged["tags"]), by_name)


def stored_bytes(clients: Clients, bucket: str) -> int:
    """Bytes of all versions of all objects, counted, since the daily metric is a day old."""
    total = 0
    for page in clients.s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        total += sum(version.get("Size", 0) for version in page.get("Versions", []))
    return total


def _region(clients: Clients, bucket: str) -> str:
    try:
        location = str(clients.s3.get_bucket_location(Bucket=bucket).get("LocationConstraint") or "us-east-1")
    except ClientError as error:
        if is_gone(error):
            return ""
        raise
    return "eu-west-1" if location == "EU" else location


def _tags(clients: Clients, bucket: str) -> dict[str, str]:
    try:
        return tags_of(clients.s3.get_bucket_tagging(Bucket=bucket)["TagSet"])
    except ClientError as error:
        if is_gone(error):
            return {}
        raise


class Located(TypedDict):
    """A bucket and where it was found, for the name that it would have."""

    tagged: Tagged
    account: str
    region: str


def _listed(clients: Clients) -> Iterator[Located]:
    for tagged in buckets_here(clients):
        yield Located(tagged=tagged, account=clients.account, region=clients.region)


def _verdict(located: Located, owners: Owners) -> Verdict:
    return verdict(located["tagged"], owners, located["account"], located["region"])


def _facts(located: Located, clients: Clients) -> Facts:
    bucket, tags = located["tagged"]["bucket"], located["tagged"]["tags"]
    name = bucket.get("Name", "")
    size = stored_bytes(clients, name)
    weights = tags.get(WEIGHT_BUCKET_TAG) == name
    return Facts(
        id=name,
        detail=f"{dollars.in_gb(size)}" + (" of weights" if weights else ""),
        created=bucket.get("CreationDate"),
        price=dollars.stored("s3_standard_usd_per_gb_month", size),
        remove=f"s3 rb --force s3://{name}",
        pulumi_id=name,
        kept=weights,
    )


KIND = Kind(
    name="bucket",
    rule="tags, or named coldstart-<environment>-<account>-<region>",
    actions=(
        "s3:ListAllMyBuckets",
        "s3:GetBucketLocation",
        "s3:GetBucketTagging",
        "s3:ListBucketVersions",
    ),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
)
