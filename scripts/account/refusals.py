"""What AWS refused, in words: a credential that is no good is the person's to mend, anything else is a failure."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOTokenLoadError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)
from botocore.parsers import ResponseParserError

from budget.problems import BadInput, Problem, bad_input
from scripts.failure import Failure

AwsError = ClientError | BotoCoreError | ResponseParserError
AWS_ERRORS = (ClientError, BotoCoreError, ResponseParserError)
"""Whatever a call raises when AWS, the network, or something in between does not do what was asked."""
WHERE = "AWS credentials"
DENIED = frozenset(
    # The answer to a HEAD request has no body that a code could stand in: botocore puts the status in its place.
    {
        "AccessDenied",
        "AccessDeniedException",
        "AllAccessDisabled",
        "UnauthorizedOperation",
        "UnauthorizedAccess",
        "Forbidden",
        "403",
    }
)
THROTTLED = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "TooManyRequests",
        "TooManyRequestsException",
        "SlowDown",
        "ServiceUnavailable",
        "PriorRequestNotComplete",
        "429",
        "503",
    }
)
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
_INVALID = frozenset(
    {
        "AuthFailure",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "IncompleteSignature",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_SKEWED = frozenset({"RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"})
_SKEW_WORDS = re.compile(r"Signature (expired|not yet current)|Request has expired", re.IGNORECASE)
_NOT_FOUND = re.compile(r"NotFound|NoSuch|NotExist|Unknown|Missing(?!Auth)|ResourceNotFound|404")


def code_of(error: ClientError) -> str:
    """AWS's error code, such as `DependencyViolation`."""
    return str(error.response.get("Error", {}).get("Code", ""))


def message_of(error: ClientError) -> str:
    """AWS's own sentence."""
    words = str(error.response.get("Error", {}).get("Message", "")) or str(error)
    return " ".join(words.split())[:500]  # whoever stands in between may answer with a page


def is_denied(error: BaseException) -> bool:
    """The caller lacks a permission."""
    return isinstance(error, ClientError) and code_of(error) in DENIED


def is_gone(error: BaseException) -> bool:
    """The thing asked for does not exist, or no longer does."""
    return isinstance(error, ClientError) and _NOT_FOUND.search(code_of(error)) is not None


def credential_problem(error: BaseException) -> Problem | None:
    """What is wrong with the credentials, when that is what the error says."""
    match error:
        case NoCredentialsError() | PartialCredentialsError() | CredentialRetrievalError():
            return Problem(
                WHERE, f"none that work: {error}", "Sign in (aws sso login, aws configure), or set AWS_PROFILE."
            )
        case ProfileNotFound():
            return Problem("AWS_PROFILE", str(error), "Name a profile of your AWS configuration.")
        case SSOTokenLoadError() | UnauthorizedSSOTokenError() | TokenRetrievalError():
            return Problem(WHERE, f"the sign-in has ended: {error}", "Sign in again: aws sso login.")
        case ClientError():
            return _refused_credentials(code_of(error), message_of(error).rstrip("."))
        case _:
            return None


def _refused_credentials(code: str, words: str) -> Problem | None:
    if code in _SKEWED or _SKEW_WORDS.search(words):
        return Problem(
            "clock", f"AWS refuses this machine's time: {words}", "Set the clock (NTP); AWS allows 5 minutes."
        )
    if code in _EXPIRED:
        return Problem(WHERE, f"expired: {words}", "Sign in again, or get a fresh session token.")
    if code in _INVALID:
        return Problem(WHERE, f"not accepted ({code}): {words}", "Check the access key, or sign in again.")
    return None


@contextmanager
def told(doing: str) -> Generator[None]:
    """Turns botocore's errors into ours.

    Args:
        doing: what was tried, for the message: `listing volumes in us-west-2`.

    Raises:
        BadInput: the credentials are no good.
        Failure: anything else that AWS or the network refused.
    """
    try:
        yield
    except AWS_ERRORS as error:
        problem = credential_problem(error)
        if problem:
            raise BadInput([problem]) from error
        raise Failure(f"{doing}: {in_words(error)}") from error


def in_words(error: AwsError) -> str:
    """One line for a person."""
    if isinstance(error, EndpointConnectionError | ConnectTimeoutError):
        return f"AWS can't be reached: {error}"
    if isinstance(error, ResponseParserError):
        return f"the answer is not AWS's (a proxy?): {' '.join(str(error).split())[:200]}"
    if not isinstance(error, ClientError):
        return str(error)
    code, words = code_of(error), message_of(error)
    if code in DENIED:
        return f"not allowed: {error.operation_name} ({words})"
    if code in THROTTLED:
        return f"AWS kept asking for patience ({code}) and every retry was used: run it again later"
    return f"{error.operation_name}: {code}: {words}"


def wrong_account(expected: str, found: str, arn: str) -> BadInput:
    """The error for credentials of another account."""
    return bad_input(
        WHERE,
        f"they are of account {found} ({arn}), the stack is in {expected}",
        f"Use credentials of {expected}. Nothing was changed.",
    )
