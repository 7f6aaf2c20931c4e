"""One file, from its source into the bucket in one pass: read by range, hashed in order, sent in parts.

What an earlier run left is used, not trusted: a part counts when S3 holds the checksum of the bytes just read, an
object when its checksum and size are those of the whole file. The source is read again for the parts that count, since
its hash needs every byte; they are not sent again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from budget.staged import StagedFile
from scripts.failure import Failure
from scripts.staging import checksum
from scripts.staging.bucket import SHA256, SOURCE, Bucket, Held, SentPart
from scripts.staging.meter import Meter
from scripts.staging.parts import part_bytes
from scripts.staging.reading import Hashes, Piece, Reader
from scripts.staging.source import Source, SourceFile

_ATTEMPTS = 3
"""Another run of the same model may finish or remove the upload we add to; then the file is looked at afresh."""


class _UploadGone(Exception):  # noqa: N818 - handled a few lines above
    """Somebody finished or removed the upload while we added to it."""


class FileUpload:
    """Puts one file under its key."""

    def __init__(
        self,
        *,
        source: Source,
        file: SourceFile,
        bucket: Bucket,
        key: str,
        unfinished: str | None,
        reader: Reader,
        senders: ThreadPoolExecutor,
        meter: Meter,
    ) -> None:
        self._source = source
        self._file = file
        self._bucket = bucket
        self._key = key
        self._unfinished = unfinished
        self._reader = reader
        self._senders = senders
        self._meter = meter

    def run(self) -> StagedFile:
        """Leaves the file in the bucket, whole and hashed.

        Raises:
            Failure: it could not be read, sent, or is not what its source says; nothing of it is left then.
        """
        for _ in range(_ATTEMPTS):
            self._meter.restart(self._file.path)
            try:
                staged = self._attempt()
            except _UploadGone:
                self._unfinished = None
                continue
            self._meter.finish(self._file.path, staged.bytes)
            return staged
        raise Failure(
            f"{self._key}: the upload was lost {_ATTEMPTS} times: another run of this model removes it, "
            "or the server refuses to finish it. Let one run finish"
        )

    def _attempt(self) -> StagedFile:
        held = self._bucket.head(self._key)
        if held is not None:
            return self._proven(held)
        if self._file.bytes <= part_bytes(self._file.bytes):
            return self._put()
        return self._send_parts()

    # ---- an object that is there --------------------------------------------------------------------------------

    def _proven(self, held: Held) -> StagedFile:
        """An object of an earlier run, or of one beside this: taken over when it is this file."""
        file = self._file
        if held.source != self._source.identity or held.bytes != file.bytes:
            raise Failure(_foreign(self._bucket.arn(self._key)))
        if file.sha256 is not None and held.sha256 == file.sha256 and held.crc32 is not None:
            return self._staged(file.sha256, held.crc32)
        hashes = Hashes(file)
        for piece in self._reader.pieces(self._source, self._file):
            hashes.add(piece)
            self._reader.buffers.give_back(piece.buffer)
            self._meter.advance(file.path, piece.part.bytes, sent=False)
        hashes.check(self._source.identity)
        if held.sha256 not in {None, hashes.sha256} or held.crc32 not in {None, hashes.crc32}:
            raise Failure(_foreign(self._bucket.arn(self._key)))
        if held.sha256 is None and held.crc32 is None:
            why = "the server keeps no checksum, so the object cannot be verified"
            raise Failure(f"{self._key}: {why}. Remove it first")
        return self._staged(hashes.sha256, hashes.crc32)

    # ---- small files --------------------------------------------------------------------------------------------

    def _put(self) -> StagedFile:
        hashes = Hashes(self._file)
        body: bytes | bytearray = b""
        for piece in self._reader.pieces(self._source, self._file):
            hashes.add(piece)
            body = bytes(piece.body)
            self._reader.buffers.give_back(piece.buffer)
        hashes.check(self._source.identity)
        metadata = {SOURCE: self._source.identity, SHA256: hashes.sha256}
        if not self._bucket.put_new(self._key, body, metadata=metadata):
            raise _UploadGone
        self._meter.advance(self._file.path, len(body), sent=True)
        return self._staged(hashes.sha256, hashes.crc32)

    # ---- large files --------------------------------------------------------------------------------------------

    def _send_parts(self) -> StagedFile:
        upload, known = self._upload()
        hashes = Hashes(self._file)
        sent = self._all_parts(upload, known, hashes)
        try:
            hashes.check(self._source.identity)
        except Failure:
            self._bucket.abort_upload(self._key, upload)
            raise
        if not self._bucket.finish_upload(self._key, upload, sent, crc32=hashes.crc32):
            raise _UploadGone
        return self._staged(hashes.sha256, hashes.crc32)

    def _all_parts(self, upload: str, known: Mapping[int, SentPart], hashes: Hashes) -> Sequence[SentPart]:
        """Every part of the file, kept or sent; stops at the first that cannot be sent."""
        kept: list[SentPart] = []
        sending: list[tuple[Future[SentPart], bytearray]] = []
        trouble: list[Exception] = []
        try:
            for piece in self._reader.pieces(self._source, self._file):
                hashes.add(piece)
                part = known.get(piece.part.number)
                if part is not None and _holds(part, piece):
                    kept.append(self._keep(part, piece))
                else:
                    future = self._senders.submit(self._send, upload, piece, trouble)
                    sending.append((future, piece.buffer))
                if trouble:
                    break
            sent = [future.result() for future, _ in sending]
        finally:
            for future, buffer in sending:
                if future.cancel():
                    self._reader.buffers.give_back(buffer)
        return sorted([*kept, *sent], key=lambda part: part.number)

    def _upload(self) -> tuple[str, Mapping[int, SentPart]]:
        """The upload to add to, and the parts it holds."""
        if self._unfinished is not None:
            known = self._bucket.sent_parts(self._key, self._unfinished)
            if known is not None:
                return self._unfinished, known
        metadata = {SOURCE: self._source.identity}
        if self._file.sha256 is not None:
            metadata[SHA256] = self._file.sha256
        return self._bucket.start_upload(self._key, metadata=metadata), {}

    def _keep(self, known: SentPart, piece: Piece) -> SentPart:
        """A part that S3 holds already."""
        self._reader.buffers.give_back(piece.buffer)
        self._meter.advance(self._file.path, piece.part.bytes, sent=False)
        return SentPart(number=known.number, bytes=known.bytes, crc32=piece.crc32, etag=known.etag)

    def _send(self, upload: str, piece: Piece, trouble: list[Exception]) -> SentPart:
        number = piece.part.number
        try:
            etag = self._bucket.send_part(self._key, upload, number, piece.body, piece.crc32)
        except Failure as error:
            trouble.append(error)
            raise
        finally:
            self._reader.buffers.give_back(piece.buffer)
        if etag is None:
            trouble.append(_UploadGone())
            raise trouble[-1]
        self._meter.advance(self._file.path, piece.part.bytes, sent=True)
        return SentPart(number=number, bytes=piece.part.bytes, crc32=piece.crc32, etag=etag)

    def _staged(self, sha256: str, crc32: int) -> StagedFile:
        return StagedFile(path=self._file.path, bytes=self._file.bytes, sha256=sha256, crc32=checksum.to_hex(crc32))


def _holds(known: SentPart, piece: Piece) -> bool:
    """S3 holds exactly these bytes. Servers that list no checksum give the MD5 as ETag."""
    if known.bytes != piece.part.bytes:
        return False
    if known.crc32 is not None:
        return known.crc32 == piece.crc32
    return known.etag == hashlib.md5(piece.view, usedforsecurity=False).hexdigest()


def _foreign(arn: str) -> str:
    return (
        f"{arn} is there already and is another file than the one to stage; it is not overwritten. "
        "See it with `coldstart stage --list`, and remove it with `--prune` if nobody needs it"
    )
