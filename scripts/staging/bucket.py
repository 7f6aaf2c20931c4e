"""The weight bucket: everything staging asks of S3, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from scripts.failure import Failure
from scripts.staging import checksum
from scripts.staging.refusal import is_missing, is_taken, is_unusable, told

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

SOURCE = "coldstart-source"
"""Metadata of an object: the source's identity. An object without it is not ours."""
SHA256 = "coldstart-sha256"
"""Metadata of an object: the hash of its content, where it was known before the first byte."""
DELETE_AT_ONCE = 1_000
"""Keys of one DeleteObjects request (S3 API reference)."""

CHUNK_BYTES = 2**20
"""Read from a response at a time."""

_CONNECTIONS = 64
_ATTEMPTS = 10
"""Tries per request, with exponential backoff of up to 20 s between them: about a minute of throttling is sat out."""


def client_config() -> Config:
    """How staging talks to S3."""
    return Config(
        max_pool_connections=_CONNECTIONS,
        connect_timeout=10,
        read_timeout=60,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        # Each request carries a checksum that S3 verifies and that is itself signed: hashing every body once more for
        # the signature would double the work.
        s3={"payload_signing_enabled": False},
        tcp_keepalive=True,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """An object as the bucket holds it.

    Attributes:
        crc32: of the whole object as S3 holds it; None when it holds none.
        source: identity of the source it came from; None when staging did not write it.
        sha256: hex; None when it was not known before the upload.
    """

    key: str
    bytes: int
    crc32: int | None
    source: str | None
    sha256: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SentPart:
    """A part that an unfinished upload holds.

    Attributes:
        crc32: as S3 holds it; None from servers that do not list it.
        etag: MD5 of the part, hex, unless the bucket encrypts with KMS.
    """

    number: int
    bytes: int
    crc32: int | None
    etag: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """An object of a listing."""

    key: str
    bytes: int
    modified: datetime


class Bucket:
    """One bucket.

    Attributes:
        name: of the bucket.
        client: the boto3 client, made by `connect` or with `client_config`.
    """

    def __init__(self, name: str, client: S3Client) -> None:
        self.name = name
        self.client = client
        self._partition = client.meta.partition

    def arn(self, key: str = "") -> str:
        """ARN of the bucket, or of an object in it."""
        return f"arn:{self._partition}:s3:::{self.name}" + (f"/{key}" if key else "")

    def region(self) -> str:
        """Where the bucket is."""
        with told(self.arn()):
            answer = self.client.get_bucket_location(Bucket=self.name)
        location = str(answer.get("LocationConstraint") or "us-east-1")
        return "eu-west-1" if location == "EU" else location

    # ---- objects ------------------------------------------------------------------------------------------------

    def head(self, key: str) -> Held | None:
        """What the bucket holds under a key; None when there is nothing."""
        with told(self.arn(key)):
            try:
                answer = self.client.head_object(Bucket=self.name, Key=key, ChecksumMode="ENABLED")
            except ClientError as error:
                if is_missing(error):
                    return None
                raise
        held = answer.get("ChecksumCRC32", "")
        whole = answer.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT"
        return Held(
            key=key,
            bytes=answer["ContentLength"],
            crc32=checksum.from_base64(held) if held and whole else None,
            source=answer["Metadata"].get(SOURCE),
            sha256=answer["Metadata"].get(SHA256),
        )

    def get(self, key: str) -> bytes | None:
        """A small object; None when there is nothing."""
        with told(self.arn(key)):
            try:
                return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
            except ClientError as error:
                if is_missing(error):
                    return None
                raise

    def get_range(self, key: str, offset: int, buffer: memoryview) -> None:
        """Fills the buffer with an object's bytes from `offset` on.

        Raises:
            Failure: there is no such object, or it ends before the buffer is full.
        """
        with told(self.arn(key)):
            last = offset + len(buffer) - 1
            body = self.client.get_object(Bucket=self.name, Key=key, Range=f"bytes={offset}-{last}")["Body"]
            filled = 0
            for chunk in body.iter_chunks(CHUNK_BYTES):
                if filled + len(chunk) > len(buffer):
                    break
                buffer[filled : filled + len(chunk)] = chunk
                filled += len(chunk)
        if filled != len(buffer):
            raise Failure(f"{self.arn(key)} ended after {offset + filled:,} bytes")

    def put_new(self, key: str, body: bytes | bytearray, *, metadata: Mapping[str, str]) -> bool:
        """Writes an object unless there is one; False when somebody wrote it first."""
        with told(self.arn(key)):
            try:
                self.client.put_object(
                    Bucket=self.name,
                    Key=key,
                    Body=_body(body),
                    ChecksumCRC32=checksum.to_base64(checksum.crc32(body)),
                    Metadata=dict(metadata),
                    IfNoneMatch="*",
                )
            except ClientError as error:
                if is_taken(error):
                    return False
                raise
        return True

    def listed(self, prefix: str) -> Iterator[Listed]:
        """Every object under a prefix."""
        with told(f"{self.arn()} (prefix {prefix})"):
            for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix):
                for entry in page.get("Contents", []):
                    yield Listed(
                        key=entry.get("Key", ""),
                        bytes=entry.get("Size", 0),
                        modified=entry.get("LastModified", datetime.now(tz=UTC)),
                    )

    def delete(self, keys: Sequence[str]) -> None:
        """Deletes objects.

        Raises:
            Failure: some could not be deleted; names the first.
        """
        for start in range(0, len(keys), DELETE_AT_ONCE):
            batch = keys[start : start + DELETE_AT_ONCE]
            with told(self.arn(batch[0])):
                answer = self.client.delete_objects(
                    Bucket=self.name, Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True}
                )
            for failed in answer.get("Errors", []):
                raise Failure(f"{self.arn(failed.get('Key', ''))} could not be deleted: {failed.get('Code')}")

    # ---- multipart uploads --------------------------------------------------------------------------------------

    def uploads(self, prefix: str) -> Sequence[tuple[str, str]]:
        """(key, upload id) of every unfinished upload under a prefix, oldest first for a key."""
        with told(f"{self.arn()} (prefix {prefix})"):
            pages = self.client.get_paginator("list_multipart_uploads").paginate(Bucket=self.name, Prefix=prefix)
            return [
                (upload.get("Key", ""), upload.get("UploadId", ""))
                for page in pages
                for upload in page.get("Uploads", [])
            ]

    def start_upload(self, key: str, *, metadata: Mapping[str, str]) -> str:
        """Begins an upload whose checksum covers the whole object; its id."""
        with told(self.arn(key)):
            answer = self.client.create_multipart_upload(
                Bucket=self.name,
                Key=key,
                ChecksumAlgorithm="CRC32",
                ChecksumType="FULL_OBJECT",
                Metadata=dict(metadata),
            )
        return answer["UploadId"]

    def sent_parts(self, key: str, upload: str) -> Mapping[int, SentPart] | None:
        """The parts an upload holds, by number; None when the upload is gone."""
        with told(self.arn(key)):
            try:
                pages = list(
                    self.client.get_paginator("list_parts").paginate(Bucket=self.name, Key=key, UploadId=upload)
                )
            except ClientError as error:
                if is_missing(error):
                    return None
                raise
        found: dict[int, SentPart] = {}
        for page in pages:
            for part in page.get("Parts", []):
                held, number = part.get("ChecksumCRC32", ""), part.get("PartNumber", 0)
                found[number] = SentPart(
                    number=number,
                    bytes=part.get("Size", 0),
                    crc32=checksum.from_base64(held) if held else None,
                    etag=part.get("ETag", "").strip('"'),
                )
        return found

    def send_part(self, key: str, upload: str, number: int, body: bytes | bytearray, crc32: int) -> str | None:
        """Sends one part; its ETag, or None when the upload is gone."""
        with told(self.arn(key)):
            try:
                answer = self.client.upload_part(
                    Bucket=self.name,
                    Key=key,
                    UploadId=upload,
                    PartNumber=number,
                    Body=_body(body),
                    ChecksumCRC32=checksum.to_base64(crc32),
                )
            except ClientError as error:
                if is_missing(error):
                    return None
                raise
        return answer["ETag"].strip('"')

    def finish_upload(self, key: str, upload: str, parts: Sequence[SentPart], *, crc32: int) -> bool:
        """Turns the parts into the object, unless there is one; False when it is there, or the upload is lost.

        S3 compares the checksum of the whole object with the parts it holds before it makes the object.
        """
        with told(self.arn(key)):
            try:
                self.client.complete_multipart_upload(
                    Bucket=self.name,
                    Key=key,
                    UploadId=upload,
                    MultipartUpload={
                        "Parts": [
                            {
                                "PartNumber": part.number,
                                "ETag": f'"{part.etag}"',
                                "ChecksumCRC32": checksum.to_base64(part.crc32 or 0),
                            }
                            for part in parts
                        ]
                    },
                    ChecksumType="FULL_OBJECT",
                    ChecksumCRC32=checksum.to_base64(crc32),
                    IfNoneMatch="*",
                )
            except ClientError as error:
                if is_missing(error) or is_taken(error):
                    return False
                if is_unusable(error):
                    # The parts are not the file, or were begun by another tool: none of them is worth keeping.
                    self.client.abort_multipart_upload(Bucket=self.name, Key=key, UploadId=upload)
                    return False
                raise
        return True

    def abort_upload(self, key: str, upload: str) -> None:
        """Throws an upload's parts away; an upload that is gone already is fine."""
        with told(self.arn(key)):
            try:
                self.client.abort_multipart_upload(Bucket=self.name, Key=key, UploadId=upload)
            except ClientError as error:
                if not is_missing(error):
                    raise


