"""Names and tags that follow from a stack: the same on every `up`, so that whatever is ours can be found again."""

from __future__ import annotations

from collections.abc import Sequence

from infra.stack_file import Stack

APPLICATION = "coldstart"

CACHE_PREFIX = "cache"
"""Of the bucket: compile caches, one for each image, engine arguments and GPU that ever ran."""


def partition_of(region: str) -> str:
    """AWS partition of a region, the second part of every ARN there."""
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"


def zone_names(region: str, letters: Sequence[str]) -> tuple[str, ...]:
    """Full names of zones: us-west-2 and a make us-west-2a."""
    return tuple(f"{region}{letter}" for letter in letters)


def cluster_name(stack: Stack) -> str:
    """Name of the environment's cluster in EKS."""
    return f"{APPLICATION}-{stack.environment_name}"


def bucket_name(stack: Stack) -> str:
    """Name of the environment's weight bucket."""
    settings = stack.environment
    return settings.bucket.name or f"{APPLICATION}-{stack.environment_name}-{settings.account}-{settings.region}"


def expires_after(stack: Stack) -> str | None:
    """When the stack's GPU nodes go to zero, as the settings say: a model's own setting overrides its environment's."""
    own = stack.model.cost.expires_after if stack.model else None
    return own or stack.environment.cost.expires_after


def environment_tags(stack: Stack) -> dict[str, str]:
    """Tags of everything in a stack: by them `audit` and `teardown` know what is ours."""
    return dict(stack.environment.tags) | {
        "application": APPLICATION,
        "environment": stack.environment_name,
        "model": stack.model.source.replace("/", ":") if stack.model else "none",
        "stack": stack.name,
        "owner": stack.environment.owner,
        "expiry": expires_after(stack) or "never",
    }
