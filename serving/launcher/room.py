"""Room in a node cache: who may stay."""

from __future__ import annotations

import contextlib
import shutil
import stat
from typing import TYPE_CHECKING

from serving.launcher.copies import Lock, lock_path, partial_path
from serving.launcher.refusal import Refused

if TYPE_CHECKING:
    from pathlib import Path


def copies_of(root: Path) -> list[Path]:
    """Complete copies in a node cache, and places of partial ones, least recently used first."""
    names = {path.name.removeprefix(".").removesuffix(".lock") for path in root.glob(".*.lock")}
    return sorted((root / name for name in names), key=lambda copy: lock_path(copy).stat().st_mtime)


def tree_bytes(directory: Path) -> tuple[int, int]:
    """Bytes below a directory: what its files say, and what they hold on the disk; files that vanish count nothing."""
    stated, held = 0, 0
    for path in directory.rglob("*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                stated += status.st_size
                held += status.st_blocks * 512
    return stated, held


def make_room(copy: Path, needed: int, limit_bytes: int) -> list[str]:
    """Removes unused copies, least recently used first, until `needed` bytes fit under the limit and on the disk.

    Returns:
        The names that were removed.

    Raises:
        Refused: what is in use leaves too little room.
    """
    root, removed = copy.parent, list[str]()
    others = [other for other in copies_of(root) if other != copy]
    held = {other: tree_bytes(other)[0] + tree_bytes(partial_path(other))[0] for other in others}
    already = tree_bytes(partial_path(copy))[1]

    def lacking() -> int:
        free = shutil.disk_usage(root).free + already
        return needed - min(limit_bytes - sum(held.values()), free)

    for other in others:
        if lacking() <= 0:
            break
        if held[other] and remove_copy(other):
            removed.append(other.name)
            held[other] = 0
    if lacking() > 0:
        raise Refused(
            f"{root} has no room for {needed} bytes: {lacking()} bytes are lacking. Its limit is {limit_bytes} bytes, "
            f"{shutil.disk_usage(root).free} bytes are free on its disk, and what else it holds is in use"
        )
    return removed


def remove_copy(copy: Path) -> bool:
    """Removes a copy that nobody uses; whether it is gone. It loses its name first: half of it is never seen."""
    lock = Lock(lock_path(copy))
    try:
        if not lock.take(shared=False):
            return False
        grave = copy.parent / f".{copy.name}.removed"
        if copy.exists():
            copy.rename(grave)
        for leftover in (grave, partial_path(copy)):
            shutil.rmtree(leftover, ignore_errors=True)
        return not grave.exists()
    finally:
        lock.close()
