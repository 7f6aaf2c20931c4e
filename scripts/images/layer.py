"""One layer, streamed once: digests checked, entries listed, the tar stream kept where somebody needs it again."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from scripts.failure import Failure
from scripts.images.ahead import Ahead
from scripts.images.codec import Codec, Unpacked, codec_of
from scripts.images.entry import Entry
from scripts.images.source import LayerBlob, Source
from scripts.images.tar_reader import TarReader

Meter = Callable[[int], None]
"""Told of every byte that was read or written."""
MARK_BYTES = 256 * 1024
"""Of the tar stream between two marks: fine enough for a file's share of the compressed bytes, 70,000 for 17 GB."""
Steps = Callable[[str, int], AbstractContextManager[Meter]]
"""Makes the meter of a step from its name and its bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """A layer that was read.

    Attributes:
        bytes: compressed, as stored.
        unpacked_bytes: of its tar stream.
        entries: in the order of the tar stream.
    """

    digest: str
    diff_id: str
    codec: Codec
    bytes: int
    unpacked_bytes: int
    entries: tuple[Entry, ...]


def read_layer(source: Source, blob: LayerBlob, where: str, *, meter: Meter, spool: Path | None = None) -> Layer:
    """Reads a layer to its end: fetching, inflating and hashing its files each on a thread of its own.

    Args:
        source: where its bytes come from.
        blob: which layer.
        where: names it in messages.
        meter: told of progress.
        spool: where the tar stream is kept; nothing is kept otherwise.

    Raises:
        Failure: truncated, other bytes than its digests say, an unknown codec, a bomb, an archive not to be trusted.
    """
    codec = codec_of(blob.media_type, where)
    stored = _Hashed(source.open(blob), blob.bytes, where, meter)
    with Ahead(iter(stored)) as compressed:
        unpacked = _Marked(Unpacked(iter(compressed), codec, where))
        with Ahead(iter(unpacked)) as plain:
            stream = _Stream(iter(plain), spool)
            entries = list(TarReader(iter(stream), where))
        for _ in compressed:
            pass
    stored.check(blob.digest)
    if stream.digest != blob.diff_id:
        raise Failure(f"{where}: its tar stream is {stream.digest}, the configuration says {blob.diff_id}: not trusted")
    for entry in entries:
        if entry.stored_bytes:
            end = unpacked.packed_at(entry.offset + entry.stored_bytes)
            entry.packed_bytes = max(0, round(end - unpacked.packed_at(entry.offset)))
    return Layer(
        digest=blob.digest,
        diff_id=blob.diff_id,
        codec=codec,
        bytes=blob.bytes,
        unpacked_bytes=stream.bytes,
        entries=tuple(entries),
    )


class _Hashed:
    """Bytes as stored, counted and hashed on their way."""

    def __init__(self, pieces: Iterator[bytes], size: int, where: str, meter: Meter) -> None:
        self._pieces, self._size, self._where, self._meter = pieces, size, where, meter
        self._hash, self._bytes = hashlib.sha256(), 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self._hash.update(piece)
            self._bytes += len(piece)
            if self._bytes > self._size:
                raise Failure(f"{self._where}: more than the {self._size} bytes that the manifest says")
            self._meter(len(piece))
            yield piece
        if self._bytes < self._size:
            raise Failure(f"{self._where}: truncated: {self._bytes} of {self._size} bytes")

    def check(self, digest: str) -> None:
        """Raises Failure unless the bytes, all read by now, are those of the digest."""
        found = f"sha256:{self._hash.hexdigest()}"
        if found != digest:
            raise Failure(f"{self._where}: its bytes are {found}, the manifest says {digest}: not trusted")


class _Marked:
    """The tar stream, with marks that tell how far the compressed bytes were at each piece.

    Attributes:
        offsets: of each mark in the tar stream.
        packed: compressed bytes behind it.
    """

    def __init__(self, unpacked: Unpacked) -> None:
        self._unpacked = unpacked
        self.offsets, self.packed = array("q", [0]), array("q", [0])

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._unpacked:
            if self._unpacked.bytes - self.offsets[-1] >= MARK_BYTES:
                self._mark()
            yield piece
        self._mark()

    def _mark(self) -> None:
        self.offsets.append(self._unpacked.bytes)
        self.packed.append(self._unpacked.consumed_bytes)

    def packed_at(self, offset: int) -> float:
        """Compressed bytes behind this place of the tar stream, in a straight line between two marks."""
        index = min(bisect_right(self.offsets, offset), len(self.offsets) - 1)
        low, high = self.offsets[max(0, index - 1)], self.offsets[index]
        low_packed, high_packed = self.packed[max(0, index - 1)], self.packed[index]
        return low_packed + (high_packed - low_packed) * (offset - low) / (high - low) if high > low else high_packed


class _Stream:
    """The tar stream, counted, hashed and spooled on its way."""

    def __init__(self, pieces: Iterator[bytes], spool: Path | None) -> None:
        self._pieces, self._spool = pieces, spool
        self._hash = hashlib.sha256()
        self.bytes = 0

    @property
    def digest(self) -> str:
        """Of everything handed out."""
        return f"sha256:{self._hash.hexdigest()}"

    def __iter__(self) -> Iterator[bytes]:
        with nullcontext() if self._spool is None else self._spool.open("wb") as file:
            for piece in self._pieces:
                self._hash.update(piece)
                self.bytes += len(piece)
                if file is not None and self._spool is not None:
                    _keep(file, piece, self._spool)
                yield piece


def _keep(file: BinaryIO, piece: bytes, spool: Path) -> None:
    try:
        file.write(piece)
    except OSError as error:
        folder = spool.parent.parent
        raise Failure(f"{folder}: no room for tar streams: {error.strerror}: set TMPDIR to a larger disk") from error
