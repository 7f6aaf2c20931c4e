"""Files from S3 to a directory, over many connections."""

from __future__ import annotations

import concurrent.futures
import hashlib
import multiprocessing
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from serving.launcher.refusal import Refused, explain
from serving.launcher.s3 import S3, fetch_range, s3_client, split_uri, transfer_errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_CHUNK_BYTES = 16 * 1024 * 1024
"""Of one ranged GET: large enough for S3's time to first byte not to matter, small enough to spread one file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Remote:
    """An object to be copied."""

    name: str
    key: str
    size: int
    etag: str
    sha256: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class FillJob:
    """A copy to be made; `limit_bytes` is of the directory that holds all copies, none means no eviction."""

    source: str
    copy: str
    manifest: str | None
    connections: int
    limit_bytes: int | None


class Download:
    """Files from S3 to a directory: ranges in parallel, by several processes, since one Python can't fill a fast link.

    A file gets its name when its last range has come and, with a known SHA-256, when it proved right.
    """

    def __init__(self, job: FillJob, directory: Path, remotes: Sequence[Remote]) -> None:
        self._bucket = split_uri(job.source)[0]
        self._directory, self._remotes = directory, remotes
        processes = min(8, os.cpu_count() or 1, job.connections)
        self._threads = -(-job.connections // processes)
        ranges = [
            (index, offset, min(_CHUNK_BYTES, remote.size - offset))
            for index, remote in enumerate(remotes)
            for offset in range(0, remote.size or 1, _CHUNK_BYTES)
        ]
        self._shares = [share for share in (ranges[first::processes] for first in range(processes)) if share]
        context = multiprocessing.get_context("fork")
        self._context = context
        self._failed = context.Event()
        self._errors = context.SimpleQueue()
        self._left = context.Array("l", [-(-max(r.size, 1) // _CHUNK_BYTES) for r in remotes] or [0])

    def run(self) -> None:
        """Downloads everything.

        Raises:
            Refused: with the first thing that went wrong.
        """
        for remote in self._remotes:
            with self._part(remote).open("wb") as file:
                file.truncate(remote.size)
        processes = [self._context.Process(target=self._work, args=(share,)) for share in self._shares]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if not self._errors.empty():
            raise Refused(self._errors.get())
        if any(process.exitcode for process in processes):
            raise Refused(f"a download process ended with {[process.exitcode for process in processes]}")

    def _part(self, remote: Remote) -> Path:
        path = self._directory / remote.name
        return path.with_name(f"{path.name}.part")

    def _work(self, share: Sequence[tuple[int, int, int]]) -> None:
        client = s3_client(self._threads)
        with concurrent.futures.ThreadPoolExecutor(self._threads) as pool:
            for index, offset, length in share:
                pool.submit(self._range, client, index, offset, length)

    def _range(self, client: S3, index: int, offset: int, length: int) -> None:
        remote = self._remotes[index]
        if self._failed.is_set():
            return
        try:
            fd = os.open(self._part(remote), os.O_WRONLY | os.O_CLOEXEC)
            try:
                fetch_range(client, (self._bucket, remote.key, remote.etag), offset, length, fd)
            finally:
                os.close(fd)
            with self._left.get_lock():
                self._left[index] -= 1
                last = self._left[index] == 0
            if last:
                self._finish(remote)
        except (OSError, Refused, *transfer_errors()) as error:
            if not self._failed.is_set():
                self._failed.set()
                self._errors.put(f"s3://{self._bucket}/{remote.key}: {explain(error)}")

    def _finish(self, remote: Remote) -> None:
        part = self._part(remote)
        if remote.sha256 is not None:
            with part.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != remote.sha256:
                part.unlink()
                raise Refused(f"SHA-256 is {digest}, staged was {remote.sha256}")
        part.rename(self._directory / remote.name)
