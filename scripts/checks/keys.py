"""KMS: nodes whose volumes are encrypted with a key that Auto Scaling may not use never start, and say nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from scripts.account.refusals import is_gone
from scripts.account.session import Clients
from scripts.checks.finding import Check, Finding, Permission, Subject, Wanted, failed, passed

if TYPE_CHECKING:
    from mypy_boto3_kms.type_defs import KeyMetadataTypeDef

AUTOSCALING = "AWSServiceRoleForAutoScaling"
AWS_MANAGED = "alias/aws/ebs"


def _run(subject: Subject) -> Iterator[Finding]:
    yield _volumes(subject)
    own = subject.wanted.stack.environment.bucket.kms_key_arn
    if own:
        yield _bucket(subject.clients, own)


def _volumes(subject: Subject) -> Finding:
    """The key that encrypts volumes for which none is named: ours name none."""
    clients = subject.clients
    key = clients.ec2.get_ebs_default_kms_key_id()["KmsKeyId"]
    if key.endswith(AWS_MANAGED):
        return passed("volumes are encrypted with AWS's own key")
    metadata = _described(clients, key)
    if metadata is None:
        return failed(
            f"volumes are encrypted with {key}, which does not exist: nodes would never start",
            f"aws ec2 reset-ebs-default-kms-key-id --region {subject.wanted.region}, or modify-ebs-default-kms-key-id.",
        )
    if metadata.get("KeyManager") == "AWS":
        return passed("volumes are encrypted with AWS's own key")
    arn = metadata.get("Arn", key)
    role = f":role/aws-service-role/autoscaling.amazonaws.com/{AUTOSCALING}"
    if metadata.get("KeyState") != "Enabled":
        return failed(f"volumes are encrypted with {arn}, which is {metadata.get('KeyState')}", "Enable the key.")
    granted = any(
        grant.get("GranteePrincipal", "").endswith(role)
        for page in clients.kms.get_paginator("list_grants").paginate(KeyId=arn)
        for grant in page["Grants"]
    )
    if granted or role in clients.kms.get_key_policy(KeyId=arn, PolicyName="default").get("Policy", ""):
        return passed(f"volumes are encrypted with {arn}, which Auto Scaling may use")
    account = subject.account.id
    return failed(
        f"volumes are encrypted with {arn}, which Auto Scaling may not use: nodes would never start",
        f"aws kms create-grant --key-id {arn} --grantee-principal arn:{subject.wanted.partition}:iam::{account}{role} "
        "--operations Encrypt Decrypt ReEncryptFrom ReEncryptTo GenerateDataKey GenerateDataKeyWithoutPlaintext "
        "DescribeKey CreateGrant",
    )


def _bucket(clients: Clients, arn: str) -> Finding:
    metadata = _described(clients, arn)
    if metadata is None:
        return failed(f"{arn} does not exist", "Correct environment.bucket.kms_key_arn.")
    if metadata.get("KeyState") != "Enabled":
        return failed(f"{arn} is {metadata.get('KeyState')}: weights could not be read", "Enable the key.")
    return passed("the key of the bucket is enabled")


def _described(clients: Clients, key: str) -> KeyMetadataTypeDef | None:
    """What KMS knows of a key; None when there is no such key."""
    try:
        return clients.kms.describe_key(KeyId=key)["KeyMetadata"]
    except ClientError as error:
        if not is_gone(error):
            raise
        return None


def _permissions(wanted: Wanted) -> Sequence[Permission]:
    account = wanted.stack.environment.account
    keys = f"arn:{wanted.partition}:kms:{wanted.region}:{account}:key/*"
    own = wanted.stack.environment.bucket.kms_key_arn
    return (
        Permission(actions=("ec2:GetEbsDefaultKmsKeyId",)),
        Permission(
            actions=("kms:DescribeKey", "kms:GetKeyPolicy", "kms:ListGrants"),
            resources=tuple(dict.fromkeys([keys, *([own] if own else [])])),
        ),
    )


CHECK = Check(name="keys", permissions=_permissions, run=_run)
