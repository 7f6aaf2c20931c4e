"""The memory that staging may use for bytes on their way: a fixed amount, lent out in pieces and used again."""

from __future__ import annotations

import threading
from collections import defaultdict


class Closed(Exception):  # noqa: N818 - not an error of its own: another thread failed first
    """The buffers were closed while somebody waited for one."""


class Buffers:
    """Lends byte arrays. Those that come back are lent again: freeing and allocating them would fragment the heap."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._allocated_bytes = 0
        self._idle: defaultdict[int, list[bytearray]] = defaultdict(list)
        self._changed = threading.Condition()
        self._closed = False

    def lend(self, size: int, *, wait: bool) -> bytearray | None:
        """A buffer of `size` bytes with anything in it.

        Args:
            size: bytes; at most the limit.
            wait: until one is free; otherwise None when none is.

        Raises:
            Closed: the buffers were closed.
        """
        with self._changed:
            while True:
                if self._closed:
                    raise Closed
                buffer = self._take(size)
                if buffer is not None or not wait:
                    return buffer
                self._changed.wait()

    def give_back(self, buffer: bytearray) -> None:
        """Returns a buffer that `lend` gave."""
        with self._changed:
            self._idle[len(buffer)].append(buffer)
            self._changed.notify_all()

    def close(self) -> None:
        """Wakes everybody who waits, with `Closed`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _take(self, size: int) -> bytearray | None:
        if self._idle[size]:
            return self._idle[size].pop()
        self._drop_idle(size)
        if self._allocated_bytes + size > self._limit_bytes:
            return None
        self._allocated_bytes += size
        return bytearray(size)

    def _drop_idle(self, wanted: int) -> None:
        """Frees idle buffers of other sizes, as many as it takes."""
        for size, buffers in self._idle.items():
            while buffers and self._allocated_bytes + wanted > self._limit_bytes:
                buffers.pop()
                self._allocated_bytes -= size
