"""Waiting for a condition, never for a length of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(
    condition: Callable[[], Found | None],
    *,
    what: str | Callable[[], str],
    patience_s: float = 60.0,
    every_s: float = 0.05,
) -> Found:
    """Calls `condition` until it returns something true, and returns that.

    Args:
        condition: asks the world once.
        what: what is waited for, for the error; a function when it can say what it saw last.
        patience_s: after this long the test fails.
        every_s: pause between two questions.

    Raises:
        TimeoutError: the condition did not come.
    """
    deadline = time.monotonic() + patience_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            text = what if isinstance(what, str) else what()
            raise TimeoutError(f"not within {patience_s:g} s: {text}")
        time.sleep(every_s)
