"""Rules of names: what follows from a stack's name must fit what AWS and Kubernetes accept."""

from __future__ import annotations

import re
from collections.abc import Iterator

from budget.problems import Problem
from infra.accounts import bucket_name
from infra.stack_file import Stack

SUFFIX_CHARACTERS = 8
"""What the engine appends to names it invents: a dash and seven hex digits."""
NODE_GROUP_CHARACTERS, ROLE_CHARACTERS, BUCKET_CHARACTERS = 63, 64, 63
LONGEST_ROLE_PART = len("-autoscaler")
"""The longest that the program itself appends to a stack's name before a role's suffix."""
NODE_NAMESPACE = "-node"
"""The node cache's namespace is the model's with this behind it."""
TAKEN = frozenset(
    {"default", "keda", "kube-system", "kube-public", "kube-node-lease", "coldstart", "coldstart-staging"}
)
"""Namespaces that are somebody else's: a model destroyed alone would take them with it."""
RESERVED_BUCKET = re.compile(r"^(xn--|sthree-|amzn-s3-demo-)|(-s3alias|--ol-s3|--x-s3|--table-s3)$")
"""Prefixes and suffixes that S3 keeps to itself (S3 user guide, bucket naming rules)."""


def problems(stack: Stack) -> Iterator[Problem]:
    """What is wrong with the names that follow from a stack."""
    room = min(NODE_GROUP_CHARACTERS, ROLE_CHARACTERS - LONGEST_ROLE_PART) - SUFFIX_CHARACTERS
    if len(stack.name) > room:
        yield Problem(stack.name, f"{len(stack.name)} characters", f"Roles and node groups leave room for {room}.")
    bucket = bucket_name(stack)
    if len(bucket) > BUCKET_CHARACTERS:
        yield Problem(
            "environment.bucket.name",
            f"{bucket} has {len(bucket)} characters, S3 allows {BUCKET_CHARACTERS}",
            "Name the bucket yourself, or the environment shorter.",
        )
    if RESERVED_BUCKET.search(bucket):
        yield Problem(
            "environment.bucket.name", f"{bucket} is of a form that S3 keeps to itself", "Choose another name."
        )
    if stack.model is not None:
        yield from _slug(stack)


def _slug(stack: Stack) -> Iterator[Problem]:
    if not re.match(r"^[a-z]", stack.slug):
        yield Problem(
            stack.name,
            f"names a Service {stack.slug!r}, which must begin with a letter",
            "Put a letter before the digit.",
        )
    if stack.slug in TAKEN or stack.slug.endswith(NODE_NAMESPACE):
        yield Problem(
            stack.name,
            f"would put the model into the namespace {stack.slug!r}, which is not its own",
            f"Choose a name that is none of {', '.join(sorted(TAKEN))} and does not end in {NODE_NAMESPACE}.",
        )
