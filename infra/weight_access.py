"""Who may do what with staged weights: policy documents for the model that reads and for the tool that stages."""

from __future__ import annotations

from budget.staged import StagedModel


def reader_policy(*, partition: str, bucket: str, staged: StagedModel, kms_key_arn: str | None) -> dict[str, object]:
    """What a model's pods may do: list and read their own revision, and nothing else in the bucket.

    Listing is limited by prefix, so that a pod never learns of other models; `kms:Decrypt` only where a key is used.
    """
    arn = f"arn:{partition}:s3:::{bucket}"
    statements: list[dict[str, object]] = [
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
    return {"Version": "2012-10-17", "Statement": statements}
