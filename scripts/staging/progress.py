"""Progress as lines: what a log, a pipe and a pod show. A terminal gets more (scripts.stage_screen)."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TextIO, cast

from scripts.staging.meter import Meter, Snapshot

EVERY_S = 5.0
MARK = "coldstart-progress "
"""Begins a line that another coldstart reads: the one that started the Job."""


@contextmanager
def lines(
    meter: Meter, *, to: TextIO | None = None, every_s: float = EVERY_S, machine: bool = False
) -> Generator[None]:
    """Writes a line every few seconds while the body runs, and one at its end.

    Args:
        meter: what is shown.
        to: where; standard error when None.
        every_s: seconds between lines.
        machine: write what `parse` reads instead of what a person does.
    """
    stream = to or sys.stderr

    def write() -> None:
        snapshot = meter.snapshot()
        stream.write((encode(snapshot) if machine else snapshot.line()) + "\n")
        stream.flush()

    with repeated(write, every_s):
        yield


@contextmanager
def repeated(tell: Callable[[], None], every_s: float) -> Generator[None]:
    """Calls it every so many seconds while the body runs, and once at its end."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            tell()

    thread = threading.Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        tell()


def encode(snapshot: Snapshot) -> str:
    """A snapshot as one line."""
    return MARK + json.dumps(asdict(snapshot))


def parse(line: str) -> Snapshot | None:
    """The snapshot of a line; None for any other line."""
    if not line.startswith(MARK):
        return None
    try:
        members = cast("dict[str, float]", json.loads(line.removeprefix(MARK)))
        return Snapshot(
            total_bytes=int(members["total_bytes"]),
            done_bytes=int(members["done_bytes"]),
            sent_bytes=int(members["sent_bytes"]),
            total_files=int(members["total_files"]),
            done_files=int(members["done_files"]),
            elapsed_s=float(members["elapsed_s"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
