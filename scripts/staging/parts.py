"""How a file is cut for a multipart upload: by its size alone, so that a later run cuts it the same way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from budget.problems import bad_input

MIB = 2**20
GIB = 2**30
MOST_PARTS = 10_000
"""Parts of one upload (S3 user guide, multipart upload limits)."""
PART_BYTES = (8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB)
"""Sizes in use. Parts of 8 to 16 MiB are what S3's performance guide asks for; larger ones only where the number of
parts forces them, since every part in flight is held in memory."""
MOST_FILE_BYTES = MOST_PARTS * PART_BYTES[-1]
"""671 GB; the hub accepts no file above 500 GB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One part of a file.

    Attributes:
        number: from 1, as S3 counts.
        offset: of its first byte.
    """

    number: int
    offset: int
    bytes: int


def part_bytes(file_bytes: int) -> int:
    """Size of every part but the last.

    Raises:
        BadInput: a file that 10,000 parts of the largest size cannot hold.
    """
    for size in PART_BYTES:
        if file_bytes <= MOST_PARTS * size:
            return size
    raise bad_input(
        "file size",
        f"{file_bytes:,} bytes in one file",
        f"Shard the checkpoint: at most {MOST_FILE_BYTES:,} bytes can be staged with bounded memory.",
    )


def parts(file_bytes: int) -> Iterator[Part]:
    """The parts of a file, in order; none for an empty file."""
    size = part_bytes(file_bytes)
    for index in range(math.ceil(file_bytes / size)):
        offset = index * size
        yield Part(number=index + 1, offset=offset, bytes=min(size, file_bytes - offset))
