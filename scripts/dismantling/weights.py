"""The weights of an environment: kept by a teardown, or removed knowingly, version by version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from budget.problems import bad_input
from scripts.account.refusals import is_gone, told
from scripts.account.session import Clients
from scripts.deployed.state import State
from scripts.dismantling.stages import BUCKET
from scripts.failure import Failure
from scripts.waiting import Say

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

AT_ONCE = 1_000
"""Versions of one DeleteObjects request (S3 API reference)."""


def refuse_full(clients: Clients, states: Sequence[State], *, purge: str | None) -> None:
    """A bucket that is not kept can't be destroyed while it holds weights: said before anything is changed.

    Raises:
        BadInput: such a bucket is not empty, and nobody asked to purge it.
    """
    if purge is not None:
        return
    for state in states:
        for resource in state.of_type(BUCKET):
            if not resource.retain and any(True for _ in _versions(clients, resource.id)):
                raise bad_input(
                    "environment.bucket.keep",
                    f"false, and {resource.id} holds weights",
                    "Add --purge-weights to delete them; or set keep: true, run `pulumi up`, and tear down then.",
                )


def empty(clients: Clients, bucket: str, *, say: Say) -> None:
    """Removes every version of every object, and every unfinished upload.

    Raises:
        Failure: something could not be deleted.
    """
    with told(f"emptying bucket {bucket}"):
        for page in clients.s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket):
            for upload in page.get("Uploads", []):
                clients.s3.abort_multipart_upload(
                    Bucket=bucket, Key=upload.get("Key", ""), UploadId=upload.get("UploadId", "")
                )
        removed = 0
        batch: list[ObjectIdentifierTypeDef] = []
        for version in _versions(clients, bucket):
            batch.append(version)
            if len(batch) == AT_ONCE:
                removed += _delete(clients, bucket, batch)
                say(f"{bucket}: {removed:,} versions of objects deleted")
                batch = []
        if batch:
            removed += _delete(clients, bucket, batch)
    say(f"{bucket}: {removed:,} versions of objects deleted")


def purge(clients: Clients, bucket: str, *, say: Say) -> None:
    """Empties a bucket and deletes it; one that is gone already is fine.

    Raises:
        Failure: something could not be deleted.
    """
    with told(f"deleting bucket {bucket}"):
        try:
            clients.s3.head_bucket(Bucket=bucket)
        except ClientError as error:
            if is_gone(error):
                return
            raise
    empty(clients, bucket, say=say)
    with told(f"deleting bucket {bucket}"):
        clients.s3.delete_bucket(Bucket=bucket)
    say(f"{bucket}: deleted")


def _versions(clients: Clients, bucket: str) -> Iterator[ObjectIdentifierTypeDef]:
    with told(f"listing bucket {bucket}"):
        try:
            for page in clients.s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
                for entry in [*page.get("Versions", []), *page.get("DeleteMarkers", [])]:
                    yield {"Key": entry.get("Key", ""), "VersionId": entry.get("VersionId", "")}
        except ClientError as error:
            if not is_gone(error):
                raise


def _delete(clients: Clients, bucket: str, batch: Sequence[ObjectIdentifierTypeDef]) -> int:
    answer = clients.s3.delete_objects(Bucket=bucket, Delete={"Objects": list(batch), "Quiet": True})
    for failed in answer.get("Errors", []):
        raise Failure(
            f"s3://{bucket}/{failed.get('Key')} can't be deleted: {failed.get('Code')}: {failed.get('Message')}"
        )
    return len(batch)
