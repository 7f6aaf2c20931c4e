"""`launch.py --fill`: one copy on a shared file system, made by a Job."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from serving.launcher.console import Console
from serving.launcher.copies import Lock, flush_copy, is_complete, lock_path
from serving.launcher.download import FillJob
from serving.launcher.fill import fill
from serving.launcher.refusal import Refused, explain
from serving.launcher.s3 import transfer_errors

if TYPE_CHECKING:
    from collections.abc import Sequence


def fill_main(arguments: Sequence[str]) -> int:
    """`launch.py --fill`: one copy on a shared file system, made by a Job."""
    parser = argparse.ArgumentParser(
        prog="launch.py --fill", description="Fills a shared file system with a staged model."
    )
    parser.add_argument("--source", required=True, help="s3://BUCKET/PREFIX/ of the staged revision")
    parser.add_argument("--dir", required=True, type=Path, help="the copy to make")
    parser.add_argument("--manifest", help="s3://BUCKET/KEY of the staged manifest: sizes and SHA-256 are verified")
    parser.add_argument("--connections", type=int, default=32, help="ranged GETs in flight")
    parser.add_argument("--timeout-s", type=float, default=7200.0, help="for waiting on another fill of the same copy")
    given = parser.parse_args(arguments)
    copy: Path = given.dir.resolve()
    job = FillJob(
        source=given.source, copy=str(copy), manifest=given.manifest, connections=given.connections, limit_bytes=None
    )
    lock = Lock(lock_path(copy))
    deadline = time.monotonic() + given.timeout_s
    while not lock.take(shared=False):
        if time.monotonic() > deadline:
            raise Refused(f"another process still fills {copy}")
        time.sleep(0.5)
    if is_complete(copy, job.source):
        Console().say("complete", dir=str(copy), source=job.source)
        return 0
    try:
        result = fill(job)
        flush_copy(copy)
    except (OSError, *transfer_errors()) as error:
        raise Refused(explain(error)) from error
    Console().say("filled", dir=str(copy), source=job.source, **result)
    return 0
