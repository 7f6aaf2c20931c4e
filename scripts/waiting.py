"""Waiting for the cloud: always with an end, always saying what for, and at the end what holds it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scripts.failure import Failure

Say = Callable[[str], None]
SHOWN = 5
"""Things named on one line of progress."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long to wait, and how often to ask.

    Attributes:
        limit_s: after this long it is a failure.
        every_s: between two questions.
        clock, sleep: time itself.
    """

    limit_s: float
    every_s: float = 5.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class TimedOut(Failure):
    """It did not happen in time.

    Attributes:
        remaining: what was still there.
    """

    def __init__(self, message: str, remaining: Sequence[str]) -> None:
        self.remaining = remaining
        super().__init__(message)


def in_time(done: Callable[[], bool], patience: Patience) -> bool:
    """Asks until something is done, or the patience is over; whether it was done."""
    started = patience.clock()
    while not done():
        if patience.clock() - started > patience.limit_s:
            return False
        patience.sleep(patience.every_s)
    return True


def wait_for(
    what: str,
    remaining: Callable[[], Sequence[str]],
    *,
    patience: Patience,
    say: Say,
    holders: Callable[[Sequence[str]], Sequence[str]] = lambda _: (),
    go_on: str,
) -> None:
    """Waits until nothing remains.

    Args:
        what: that is waited for, such as `instances to be terminated`.
        remaining: asks once; names of what is still there.
        patience: how long.
        say: told whenever what remains changes.
        holders: asked at the end: what holds the things that remain, one sentence each.
        go_on: what the person can do then.

    Raises:
        TimedOut: with what remains, what holds it, and how to go on.
    """
    left: list[str] = []

    def nothing_left() -> bool:
        nonlocal left
        before, left = left, list(remaining())
        if left and left != before:
            say(f"waiting for {what}: {_some(left)}")
        return not left

    if not in_time(nothing_left, patience):
        held = "".join(f"\n  held by {each}" for each in holders(left))
        late = f"{what}: not within {patience.limit_s:.0f} s; still there: {', '.join(left)}"
        raise TimedOut(f"{late}{held}\n  to go on: {go_on}", left)


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
