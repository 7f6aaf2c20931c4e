"""A relay on loopback that holds every connection to a rate and counts what passes towards the server.

S3 and content networks give each connection a share (S3: 85 to 90 MB/s), so how many are used decides the rate; a
server on the same machine gives the first connection everything. The relay brings that back at the machine's scale.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

CHUNK = 1 << 17


class Relay:
    """Listens; every connection is passed on, paced in both directions."""

    def __init__(self, port: int, mb_s: float | None) -> None:
        self._upstream = ("127.0.0.1", port)
        self._mb_s = mb_s
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._lock = threading.Lock()
        self.sent_bytes = 0
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @classmethod
    @contextmanager
    def running(cls, port: int, mb_s: float | None) -> Generator[Relay]:
        """A relay before a port.

        Args:
            port: of the server.
            mb_s: of one connection and direction; None for no limit.
        """
        relay = cls(port, mb_s)
        threading.Thread(target=relay._accept, daemon=True).start()
        try:
            yield relay
        finally:
            with suppress(OSError):
                relay._listener.shutdown(socket.SHUT_RDWR)
            relay._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._upstream)
            for a, b, counted in ((client, server, True), (server, client, False)):
                a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass, args=(a, b, counted), daemon=True).start()

    def _pass(self, a: socket.socket, b: socket.socket, counted: bool) -> None:  # noqa: FBT001 - a thread's argument
        due = time.monotonic()
        with suppress(OSError):
            while data := a.recv(CHUNK):
                b.sendall(data)
                if counted:
                    with self._lock:
                        self.sent_bytes += len(data)
                if self._mb_s is not None:
                    # A connection that was idle starts anew; it doesn't save up what it didn't use.
                    due = max(due, time.monotonic()) + len(data) / (self._mb_s * 1e6)
                    time.sleep(max(0.0, due - time.monotonic()))
        for end, how in ((b, socket.SHUT_WR), (a, socket.SHUT_RD)):
            with suppress(OSError):
                end.shutdown(how)
