"""Who may do what with staged weights: policy documents for the model that reads and for the tool that stages."""

from __future__ import annotations

from typing import cast

from budget.staged import MANIFESTS, MODELS, StagedModel

EVERY_MODEL = "*"
"""In place of a model's name: whoever stages for a whole environment."""

Statement = dict[str, object]


def reader_policy(*, partition: str, bucket: str, staged: StagedModel, kms_key_arn: str | None) -> dict[str, object]:
    """What a model's pods may do: list and read their own revision, and nothing else in the bucket.

    Listing is limited by prefix, so that a pod never learns of other models; `kms:Decrypt` only where a key is used.
    """
    arn = _arn(partition, bucket)
    statements: list[Statement] = [
        {
            "Sid": "ListOwnPrefix",
            "Effect": "Allow",
            "Action": ["s3:ListBucket"],
            "Resource": arn,
            "Condition": {"StringLike": {"s3:prefix": [staged.prefix, f"{staged.prefix}*"]}},
        },
        {
            "Sid": "ReadOwnWeights",
            "Effect": "Allow",
            "Action": ["s3:GetObject"],
            "Resource": [f"{arn}/{staged.prefix}*", f"{arn}/{staged.manifest_key}"],
        },
    ]
    if kms_key_arn:
        statements.append({"Sid": "Decrypt", "Effect": "Allow", "Action": ["kms:Decrypt"], "Resource": kms_key_arn})
    return _document(statements)


def model_policy(
    *, partition: str, bucket: str, staged: StagedModel, cache_prefix: str | None, kms_key_arn: str | None
) -> dict[str, object]:
    """What a model's pods may do: read their own revision and, where compile artefacts are kept, read and write those.

    Archives of compile artefacts hold code that runs, so no other model's role may write this prefix.
    """
    document = reader_policy(partition=partition, bucket=bucket, staged=staged, kms_key_arn=kms_key_arn)
    if cache_prefix is None:
        return document
    statements: list[Statement] = [
        *cast("list[Statement]", document["Statement"]),
        {
            "Sid": "KeepCompileCache",
            "Effect": "Allow",
            "Action": ["s3:GetObject", "s3:PutObject"],
            "Resource": [f"{_arn(partition, bucket)}/{cache_prefix}*"],
        },
    ]
    if kms_key_arn:
        statements.append(
            {"Sid": "Encrypt", "Effect": "Allow", "Action": ["kms:GenerateDataKey"], "Resource": kms_key_arn}
        )
    return _document(statements)


def stager_policy(*, partition: str, bucket: str, model: str, kms_key_arn: str | None) -> dict[str, object]:
    """What staging may do: fill and read back the prefix of one model, finish or abort its uploads, write its manifest.

    It deletes nothing: an object that is there is never overwritten, and what failed is an upload that is aborted.

    Args:
        partition: `aws`, `aws-cn`, `aws-us-gov`.
        bucket: the weight bucket.
        model: `ORG/NAME`, or `EVERY_MODEL`.
        kms_key_arn: of the key that encrypts the bucket; None without one.
    """
    arn = _arn(partition, bucket)
    objects, manifests = f"{MODELS}/{model}/*", f"{MANIFESTS}/{model}/*"
    statements: list[Statement] = [
        {
            "Sid": "SeeWhereTheBucketIs",
            "Effect": "Allow",
            # ListBucketMultipartUploads knows no condition on the prefix (service authorization reference of S3).
            "Action": ["s3:GetBucketLocation", "s3:ListBucketMultipartUploads"],
            "Resource": arn,
        },
        {
            "Sid": "ListModel",
            "Effect": "Allow",
            "Action": ["s3:ListBucket"],
            "Resource": arn,
            "Condition": {"StringLike": {"s3:prefix": _prefixes(model)}},
        },
        {
            "Sid": "FillModel",
            "Effect": "Allow",
            "Action": [
                "s3:AbortMultipartUpload",
                "s3:GetObject",
                "s3:ListMultipartUploadParts",
                "s3:PutObject",
            ],
            "Resource": f"{arn}/{objects}",
        },
        {
            "Sid": "PublishManifest",
            "Effect": "Allow",
            "Action": ["s3:GetObject", "s3:PutObject"],
            "Resource": f"{arn}/{manifests}",
        },
    ]
    if kms_key_arn:
        # A multipart upload to an encrypted bucket decrypts its own parts when it is completed.
        actions = ["kms:Decrypt", "kms:GenerateDataKey"]
        statements.append({"Sid": "UseKey", "Effect": "Allow", "Action": actions, "Resource": kms_key_arn})
    return _document(statements)


def _prefixes(model: str) -> list[str]:
    return [f"{MODELS}/{model}/*", f"{MANIFESTS}/{model}/*"]


def _arn(partition: str, bucket: str) -> str:
    return f"arn:{partition}:s3:::{bucket}"


def _document(statements: list[Statement]) -> dict[str, object]:
    return {"Version": "2012-10-17", "Statement": statements}
