"""Where a model comes from: a list of files, and their bytes by range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFile:
    """One file of a source.

    Attributes:
        path: relative, with forward slashes.
        sha256: of the content, hex, where the source knows it (the hub's large files).
        git_blob: git's SHA-1 of the content, hex, where the source knows it (the hub's other files).
    """

    path: str
    bytes: int
    sha256: str | None = None
    git_blob: str | None = None


class Source(Protocol):
    """A model at one fixed revision."""

    @property
    def name(self) -> str:
        """`ORG/NAME` it is staged under."""
        ...

    @property
    def revision(self) -> str:
        """40 hex digits it is staged under."""
        ...

    @property
    def requested_revision(self) -> str:
        """What the person asked for: a branch, a tag, or the revision itself."""
        ...

    @property
    def identity(self) -> str:
        """One line that tells sources apart; written on each object."""
        ...

    @property
    def files(self) -> Sequence[SourceFile]:
        """All of them, sorted by path."""
        ...

    def read_into(self, file: SourceFile, offset: int, buffer: memoryview) -> None:
        """Fills the whole buffer with the file's bytes from `offset` on; safe from several threads.

        Raises:
            Failure: the bytes cannot be had, or the source is no longer what was listed.
        """
        ...

    def check_unchanged(self) -> None:
        """Looks once more, after the last byte.

        Raises:
            Failure: the source is no longer what was listed.
        """
        ...


def read(source: Source, file: SourceFile, offset: int, length: int) -> bytes:
    """A piece of a file, in memory: headers and small files only."""
    buffer = bytearray(length)
    source.read_into(file, offset, memoryview(buffer))
    return bytes(buffer)
