"""One thing in a layer's tar stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Kind = Literal["file", "dir", "link", "symlink", "char", "block", "fifo"]
Segment = tuple[int, int]
"""Offset in the file, and bytes of data there; what lies between segments is a hole."""

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
WHITEOUT_META = ".wh..wh."
NO_XATTRS: Mapping[str, bytes] = MappingProxyType({})
"""One for all: most files have none, and there are a hundred thousand of them."""


@dataclass(slots=True, kw_only=True)
class Entry:
    """A file, folder, link or device as a layer has it.

    Attributes:
        path: relative to the root, without `.` or `..`; the root itself is empty. Bytes
            that are no UTF-8 are surrogates.
        content_bytes: of a file's content, holes included.
        mode: permission bits, set-id bits and the sticky bit.
        mtime_ns: since 1970.
        target: of a symlink as written, of a hard link as a path like `path`.
        device: major and minor.
        xattrs: extended attributes by name.
        offset: of the content in the tar stream.
        stored_bytes: of the content in the tar stream.
        segments: of a sparse file; None for others.
        packed_bytes: about what it takes of the compressed layer.
    """

    path: str
    kind: Kind
    content_bytes: int = 0
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    target: str | None = None
    device: tuple[int, int] | None = None
    xattrs: Mapping[str, bytes] = field(default_factory=lambda: NO_XATTRS)
    offset: int = 0
    stored_bytes: int = 0
    segments: tuple[Segment, ...] | None = None
    packed_bytes: int = 0

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def is_whiteout(self) -> bool:
        """It marks something of the layers below as deleted."""
        return self.name.startswith(WHITEOUT)
