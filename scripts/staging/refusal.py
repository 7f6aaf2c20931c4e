"""What S3 refused, in words: which action, on what, and what would help."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ReadTimeoutError,
)

from budget.problems import BadInput, Problem
from scripts.account.refusals import DENIED, THROTTLED, WHERE, code_of, credential_problem
from scripts.failure import Failure

_ACTIONS = {
    "HeadObject": "s3:GetObject",
    "GetObject": "s3:GetObject",
    "PutObject": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "ListParts": "s3:ListMultipartUploadParts",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListObjectsV2": "s3:ListBucket",
    "GetBucketLocation": "s3:GetBucketLocation",
    "DeleteObject": "s3:DeleteObject",
    "DeleteObjects": "s3:DeleteObject",
}
"""API operation → the action that a policy must allow (service authorization reference of S3)."""

_DAMAGED = frozenset({"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch"})
_ANSWERS: Mapping[frozenset[str], str] = MappingProxyType(
    {
        DENIED: ("access denied: {action} on {resource}{hint}. `coldstart stage --print-policy` prints what is needed"),
        frozenset({"NoSuchBucket"}): (
            "there is no such bucket: {resource}. `pulumi up` of the environment creates it; check the name"
        ),
        THROTTLED: (
            "S3 throttles after all retries ({code}, {operation} on {resource}). Run it again: it goes on from there"
        ),
        frozenset({"XMinioStorageFull", "InsufficientStorage", "507", "EntityTooLarge", "QuotaExceeded"}): (
            "no space: {operation} on {resource} ({code} {said})"
        ),
        _DAMAGED: ("the data S3 received differs from what was sent ({code}, {operation} on {resource}). Run it again"),
        frozenset({"PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}): (
            "the bucket is in another region ({code}, {operation} on {resource}). Give --region the bucket's own"
        ),
    }
)
"""Error codes → what a person is told."""


def is_missing(error: ClientError) -> bool:
    """The object, or the upload, is not there."""
    return code_of(error) in {"404", "NoSuchKey", "NoSuchUpload", "NotFound"}


def is_taken(error: ClientError) -> bool:
    """A conditional write found that somebody else wrote first, or is about to."""
    return code_of(error) in {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}


def is_unusable(error: ClientError) -> bool:
    """An upload that can never be finished: parts damaged, too small, or begun with another kind of checksum."""
    return code_of(error) in _DAMAGED | {"InvalidRequest", "InvalidPart", "InvalidPartOrder", "EntityTooSmall"}


class CredentialsRefused(BadInput, Failure):
    """Bad input to whoever answers a person (exit code 2); a failure to the threads that send, which stop on one."""


@contextmanager
def told(resource: str) -> Generator[None]:
    """Turns whatever boto3 raises inside into an error about `resource` (an ARN).

    Raises:
        CredentialsRefused: they are no good, in the words of every other verb.
        Failure: what happened, on what, and what would help.
    """
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        if problem := _credentials(error):
            raise CredentialsRefused([problem]) from error
        raise Failure(_words(error, resource)) from error


def _credentials(error: ClientError | BotoCoreError) -> Problem | None:
    problem = credential_problem(error)
    if isinstance(error, ClientError):
        if code_of(error) == "InvalidToken":  # S3's alone
            problem = Problem(WHERE, "not accepted (InvalidToken)", "Check the session token, or sign in again.")
        return problem and replace(problem, fix=f"{problem.fix} Then run it again: what was sent is kept.")
    if problem and "KUBERNETES_SERVICE_HOST" in os.environ:
        return replace(problem, fix="In a pod they come from its service account (EKS Pod Identity).")
    return problem


def _words(error: ClientError | BotoCoreError, resource: str) -> str:
    if isinstance(error, ClientError):
        return _answer(error, resource)
    if isinstance(error, EndpointConnectionError | ConnectTimeoutError | ReadTimeoutError):
        return (
            f"S3 cannot be reached: {error}. Check the region, AWS_ENDPOINT_URL, and the route to S3 (gateway endpoint)"
        )
    return f"{resource}: {error}"


def _answer(error: ClientError, resource: str) -> str:
    code, operation = code_of(error), error.operation_name
    said = error.response.get("Error", {}).get("Message", "")
    text = next((text for codes, text in _ANSWERS.items() if code in codes), "{operation} on {resource}: {code} {said}")
    return text.format(
        action=_ACTIONS.get(operation, operation),
        operation=operation,
        resource=resource,
        code=code,
        said=said,
        hint=_hint(said),
    )


def _hint(said: str) -> str:
    """A denial by the encryption key or by an explicit statement is said only in S3's text."""
    return f" ({said})" if "kms" in said.lower() or "explicit deny" in said else ""
