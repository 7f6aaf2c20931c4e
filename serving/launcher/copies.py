"""Copies of weights on a file system: complete or not there."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from serving.launcher.config import FORMAT

if TYPE_CHECKING:
    from collections.abc import Mapping

MARKER = ".coldstart-complete"


def boot_id() -> str:
    """Of the running kernel: data that was never flushed is only trusted until the machine restarts."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def entry_name(source: str) -> str:
    """The directory name of a source in a node cache: readable, and unique by the whole URI."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(source.rstrip("/").split("/")[-3:])).strip("-.")
    return f"{readable[-100:]}-{hashlib.sha256(source.encode()).hexdigest()[:12]}"


def read_marker(directory: Path) -> dict[str, Any] | None:
    """What the marker of a copy says; none without one."""
    try:
        document = json.loads((directory / MARKER).read_text())
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", document) if isinstance(document, dict) else None


def is_complete(directory: Path, source: str | None = None) -> bool:
    """Whether a directory is a whole copy of `source` (of anything, without one): every file, every size, on disk.

    A copy whose bytes were never flushed counts only until the machine restarts: after a crash of the node its files
    may have their names and sizes but not their content.
    """
    marker = read_marker(directory)
    if marker is None or marker.get("format") != FORMAT or source not in {None, marker.get("source")}:
        return False
    if not (marker.get("flushed") or marker.get("boot_id") == boot_id()):
        return False
    files = cast("dict[str, int]", marker.get("files", {}))
    try:
        return bool(files) and all((directory / name).stat().st_size == size for name, size in files.items())
    except OSError:
        return False


def write_marker(directory: Path, marker: Mapping[str, object]) -> None:
    """Puts the marker in place in one step."""
    fresh = directory / f"{MARKER}.{os.getpid()}"
    with fresh.open("w") as file:
        json.dump(marker, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(directory / MARKER)


def flush_copy(directory: Path) -> None:
    """Flushes a complete copy to the disk and notes it, so that it outlives a restart of the machine."""
    marker = read_marker(directory)
    if marker is None or marker.get("flushed"):
        return
    for name in marker["files"]:
        with (directory / name).open("rb") as file:
            os.fsync(file.fileno())
    write_marker(directory, {**marker, "flushed": True})


def safetensors_bytes(directory: Path) -> int:
    """Bytes of the weights in a directory, as the engine's loaders see them: not in its subdirectories."""
    return sum(path.stat().st_size for path in directory.glob("*.safetensors"))


class Lock:
    """An flock on a file beside a copy: exclusive to fill or remove it, shared while it is in use.

    The kernel drops it with the process: a pod that dies never blocks another one, and never leaves a copy locked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def take(self, *, shared: bool) -> bool:
        """Takes or changes the lock at once, if it can be had."""
        try:
            fcntl.flock(self.fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def drop(self) -> None:
        """Gives the lock back, and keeps the file: another process may be waiting on it."""
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Gives everything back."""
        os.close(self.fd)


def lock_path(copy: Path) -> Path:
    """The lock file of a copy."""
    return copy.parent / f".{copy.name}.lock"


def partial_path(copy: Path) -> Path:
    """Where a copy is filled before it gets its name."""
    return copy.parent / f".{copy.name}.partial"
