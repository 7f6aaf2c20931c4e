"""S3, in worker processes only."""

from __future__ import annotations

import os
from typing import Any, Protocol, cast

_BLOCK_BYTES = 1024 * 1024
"""Of a body, in memory at once, per connection."""


class S3(Protocol):
    """What the launcher uses of boto3's client, whose own type is made at run time."""

    def get_object(self, **request: object) -> dict[str, Any]:
        """An object, or a range of it."""
        ...

    def head_object(self, **request: object) -> dict[str, Any]:
        """Size, ETag and metadata of an object."""
        ...

    def put_object(self, **request: object) -> dict[str, Any]:
        """Writes an object."""
        ...

    def get_paginator(self, operation: str) -> Any:  # noqa: ANN401 - botocore's, untyped
        """Of a listing."""
        ...


def s3_client(connections: int) -> S3:
    """A client with the pod's own identity.

    Region from AWS_REGION or AWS_DEFAULT_REGION, endpoint from AWS_ENDPOINT_URL; path-style addresses where the
    streamer is told so too. Standard retries with 10 attempts outlast about two minutes of throttling.
    """
    import boto3  # noqa: PLC0415 - 0.7 s and 30 MB that only a worker may cost
    from botocore.config import Config as BotoConfig  # noqa: PLC0415

    path_style = os.environ.get("RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING") == "0"
    config = BotoConfig(
        max_pool_connections=connections,
        connect_timeout=5,
        read_timeout=20,
        retries={"mode": "standard", "max_attempts": 10},
        s3={"addressing_style": "path"} if path_style else {},
    )
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return cast("S3", boto3.client("s3", region_name=region, config=config))


def split_uri(uri: str) -> tuple[str, str]:
    """Bucket and key of an s3:// URI."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def s3_status(error: Exception) -> int:
    """The HTTP status behind a botocore error; 0 when there is none."""
    response = cast("dict[str, Any]", getattr(error, "response", {}))
    return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def fetch_range(client: S3, place: tuple[str, str, str], offset: int, length: int, fd: int) -> None:
    """Copies bytes [offset, offset + length) of an object to the same place of a file.

    A connection that breaks in the body is not retried by boto3: it is here, from where it broke.

    Args:
        client: from `s3_client`.
        place: bucket, key and the ETag that the object must still have.
        offset: of the first byte.
        length: in bytes.
        fd: of the file.
    """
    bucket, key, etag = place
    done, tries = 0, 0
    while done < length:
        before = done
        try:
            span = f"bytes={offset + done}-{offset + length - 1}"
            body = client.get_object(Bucket=bucket, Key=key, Range=span, IfMatch=etag)["Body"]
            while block := body.read(_BLOCK_BYTES):
                done += write_at(fd, block, offset + done)
        except _broken_body():
            tries = 0 if done > before else tries + 1
            if tries == 5:  # noqa: PLR2004 - five times nothing at all is no hiccup
                raise


def write_at(fd: int, block: bytes, offset: int) -> int:
    """Writes all of a block: a disk that fills up takes a part first and says so only at the next write."""
    view = memoryview(block)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written
    return len(block)


def transfer_errors() -> tuple[type[Exception], ...]:
    """What a transfer can end with, besides the disk's errors."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - only in a worker
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    return (BotoCoreError, ClientError, HTTPError)


def _broken_body() -> tuple[type[Exception], ...]:
    from botocore import exceptions  # noqa: PLC0415 - only in a worker
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    return (exceptions.ResponseStreamingError, exceptions.IncompleteReadError, exceptions.ReadTimeoutError, HTTPError)
