"""What is known of layers that were read before: a digest never means anything else."""

from __future__ import annotations

import base64
import gzip
import json
import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from scripts.images.entry import NO_XATTRS, Entry
from scripts.images.layer import Layer

FORMAT = 1
"""Part of the file's name: another version of this program never misreads it."""


def cache_folder() -> Path:
    """Where the user's caches are: `$XDG_CACHE_HOME/coldstart/layers`, else `~/.cache/coldstart/layers`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coldstart" / "layers"


class LayerIndex:
    """Layers by digest, one small file each. A file that can't be read counts as none."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or cache_folder()

    def find(self, digest: str, diff_id: str) -> Layer | None:
        """What an earlier run saw; None if there was none, or under another configuration."""
        try:
            with gzip.open(self._path(digest), "rt", encoding="utf-8") as lines:
                head = cast("dict[str, Any]", json.loads(next(lines)))
                if head.pop("diff_id") != diff_id:
                    return None
                entries = tuple(_entry(json.loads(line)) for line in lines)
                if head.pop("count") != len(entries):
                    return None
                return Layer(digest=digest, diff_id=diff_id, entries=entries, **head)
        except (OSError, EOFError, zlib.error, ValueError, LookupError, StopIteration, TypeError, AttributeError):
            return None

    def keep(self, layer: Layer) -> None:
        """Keeps a layer for the next run; a cache that can't be written is no reason to fail."""
        path = self._path(layer.digest)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".part")
            with os.fdopen(handle, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=1) as file:
                for line in _lines(layer):
                    file.write(line.encode())
            Path(partial).replace(path)
        except OSError:
            return

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest.replace(':', '-')}.v{FORMAT}.jsonl.gz"


def _lines(layer: Layer) -> Iterator[str]:
    head = {
        "diff_id": layer.diff_id,
        "codec": layer.codec,
        "bytes": layer.bytes,
        "unpacked_bytes": layer.unpacked_bytes,
        "count": len(layer.entries),
    }
    yield json.dumps(head) + "\n"
    for entry in layer.entries:
        yield json.dumps(_row(entry), separators=(",", ":")) + "\n"


def _row(entry: Entry) -> list[Any]:
    return [
        entry.path,
        entry.kind,
        entry.content_bytes,
        entry.mode,
        entry.uid,
        entry.gid,
        entry.mtime_ns,
        entry.offset,
        entry.stored_bytes,
        entry.packed_bytes,
        entry.target,
        entry.device,
        {name: base64.b64encode(value).decode() for name, value in entry.xattrs.items()},
        entry.segments,
    ]


def _entry(row: list[Any]) -> Entry:
    path, kind, size, mode, uid, gid, mtime_ns, offset, stored, packed, target, device, xattrs, segments = row
    return Entry(
        path=path,
        kind=kind,
        content_bytes=size,
        mode=mode,
        uid=uid,
        gid=gid,
        mtime_ns=mtime_ns,
        offset=offset,
        stored_bytes=stored,
        packed_bytes=packed,
        target=target,
        device=tuple(device) if device else None,
        xattrs={name: base64.b64decode(value) for name, value in xattrs.items()} or NO_XATTRS,
        segments=None if segments is None else tuple((start, length) for start, length in segments),
    )
