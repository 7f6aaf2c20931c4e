"""Repositories of a private ECR registry: made when they are missing, immutable and scanned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from scripts.failure import Failure
from scripts.registry import ECR, Reference

if TYPE_CHECKING:
    from mypy_boto3_ecr import ECRClient


def owner_of(registry: str) -> tuple[str, str] | None:
    """Account and region of an ECR registry; None for any other registry."""
    found = ECR.match(registry)
    return (found["account"], found["region"]) if found else None


def ensure_repository(client: ECRClient, reference: Reference, tags: Mapping[str, str]) -> bool:
    """Makes the repository of a reference unless it is there. Returns whether it was made.

    Tags are immutable there: a tag that a node may pull never changes under it. Every push is scanned.

    Raises:
        Failure: no access, or ECR refuses.
    """
    try:
        client.describe_repositories(repositoryNames=[reference.repository])
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") != "RepositoryNotFoundException":
            raise Failure(f"{reference}: ECR refuses to look: {error}") from error
    except BotoCoreError as error:
        raise Failure(f"{reference}: no access to ECR: {error}") from error
    else:
        return False
    try:
        client.create_repository(
            repositoryName=reference.repository,
            imageTagMutability="IMMUTABLE",
            imageScanningConfiguration={"scanOnPush": True},
            encryptionConfiguration={"encryptionType": "AES256"},
            tags=[{"Key": key, "Value": value} for key, value in tags.items()],
        )
    except (ClientError, BotoCoreError) as error:
        raise Failure(f"{reference}: ECR refuses to make the repository: {error}") from error
    return True
