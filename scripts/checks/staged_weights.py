"""The weights: a manifest, written last, says that all of them are in the bucket; the bucket is in the same region."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from botocore.exceptions import ClientError

from scripts.account.refusals import is_gone
from scripts.checks.finding import Check, Finding, Permission, Subject, Wanted, failed, passed


def _run(subject: Subject) -> Iterator[Finding]:
    wanted = subject.wanted
    if wanted.specs is None:
        return
    s3, bucket = subject.clients.s3, wanted.bucket
    try:
        location = str(s3.get_bucket_location(Bucket=bucket).get("LocationConstraint") or "us-east-1")
    except ClientError as error:
        if not is_gone(error):
            raise
        yield failed(f"there is no bucket {bucket}", f"First: pulumi up --stack {wanted.stack.environment_name}")
        return
    if location != wanted.region:
        yield failed(
            f"bucket {bucket} is in {location}, the cluster in {wanted.region}: the streamer follows no redirect",
            "Set environment.bucket.name to a bucket of the region.",
        )
        return
    staged = wanted.specs.staged
    try:
        s3.head_object(Bucket=bucket, Key=staged.manifest_key)
    except ClientError as error:
        if not is_gone(error):
            raise
        yield failed(
            f"{staged} is not staged: {staged.manifest_uri(bucket)} is missing", f"coldstart stage {wanted.stack.name}"
        )
        return
    yield passed(f"{staged} is staged in {bucket}, in the region of the cluster")


def _permissions(wanted: Wanted) -> Sequence[Permission]:
    if wanted.specs is None:
        return ()
    arn = f"arn:{wanted.partition}:s3:::{wanted.bucket}"
    return (
        # ListBucket makes S3 answer "not there" instead of "not allowed" for an object that is missing.
        Permission(actions=("s3:GetBucketLocation", "s3:ListBucket"), resources=(arn,)),
        Permission(actions=("s3:GetObject",), resources=(f"{arn}/{wanted.specs.staged.manifest_key}",)),
    )


CHECK = Check(name="weights", permissions=_permissions, run=_run)
