"""What the launcher is doing, for the probes."""

from __future__ import annotations

import threading
from typing import Literal

State = Literal["starting", "loading", "warming", "ready", "refused", "draining", "ended"]


class Status:
    """What the launcher is doing, for the probes."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may find the main thread inside
        self.state: State = "starting"
        self.reason = "the launcher starts"
        self.stopping = threading.Event()

    def set(self, state: State, reason: str) -> None:
        """A new state; one that is draining or has ended stays so."""
        with self._lock:
            order: tuple[State, ...] = ("draining", "ended")
            if self.state in order and (state not in order or order.index(state) < order.index(self.state)):
                return
            self.state, self.reason = state, reason

    def decided(self) -> bool:
        """Whether the start is over, one way or the other."""
        return self.state in {"ready", "refused"}
