"""Weights, as the pod finds them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serving.launcher.copies import MARKER, Lock, entry_name, is_complete, lock_path
from serving.launcher.download import FillJob
from serving.launcher.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from serving.launcher.config import WeightsPath
    from serving.launcher.worker import Worker


_POLL_S = 0.1
"""Between two looks at a copy that another pod fills."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """Weights that are ready for the engine. `lock` is held as long as the pod uses the copy."""

    path: WeightsPath
    directory: Path | None
    origin: str
    lock: Lock | None = None


def prepare(path: WeightsPath, worker: Worker) -> Prepared:
    """Makes the weights of one path ready.

    Raises:
        Refused: this path can't be used now.
    """
    if path.kind == "node-cache":
        return _from_node_cache(path, worker)
    directory = path.directory
    if directory is None:
        return Prepared(path=path, directory=None, origin="s3")
    if path.kind == "shared-fs" and not is_complete(directory):
        raise Refused(
            f"{directory} holds no complete copy: {MARKER} is missing, or files differ from it; fill it first"
        )
    if path.kind == "baked" and not ((directory / "config.json").is_file() and any(directory.glob("*.safetensors"))):
        raise Refused(f"{directory} holds no config.json with *.safetensors beside it")
    return Prepared(path=path, directory=directory, origin="directory")


def _from_node_cache(path: WeightsPath, worker: Worker) -> Prepared:
    """The node's copy: found, waited for while another pod fills it, or filled."""
    root = path.directory or Path()
    copy = root / entry_name(path.source)
    job = FillJob(
        source=path.source,
        copy=str(copy),
        manifest=path.manifest,
        connections=path.connections,
        limit_bytes=path.limit_bytes,
    )
    try:
        lock = Lock(lock_path(copy))
    except OSError as error:
        raise Refused(f"{root} can't be used: {error.strerror}") from error
    try:
        origin = _hold_copy(
            lock, copy, path, lambda left_s: worker.run("fill", job, left_s, lock=lock), worker.stopping
        )
    except Refused:
        lock.close()
        raise
    os.utime(lock.path)
    return Prepared(path=path, directory=copy, origin=origin, lock=lock)


def _hold_copy(
    lock: Lock, copy: Path, path: WeightsPath, filler: Callable[[float], object], stopping: Callable[[], bool]
) -> str:
    """Ends with a shared lock on a complete copy; `node` if it was there, `s3` if this pod filled it."""
    deadline = time.monotonic() + path.fill_timeout_s
    filled = False
    while True:
        if lock.take(shared=True):  # another pod may come between the two kinds of lock, and does no harm
            if is_complete(copy, path.source):
                return "s3" if filled else "node"
            lock.drop()
        left_s = deadline - time.monotonic()
        if left_s <= 0 or stopping():
            raise Refused(f"another pod still fills {copy} after {path.fill_timeout_s:.0f} s")
        if not lock.take(shared=False):
            time.sleep(_POLL_S)
        elif not is_complete(copy, path.source):
            if filled:
                raise Refused(f"{copy} is not complete although it was filled")
            filler(left_s)
            filled = True
