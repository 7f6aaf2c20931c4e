"""The container's output streams, shared by the engine and the launcher."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque


class _Stream:
    """One output stream: whose turn it is, and whether it is at the start of a line."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.lock = threading.Lock()
        self.at_start = True

    def write(self, data: bytes) -> None:
        """Writes everything, whatever it takes; a stream that nobody reads is no reason to stop the engine."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.fd, view) :]
            except BlockingIOError:
                time.sleep(0.01)  # a terminal shared with a program that made it non-blocking
            except OSError:
                return
        self.at_start = data.endswith(b"\n")


class Console:
    """The two output streams of the container, shared by the engine and the launcher.

    The engine's bytes go through as they are, each stream on its own. A line of the launcher's own never lands inside
    one of the engine's: it waits until one of the streams is at the start of a line.
    """

    def __init__(self, stdout_fd: int = 1, stderr_fd: int = 2) -> None:
        self._streams = {fd: _Stream(fd) for fd in (stdout_fd, stderr_fd)}
        self._waiting: deque[bytes] = deque()

    def pass_through(self, fd: int, chunk: bytes) -> None:
        """Writes the engine's bytes."""
        stream = self._streams[fd]
        with stream.lock:
            stream.write(chunk)
            self._flush(stream)

    def say(self, event: str, **values: object) -> None:
        """One line of JSON of the launcher's own."""
        self._waiting.append(json.dumps({"coldstart": event, **values}, default=str).encode() + b"\n")
        for stream in self._streams.values():
            if stream.lock.acquire(timeout=0.1):
                try:
                    self._flush(stream)
                finally:
                    stream.lock.release()

    def close(self) -> None:
        """Says what still waits: nothing of the engine's follows any more."""
        stream = next(iter(self._streams.values()))
        with stream.lock:
            if self._waiting and not stream.at_start:
                stream.write(b"\n")
            self._flush(stream)

    def _flush(self, stream: _Stream) -> None:
        while stream.at_start and self._waiting:
            stream.write(self._waiting.popleft())
