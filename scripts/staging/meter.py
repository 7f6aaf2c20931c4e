"""How far staging is: counted by the threads that move bytes, read by whoever shows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from scripts.staging.selection import Selection


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Where things stand.

    Attributes:
        done_bytes: in the bucket and hashed, whether sent by this run or an earlier one.
        sent_bytes: sent by this run.
        elapsed_s: since the first byte was asked for.
    """

    total_bytes: int
    done_bytes: int
    sent_bytes: int
    total_files: int
    done_files: int
    elapsed_s: float

    @property
    def rate_bytes_s(self) -> float:
        """Mean rate of this run."""
        return self.done_bytes / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds to the end at the mean rate; None before there is one."""
        return (self.total_bytes - self.done_bytes) / self.rate_bytes_s if self.rate_bytes_s > 0 else None

    def line(self) -> str:
        """One line for a log."""
        share = self.done_bytes / self.total_bytes if self.total_bytes else 1.0
        left = "" if self.left_s is None else f", {self.left_s:.0f} s left"
        return (
            f"{share:4.0%}  {self.done_bytes / 1e9:.2f} of {self.total_bytes / 1e9:.2f} GB  "
            f"{self.rate_bytes_s / 1e6:.0f} MB/s  {self.done_files} of {self.total_files} files{left}"
        )


class Meter:
    """Counts; safe from several threads."""

    def __init__(self, selection: Selection, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started_s = clock()
        self._total_bytes = selection.total_bytes
        self._total_files = len(selection.kept)
        self._lock = threading.Lock()
        self._done: dict[str, int] = {}
        self._sent_bytes = 0
        self._done_files = 0

    def advance(self, path: str, bytes_: int, *, sent: bool) -> None:
        """Some bytes of a file are in the bucket."""
        with self._lock:
            self._done[path] = self._done.get(path, 0) + bytes_
            if sent:
                self._sent_bytes += bytes_

    def restart(self, path: str) -> None:
        """A file begins again; what it had counts no more."""
        with self._lock:
            self._done.pop(path, None)

    def finish(self, path: str, bytes_: int) -> None:
        """A file is whole."""
        with self._lock:
            self._done[path] = bytes_
            self._done_files += 1

    def snapshot(self) -> Snapshot:
        """Where things stand now."""
        with self._lock:
            return Snapshot(
                total_bytes=self._total_bytes,
                done_bytes=sum(self._done.values()),
                sent_bytes=self._sent_bytes,
                total_files=self._total_files,
                done_files=self._done_files,
                elapsed_s=self._clock() - self._started_s,
            )
