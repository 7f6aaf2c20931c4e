"""The weight bucket: private, encrypted, and still there after the environment is gone."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.accounts import CACHE_PREFIX

ABORT_UPLOADS_DAYS = 2
"""A staging that has not finished by then never will; its parts bill until they are aborted."""
CACHE_DAYS = 180
"""A cache that is gone costs one compilation, and the start that pays for it keeps the next."""


@dataclass(frozen=True, kw_only=True)
class WeightBucketArgs:
    """What decides the bucket; all plain.

    Attributes:
        bucket: its name, the same on every `up`.
        exists: a bucket of this name with our tags is already in the account, so it is adopted instead of created.
        keep: it outlives `pulumi destroy`.
        kms_key_arn: encrypts objects; None is S3's own AES-256.
    """

    bucket: str
    partition: str
    exists: bool
    keep: bool
    kms_key_arn: str | None


class WeightBucket(pulumi.ComponentResource):
    """Bucket and everything that guards it. Bucket and guards are kept or destroyed together."""

    name: pulumi.Output[str]
    arn: pulumi.Output[str]

    def __init__(self, name: str, args: WeightBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("coldstart:weights:WeightBucket", name, None, opts)
        bucket = aws.s3.Bucket(
            name,
            bucket=args.bucket,
            # By this tag the next `up` finds a bucket that an earlier one left.
            tags={"bucket": args.bucket},
            opts=pulumi.ResourceOptions(
                parent=self,
                retain_on_delete=args.keep,
                import_=args.bucket if args.exists else None,
                # A kept bucket wears the tags of the day it was made; adopting it must not depend on them.
                ignore_changes=["tags", "tagsAll", "forceDestroy"],
            ),
        )
        guard = pulumi.ResourceOptions(parent=self, retain_on_delete=args.keep)
        self._guards(name, bucket, args, guard)
        self.name, self.arn = bucket.bucket, bucket.arn
        self.register_outputs({"name": self.name, "arn": self.arn})

    def _guards(self, name: str, bucket: aws.s3.Bucket, args: WeightBucketArgs, guard: pulumi.ResourceOptions) -> None:
        block = aws.s3.BucketPublicAccessBlock(
            name,
            bucket=bucket.bucket,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=guard,
        )
        aws.s3.BucketOwnershipControls(
            name, bucket=bucket.bucket, rule={"object_ownership": "BucketOwnerEnforced"}, opts=guard
        )
        aws.s3.BucketServerSideEncryptionConfiguration(
            name, bucket=bucket.bucket, rules=[_encryption(args.kms_key_arn)], opts=guard
        )
        aws.s3.BucketLifecycleConfiguration(
            name,
            bucket=bucket.bucket,
            rules=[
                {
                    "id": "abort-unfinished-uploads",
                    "status": "Enabled",
                    "filter": {"prefix": ""},
                    "abort_incomplete_multipart_upload": {"days_after_initiation": ABORT_UPLOADS_DAYS},
                },
                {
                    "id": "forget-old-compile-caches",
                    "status": "Enabled",
                    "filter": {"prefix": f"{CACHE_PREFIX}/"},
                    "expiration": {"days": CACHE_DAYS},
                },
            ],
            opts=guard,
        )
        aws.s3.BucketPolicy(
            name,
            bucket=bucket.bucket,
            policy=json.dumps(tls_only(args.partition, args.bucket)),
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=args.keep, depends_on=[block]),
        )


def _encryption(kms_key_arn: str | None) -> aws.s3.BucketServerSideEncryptionConfigurationRuleArgsDict:
    if kms_key_arn is None:
        return {"apply_server_side_encryption_by_default": {"sse_algorithm": "AES256"}}
    return {
        "apply_server_side_encryption_by_default": {"sse_algorithm": "aws:kms", "kms_master_key_id": kms_key_arn},
        "bucket_key_enabled": True,
    }


def tls_only(partition: str, bucket: str) -> dict[str, object]:
    """Bucket policy that refuses every request without TLS."""
    arn = f"arn:{partition}:s3:::{bucket}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "TlsOnly",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": [arn, f"{arn}/*"],
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ],
    }
