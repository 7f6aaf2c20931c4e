"""How far reading or writing is: a bar on a terminal, a line every few seconds otherwise; always on stderr."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

EVERY_S = 5.0


class Meter:
    """Counts bytes from several threads."""

    def __init__(self, what: str, total_bytes: int) -> None:
        self._what, self._total, self._done = what, total_bytes, 0
        self._lock = threading.Lock()
        self._started = self._said = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            columns = (
                TextColumn(self._what),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._what, total=self._total)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, size: int) -> None:
        """Some more bytes are done."""
        with self._lock:
            self._done += size
            if self._bar is not None:
                self._bar.update(self._task, completed=self._done)
                return
            now = time.monotonic()
            if now - self._said >= EVERY_S:
                self._said = now
                rate = self._done / (now - self._started) / 1e6
                share = self._done / self._total if self._total else 1.0
                line = (
                    f"{self._what}: {share:4.0%}  {self._done / 1e9:.2f} of {self._total / 1e9:.2f} GB  {rate:.0f} MB/s"
                )
                print(line, file=sys.stderr, flush=True)  # noqa: T201 - progress for a log
