"""How layers are compressed: media types, streaming decompression in bounded memory, compression for new layers."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import IO, Literal, Protocol, cast

import zstandard
from isal import isal_zlib

from scripts.failure import Failure

Codec = Literal["gzip", "zstd", "none"]

MEDIA_TYPES: dict[str, Codec] = {
    "application/vnd.oci.image.layer.v1.tar+gzip": "gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd": "zstd",
    "application/vnd.oci.image.layer.v1.tar": "none",
    "application/vnd.docker.image.rootfs.diff.tar.gzip": "gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd": "zstd",
    "application/vnd.docker.image.rootfs.diff.tar": "none",
}
"""Layers that a registry may hand out. Foreign and non-distributable ones are elsewhere, encrypted ones are closed."""
PIECE_BYTES = 1 << 20
"""Most output at once, whatever the input unpacks to."""
FEED_BYTES = 256 * 1024
"""Compressed bytes handed to the inflater at once. With fewer, threads spend their time passing pieces on; with more,
what is not unpacked yet is copied each time."""
BROKEN_GZIP = cast("type[Exception]", isal_zlib.error)
"""Its stub takes the class for an instance."""
ZSTD_WINDOW_BYTES = 1 << 27
"""Largest window accepted, 128 MiB, which is what containerd's decoder takes."""
BOMB_RATIO = 200
"""Unpacked / compressed beyond which a layer is an attack or a mistake: real ones reach 4, text alone 10, and deflate
can't do more than 1032."""
BOMB_FLOOR_BYTES = 64 << 20
"""A small layer of zeros is no bomb."""
GZIP_LEVEL = 6
"""gzip's default; higher levels cost a multiple of the time for 1 % less."""
ZSTD_LEVEL = 9
"""Between 3 (fast, 10 % larger) and 19 (ten times slower). Unpacking takes the same time for all."""


def codec_of(media_type: str, where: str) -> Codec:
    """The compression that a media type stands for.

    Raises:
        Failure: an unknown one.
    """
    known = MEDIA_TYPES.get(media_type)
    if known is None:
        raise Failure(f"{where}: unknown media type {media_type!r}. Known: {', '.join(MEDIA_TYPES)}")
    return known


class Unpacked:
    """A layer's tar stream: iterate over pieces of at most `PIECE_BYTES`.

    Attributes:
        consumed_bytes: compressed bytes behind what was handed out so far.
        bytes: tar bytes handed out so far.
    """

    def __init__(self, pieces: Iterator[bytes], codec: Codec, where: str) -> None:
        self.consumed_bytes = self.bytes = 0
        self._pieces, self._where = pieces, where
        self._unpack = {"gzip": self._gzip, "zstd": self._zstd, "none": self._plain}[codec]

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._unpack():
            self.bytes += len(piece)
            if self.bytes > BOMB_FLOOR_BYTES and self.bytes > BOMB_RATIO * self.consumed_bytes:
                raise Failure(
                    f"{self._where}: {self.consumed_bytes} bytes unpack to more than {self.bytes}: "
                    f"over {BOMB_RATIO} times as many, a layer bomb"
                )
            yield piece

    def _plain(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.consumed_bytes += len(piece)
            yield piece

    def _gzip(self) -> Iterator[bytes]:
        try:
            yield from self._members()
        except BROKEN_GZIP as error:
            raise Failure(f"{self._where}: broken gzip after {self.bytes} bytes: {error}") from error

    def _members(self) -> Iterator[bytes]:
        """A gzip stream may consist of several members, one after another."""
        unpacker, begun = isal_zlib.decompressobj(31), False
        for fed in self._fed():
            left = fed
            while left or begun:
                piece = unpacker.decompress(left, PIECE_BYTES)
                self.consumed_bytes += len(left) - len(unpacker.unconsumed_tail) - len(unpacker.unused_data)
                begun = True
                if piece:
                    yield piece
                if unpacker.eof:
                    left, unpacker, begun = unpacker.unused_data, isal_zlib.decompressobj(31), False
                    continue
                left = unpacker.unconsumed_tail
                if not left and len(piece) < PIECE_BYTES:
                    break
        if begun:
            raise Failure(f"{self._where}: truncated: the gzip stream ends in the middle, after {self.bytes} bytes")

    def _fed(self) -> Iterator[bytes]:
        for piece in self._pieces:
            for start in range(0, len(piece), FEED_BYTES):
                yield piece[start : start + FEED_BYTES]

    def _zstd(self) -> Iterator[bytes]:
        unpacker = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
        try:
            with unpacker.stream_reader(
                cast("IO[bytes]", _Readable(self)), read_size=FEED_BYTES, read_across_frames=True
            ) as reader:
                while piece := reader.read(PIECE_BYTES):
                    yield piece
        except zstandard.ZstdError as error:
            raise Failure(f"{self._where}: broken zstd after {self.bytes} bytes: {error}") from error

    def take(self) -> bytes:
        """The next compressed piece; empty at the end."""
        piece = next(self._pieces, b"")
        self.consumed_bytes += len(piece)
        return piece


class _Readable:
    """Pieces as the file that zstandard reads from."""

    def __init__(self, unpacked: Unpacked) -> None:
        self._unpacked, self._left = unpacked, b""

    def read(self, size: int) -> bytes:
        """At most `size` bytes."""
        if not self._left:
            self._left = self._unpacked.take()
        piece, self._left = self._left[:size], self._left[size:]
        return piece


class Compressor(Protocol):
    """Compresses a stream piece by piece."""

    def compress(self, data: bytes | memoryview, /) -> bytes:
        """Compressed bytes that are ready."""
        ...

    def flush(self) -> bytes:
        """The rest."""
        ...


def compressor(codec: Codec) -> Compressor:
    """A compressor whose output depends on its input alone.

    gzip: one member without name or time, no flush points, 32 KiB window: what igzip, pigz and Go all decode at full
    speed. zstd: one frame with its checksum, single-threaded (threads cut a stream at points that depend on timing).
    """
    if codec == "gzip":
        return _Gzip()
    if codec == "zstd":
        return zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True).compressobj()
    raise ValueError("new layers are always compressed")


GZIP_HEADER = bytes([0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255])
"""No flags, no time, no operating system."""


class _Gzip:
    """gzip with a header of our own: zlib writes the operating system it runs on into its one."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, 9)
        self._sum = self._bytes = 0
        self._ready = GZIP_HEADER

    def compress(self, data: bytes | memoryview, /) -> bytes:
        """See `Compressor`."""
        self._sum = zlib.crc32(data, self._sum)
        self._bytes += len(data)
        ready, self._ready = self._ready, b""
        return ready + self._deflate.compress(data)

    def flush(self) -> bytes:
        """See `Compressor`."""
        trailer = self._sum.to_bytes(4, "little") + (self._bytes % 2**32).to_bytes(4, "little")
        ready, self._ready = self._ready, b""
        return ready + self._deflate.flush() + trailer
