"""The header of a safetensors file: which tensors it says it holds, and whether its size agrees.

Format: eight bytes with the header's length (little-endian), the header (JSON), then the tensors' bytes with neither
gap nor overlap (https://huggingface.co/docs/safetensors, "Format").
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from budget.models import DTYPE_BYTES, Json

LENGTH_BYTES = 8
MOST_HEADER_BYTES = 100_000_000
"""Limit of the format's own reader."""


class MalformedError(ValueError):
    """A file that is not what its name says; the message says where it goes wrong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Extent:
    name: str
    begin: int
    end: int


def header_bytes(prefix: bytes, *, file_bytes: int) -> int:
    """Length of the JSON header, from the file's first eight bytes.

    Raises:
        MalformedError: the file is too short for what it announces, or no header is that long.
    """
    if file_bytes < LENGTH_BYTES or len(prefix) < LENGTH_BYTES:
        raise MalformedError(f"{file_bytes} bytes are too few for a safetensors file")
    length = int.from_bytes(prefix[:LENGTH_BYTES], "little")
    if not 0 < length <= MOST_HEADER_BYTES:
        raise MalformedError(f"announces a header of {length:,} bytes: not a safetensors file")
    if LENGTH_BYTES + length > file_bytes:
        raise MalformedError(f"announces a header of {length:,} bytes in a file of {file_bytes:,}: it is cut off")
    return length


def parse_header(text: bytes, *, file_bytes: int) -> Json:
    """Parses a header and holds it against the file's size.

    Args:
        text: the JSON part.
        file_bytes: size of the whole file.

    Returns:
        Tensor name → `{"dtype", "shape", "data_offsets"}`; `__metadata__` may be among them.

    Raises:
        MalformedError: no JSON, a tensor whose bytes are not what dtype and shape ask for, gaps, overlaps, or a file
            that is shorter or longer than its tensors.
    """
    try:
        document: object = json.loads(text)
    except ValueError as error:
        raise MalformedError(f"the header is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise MalformedError("the header is no JSON object")
    header = cast("Json", document)
    _check_extents(sorted(_extents(header), key=lambda extent: (extent.begin, extent.end)), len(text), file_bytes)
    return header


def _extents(header: Json) -> Iterator[_Extent]:
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        tensor: Json = cast("Json", entry) if isinstance(entry, Mapping) else {}
        dtype, shape, offsets = tensor.get("dtype"), _integers(tensor, "shape"), _integers(tensor, "data_offsets")
        if shape is None or offsets is None or len(offsets) != 2:  # noqa: PLR2004 - begin and end
            raise MalformedError(f"tensor {name!r} lacks a shape or its offsets")
        if dtype not in DTYPE_BYTES:
            raise MalformedError(f"tensor {name!r} has the unknown dtype {dtype!r}")
        begin, end = offsets
        wanted = math.ceil(math.prod(shape) * DTYPE_BYTES[str(dtype)])
        if end - begin != wanted:
            raise MalformedError(f"tensor {name!r} spans {end - begin:,} bytes where {dtype} {shape} takes {wanted:,}")
        yield _Extent(name=name, begin=begin, end=end)


def _integers(tensor: Json, member: str) -> list[int] | None:
    value = tensor.get(member)
    if not isinstance(value, list):
        return None
    numbers = cast("list[object]", value)
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        return None
    return cast("list[int]", numbers)


def _check_extents(extents: list[_Extent], header_length: int, file_bytes: int) -> None:
    end = 0
    for extent in extents:
        if extent.begin != end:
            what = "overlaps the tensor before it" if extent.begin < end else "leaves a gap before it"
            raise MalformedError(f"tensor {extent.name!r} {what}")
        end = extent.end
    wanted = LENGTH_BYTES + header_length + end
    if file_bytes < wanted:
        raise MalformedError(f"is cut off: {file_bytes:,} bytes of the {wanted:,} that its tensors take")
    if file_bytes > wanted:
        raise MalformedError(f"has {file_bytes - wanted:,} bytes behind its last tensor")
