"""Multipart uploads that nobody finished: their parts bill like objects, but no listing of a bucket shows them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TypedDict

from scripts.account import dollars
from scripts.account.found import Facts, Kind
from scripts.account.kinds.buckets import Tagged, buckets_here, verdict
from scripts.account.ownership import Owners, Verdict
from scripts.account.session import Clients


class Upload(TypedDict):
    """One upload, and the bucket it is in."""

    tagged: Tagged
    bucket: str
    key: str
    id: str
    initiated: datetime | None
    account: str
    region: str


def _listed(clients: Clients) -> Iterator[Upload]:
    for tagged in buckets_here(clients):
        bucket = tagged["bucket"].get("Name", "")
        for page in clients.s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
            for upload in page.get("Uploads", []):
                yield Upload(
                    tagged=tagged,
                    bucket=bucket,
                    key=upload.get("Key", ""),
                    id=upload.get("UploadId", ""),
                    initiated=upload.get("Initiated"),
                    account=clients.account,
                    region=clients.region,
                )


def _verdict(upload: Upload, owners: Owners) -> Verdict:
    return verdict(upload["tagged"], owners, upload["account"], upload["region"])


def _facts(upload: Upload, clients: Clients) -> Facts:
    bucket, key, name = upload["bucket"], upload["key"], upload["id"]
    size = 0
    for page in clients.s3.get_paginator("list_parts").paginate(Bucket=bucket, Key=key, UploadId=name):
        size += sum(part.get("Size", 0) for part in page.get("Parts", []))
    return Facts(
        id=f"{bucket}/{key}#{name}",
        detail=f"{dollars.in_gb(size)} sent",
        created=upload["initiated"],
        price=dollars.stored("s3_standard_usd_per_gb_month", size),
        remove=f"s3api abort-multipart-upload --bucket {bucket} --key {key} --upload-id {name}",
    )


KIND = Kind(
    name="unfinished upload",
    rule="it is in a bucket of ours",
    actions=(
        "s3:ListAllMyBuckets",
        "s3:GetBucketLocation",
        "s3:GetBucketTagging",
        "s3:ListBucketMultipartUploads",
        "s3:ListMultipartUploadParts",
    ),
    listed=_listed,
    verdict=_verdict,
    facts=_facts,
)
