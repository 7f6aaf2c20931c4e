"""The one clock of a start."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


_ODD_AGE_S = 3600.0
"""An interpreter does not start for an hour: such an age is a /proc of another clock."""


class Timeline:
    """Seconds since the container started, on a clock that never jumps, anchored once to the wall.

    The wall clock of a fresh node is often set while the engine loads: durations are taken from the monotonic clock
    only, and `clock_jump_s` says by how much the wall clock has moved against it since.
    """

    def __init__(
        self,
        age_s: float = 0.0,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic, self._wall = monotonic, wall
        self._zero = monotonic() - age_s
        self.started_at = wall() - age_s

    def now(self) -> float:
        """Seconds since the container started."""
        return self._monotonic() - self._zero

    def clock_jump_s(self) -> float:
        """How far the wall clock has been set forward (or back, negative) since the anchor."""
        return self._wall() - self.started_at - self.now()


def process_age_s() -> float:
    """Seconds since this process was started, the interpreter's own start included; 0 where /proc can't tell.

    The container's first process is this one, so its age is the container's. /proc counts start times in clock ticks
    since boot (proc_pid_stat(5), field 22).
    """
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
    return age if 0.0 <= age < _ODD_AGE_S else 0.0
