"""What `coldstart stage` shows while bytes move: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from scripts.staging.meter import Meter, Snapshot
from scripts.staging.progress import lines, repeated

REFRESH_S = 0.2


def shown(meter: Meter, what: str) -> AbstractContextManager[None]:
    """Shows a meter on standard error while the body runs."""
    if not sys.stderr.isatty():
        return lines(meter)
    return bar(meter.snapshot, what, console=Console(stderr=True))


@contextmanager
def bar(snapshot: Callable[[], Snapshot], what: str, *, console: Console) -> Generator[None]:
    """A bar with bytes, rate, files and the time that is left."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("{task.fields[files]} files"),
        TimeRemainingColumn(),
        console=console,
    )
    with progress:
        task = progress.add_task(what, total=snapshot().total_bytes, files="")

        def update() -> None:
            now = snapshot()
            files = f"{now.done_files} of {now.total_files}"
            progress.update(task, completed=now.done_bytes, total=now.total_bytes, files=files)

        with repeated(update, REFRESH_S):
            yield
