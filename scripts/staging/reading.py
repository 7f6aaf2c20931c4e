"""A file as a row of pieces: several being read at a time, taken in order, hashed as they pass."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from scripts.failure import Failure
from scripts.staging import checksum
from scripts.staging.buffers import Buffers
from scripts.staging.parts import Part, part_bytes, parts
from scripts.staging.source import Source, SourceFile


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """One part of a file, read.

    Attributes:
        buffer: holds the part's bytes at its start; whoever takes the piece gives it back.
    """

    part: Part
    buffer: bytearray
    crc32: int

    @property
    def view(self) -> memoryview:
        """Exactly the part's bytes."""
        return memoryview(self.buffer)[: self.part.bytes]

    @property
    def body(self) -> bytes | bytearray:
        """The same for a request; copied only where the last part of a file is shorter than its buffer."""
        return self.buffer if self.part.bytes == len(self.buffer) else bytes(self.view)


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What reading takes; shared by all files.

    Attributes:
        threads: that read from the source.
        buffers: memory for what was read.
        ahead_bytes: of one file that may be read before its turn.
    """

    threads: ThreadPoolExecutor
    buffers: Buffers
    ahead_bytes: int

    def pieces(self, source: Source, file: SourceFile) -> Generator[Piece]:
        """The file's pieces in order.

        Raises:
            Failure: the source cannot be read.
            Closed: the buffers were closed meanwhile.
        """
        size = part_bytes(file.bytes)
        ahead = max(1, self.ahead_bytes // size)
        left = deque(parts(file.bytes))
        reading: deque[tuple[Future[Piece], bytearray]] = deque()
        try:
            while left or reading:
                while left and len(reading) < ahead:
                    # Waiting for memory with parts in hand could wait for ourselves.
                    buffer = self.buffers.lend(size, wait=not reading)
                    if buffer is None:
                        break
                    reading.append((self.threads.submit(_read, source, file, left.popleft(), buffer), buffer))
                future, _ = reading[0]
                piece = future.result()
                reading.popleft()
                yield piece
        finally:
            for future, buffer in reading:
                self._give_back_after(future, buffer)

    def _give_back_after(self, future: Future[Piece], buffer: bytearray) -> None:
        """Returns the buffer of a read nobody waits for: now, or when the thread that fills it is through."""

        def done(_: Future[Piece]) -> None:
            self.buffers.give_back(buffer)

        future.cancel()
        future.add_done_callback(done)


def _read(source: Source, file: SourceFile, part: Part, buffer: bytearray) -> Piece:
    view = memoryview(buffer)[: part.bytes]
    source.read_into(file, part.offset, view)
    return Piece(part=part, buffer=buffer, crc32=checksum.crc32(view))


class Hashes:
    """Hashes of a file whose pieces come in order."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        # Git's name of a blob; only files that the hub keeps in git are compared with it, and those are small.
        self._blob = hashlib.sha1(f"blob {file.bytes}\0".encode(), usedforsecurity=False) if file.git_blob else None
        self.crc32 = 0

    def add(self, piece: Piece) -> None:
        """The next piece."""
        self._sha256.update(piece.view)
        if self._blob is not None:
            self._blob.update(piece.view)
        self.crc32 = checksum.combined(self.crc32, piece.crc32, piece.part.bytes)

    @property
    def sha256(self) -> str:
        """Of all pieces so far, hex."""
        return self._sha256.hexdigest()

    def check(self, identity: str) -> None:
        """Holds the file against what its source says of it.

        Raises:
            Failure: they differ.
        """
        said, found = self._file.sha256, self.sha256
        if said is None and self._blob is not None:
            said, found = self._file.git_blob, self._blob.hexdigest()
        if said is not None and said != found:
            raise Failure(
                f"{identity}: {self._file.path} arrived with hash {found[:12]}... where the source says {said[:12]}... "
                "It was not kept. Run it again; if it happens twice, the source or a proxy on the way is broken"
            )
