"""Writing a layer: the entries of its inodes and of the folders above them, compressed, hashed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scripts.failure import Failure
from scripts.images.codec import Codec, compressor
from scripts.images.cut import Inode
from scripts.images.entry import Entry
from scripts.images.layout import pieces_of
from scripts.images.root import Node, Root
from scripts.images.tar_writer import stream

FOLDER_MODE = 0o755
"""Of a folder that no layer lists; what containerd gives it. Its owner is root and its time 1970."""
BATCH_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenLayer:
    """A new layer in a file.

    Attributes:
        bytes: compressed.
        files: inodes in it.
    """

    path: Path
    digest: str
    diff_id: str
    bytes: int
    unpacked_bytes: int
    files: int


class LayerWriter:
    """Writes new layers from the tar streams that the old ones were spooled to; may be used from several threads."""

    def __init__(self, root: Root, spools: Sequence[Path], codec: Codec) -> None:
        self._spools = spools
        self._codec: Codec = codec
        self._folders = {path: node for path, node in root.walk() if node.is_folder}

    @property
    def folders(self) -> Sequence[str]:
        """All folders of the root file system."""
        return sorted(self._folders)

    def write(self, inodes: Sequence[Inode], folders: Sequence[str], path: Path, where: str) -> WrittenLayer:
        """Writes one layer.

        Args:
            inodes: its content.
            folders: folders it must have besides those that its inodes are in.
            path: the file to write.
            where: names the layer in messages.

        Raises:
            Failure: the disk is full or not writable.
        """
        packed, unpacked, bytes_, unpacked_bytes = hashlib.sha256(), hashlib.sha256(), 0, 0
        packer = compressor(self._codec)
        try:
            with path.open("wb") as file:
                for piece in _batched(stream(self._entries(inodes, folders))):
                    unpacked.update(piece)
                    unpacked_bytes += len(piece)
                    ready = packer.compress(piece)
                    packed.update(ready)
                    bytes_ += file.write(ready)
                rest = packer.flush()
                packed.update(rest)
                bytes_ += file.write(rest)
        except OSError as error:
            raise Failure(f"{where}: cannot be written to {path.parent}: {error.strerror}") from error
        return WrittenLayer(
            path=path,
            digest=f"sha256:{packed.hexdigest()}",
            diff_id=f"sha256:{unpacked.hexdigest()}",
            bytes=bytes_,
            unpacked_bytes=unpacked_bytes,
            files=len(inodes),
        )

    def _entries(self, inodes: Sequence[Inode], folders: Sequence[str]) -> Iterator[tuple[Entry, Iterator[bytes]]]:
        """Sorted by path: a folder comes before what is in it, a file before its other names."""
        named: dict[str, Inode | None] = dict.fromkeys(folders)
        for inode in inodes:
            for path in inode.paths:
                named[path] = inode
                named.update(dict.fromkeys(_above(path)))
        for path in sorted(named):
            inode = named[path]
            if inode is None:
                yield folder_entry(path, self._folders[path]), iter(())
            elif path == inode.paths[0]:
                yield self._first(path, inode.node)
            else:
                yield _link(path, inode), iter(())

    def _first(self, path: str, node: Node) -> tuple[Entry, Iterator[bytes]]:
        entry = node.entry
        if entry is None:
            raise ValueError(f"{path} has no entry")
        spool = self._spools[node.layer]
        content = pieces_of(path, spool, entry.offset, entry.stored_bytes) if entry.stored_bytes else iter(())
        return replace(entry, path=path), content


def folder_entry(path: str, node: Node) -> Entry:
    """A folder's entry, as listed or as a runtime would make it."""
    listed = node.entry
    return replace(listed, path=path) if listed else Entry(path=path, kind="dir", mode=FOLDER_MODE)


def _link(path: str, inode: Inode) -> Entry:
    entry = inode.node.entry
    if entry is None:
        raise ValueError(f"{path} has no entry")
    return Entry(
        path=path,
        kind="link",
        target=inode.paths[0],
        mode=entry.mode,
        uid=entry.uid,
        gid=entry.gid,
        mtime_ns=entry.mtime_ns,
        xattrs=entry.xattrs,
    )


def _above(path: str) -> Iterator[str]:
    """Every folder above a path, the root included."""
    while path:
        path = path.rpartition("/")[0]
        yield path


def _batched(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Small pieces joined: a compressor call for every header would cost more than the header."""
    batch: list[bytes] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece)
        if size >= BATCH_BYTES:
            yield b"".join(batch)
            batch, size = [], 0
    if batch:
        yield b"".join(batch)