def connect(name: str, *, region: str | None, session: boto3.Session | None = None) -> Bucket:
    """Opens a bucket after looking where it is.

    Args:
        name: of the bucket.
        region: where the bucket must be; None takes the session's, and without one the bucket's own.
        session: whose credentials are used; None is the person's own. An endpoint set in the environment or the
            profile is honoured.

    Raises:
        Failure: no such bucket, no access, or it is in another region: the engine's own clients follow no redirect.
    """
    session = session or boto3.Session()
    wanted = region or session.region_name or ""
    bucket = Bucket(name, _client(session, name, wanted or "us-east-1"))
    found = bucket.region()
    if wanted and found != wanted:
        raise Failure(
            f"bucket {name} is in {found}, not in {wanted}. Weights must lie in the region of the cluster that reads "
            f"them: name a bucket there, or say --region {found} if the cluster is there"
        )
    return bucket if found == (wanted or "us-east-1") else Bucket(name, _client(session, name, found))


def _client(session: boto3.Session, name: str, region: str) -> S3Client:
    with told(f"arn:aws:s3:::{name}"):
        return session.client("s3", region_name=region, config=client_config())  # pyright: ignore[reportUnknownMemberType] - overloads of services whose stubs are not installed


def _body(data: bytes | bytearray) -> bytes:
    """What botocore sends: bytearray goes as bytes do, but its stubs know the latter alone."""
    return cast("bytes", data)
