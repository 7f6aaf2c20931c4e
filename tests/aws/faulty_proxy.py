"""A proxy on loopback that passes requests through and breaks some of them on purpose.

It reads one request at a time, body included, decides, and passes it on over a fresh connection. Faults are taken in
order, each for the first request that it matches.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

CHUNK = 1 << 16
Kind = Literal["reset", "truncate", "status", "stall", "slow", "corrupt", "hang-up"]


@dataclass
class Fault:
    """One thing that goes wrong, `times` times, or for `lasts_s` from its first request on.

    Attributes:
        kind: `reset` cuts the connection while the request's body arrives; `truncate` sends half of the response's
            body; `status` answers instead of the server; `stall` passes nothing on until `released` is set; `slow`
            holds the answer back until `released` is set or the time is over; `corrupt` flips one bit of the request's
            body; `hang-up` passes the request on and closes without answering.
        match: regular expression over `METHOD path`.
        lasts_s: seconds; `times` does not count then.
    """

    kind: Kind
    match: str
    times: int = 1
    lasts_s: float | None = None
    status: int = 503
    code: str = "SlowDown"
    released: threading.Event = field(default_factory=threading.Event)
    began_s: float | None = None

    def takes(self, line: str) -> bool:
        """Whether this request is one that goes wrong; it is counted."""
        if not re.search(self.match, line):
            return False
        if self.lasts_s is not None:
            self.began_s = self.began_s or time.monotonic()
            return time.monotonic() < self.began_s + self.lasts_s
        if self.times <= 0:
            return False
        self.times -= 1
        return True


@dataclass(frozen=True)
class Seen:
    """A request that came by."""

    line: str
    body_bytes: int
    fault: Kind | None


class FaultyProxy:
    """A proxy that is listening."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.limit_bytes_s: float | None = None
        self._threads: list[threading.Thread] = []

    @classmethod
    @contextmanager
    def running(cls, upstream: tuple[str, int]) -> Generator[FaultyProxy]:
        proxy = cls(upstream)
        acceptor = threading.Thread(target=proxy._accept, daemon=True)
        acceptor.start()
        try:
            yield proxy
        finally:
            proxy._close()
            acceptor.join()

    def fault(self, kind: Kind, match: str, **members: object) -> Fault:
        """Adds a fault."""
        fault = Fault(kind, match, **members)
        with self._lock:
            self.faults.append(fault)
        return fault

    def sent_bytes(self, match: str = "^PUT ") -> int:
        """Bytes of request bodies that were passed on."""
        with self._lock:
            return sum(seen.body_bytes for seen in self.seen if re.search(match, seen.line))

    def count(self, match: str) -> int:
        """Requests that matched."""
        with self._lock:
            return sum(1 for seen in self.seen if re.search(match, seen.line))

    def _close(self) -> None:
        self._closing.set()
        for fault in self.faults:
            fault.released.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with client, suppress(OSError), client.makefile("rb") as reader:
            while (head := _head(reader)) is not None:
                if not self._exchange(client, reader, head):
                    return

    def _take(self, line: str) -> Fault | None:
        with self._lock:
            return next((fault for fault in self.faults if fault.takes(line)), None)

    def _exchange(self, client: socket.socket, reader: object, head: bytes) -> bool:
        """One request and its answer; False when the connection is over."""
        line = head.split(b"\r\n", 1)[0].decode("latin-1")
        length = _length(head)
        fault = self._take(line)
        kind = fault.kind if fault else None
        if kind == "reset":
            reader.read(min(length, length // 2))
            self._note(line, 0, kind)
            _reset(client)
            return False
        if kind == "stall":
            self._note(line, 0, kind)
            fault.released.wait(30)
            return False
        if re.search(rb"\r\nexpect: *100-continue", head, re.IGNORECASE):
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = re.sub(rb"\r\nexpect: *100-continue", b"", head, flags=re.IGNORECASE)
        body = self._paced_read(reader, length)
        if len(body) < length:
            return False  # the client is gone
        self._note(line, len(body), kind)
        if kind == "status":
            client.sendall(_error(fault, head=line.startswith("HEAD")))
            return True
        if kind == "corrupt" and body:
            body = bytes([body[0] ^ 1]) + body[1:]
        return self._forward(client, head, body, fault)

    def _paced_read(self, reader: object, length: int) -> bytes:
        """The body, no faster than the limit of one connection."""
        limit_bytes_s = self.limit_bytes_s
        if limit_bytes_s is None or length == 0:
            return reader.read(length)
        pieces, pause = [], threading.Event()
        for start in range(0, length, CHUNK):
            size = min(CHUNK, length - start)
            pieces.append(reader.read(size))
            pause.wait(size / limit_bytes_s)
        return b"".join(pieces)

    def _note(self, line: str, body_bytes: int, kind: Kind | None) -> None:
        with self._lock:
            self.seen.append(Seen(line=line, body_bytes=body_bytes, fault=kind))

    def _forward(self, client: socket.socket, head: bytes, body: bytes, fault: Fault | None) -> bool:
        kind = fault.kind if fault else None
        with socket.create_connection(self._upstream) as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server.sendall(head + body)
            with server.makefile("rb") as answer:
                answer_head = _head(answer)
                if answer_head is None or kind == "hang-up":
                    return False
                if kind == "slow":
                    fault.released.wait(2)
                client.sendall(answer_head)
                left = 0 if head.startswith(b"HEAD") else _length(answer_head)
                if kind == "truncate":
                    left //= 2
                if b"chunked" in answer_head.lower():
                    return _relay_chunked(answer, client)
                while left > 0:
                    piece = answer.read(min(CHUNK, left))
                    if not piece:
                        return False
                    client.sendall(piece)
                    left -= len(piece)
        return kind != "truncate"


def _head(reader: object) -> bytes | None:
    lines = []
    while True:
        line = reader.readline(CHUNK)
        if not line:
            return None
        lines.append(line)
        if line == b"\r\n":
            return b"".join(lines)


def _length(head: bytes) -> int:
    match = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return int(match[1]) if match else 0


def _relay_chunked(answer: object, client: socket.socket) -> bool:
    while True:
        size_line = answer.readline(CHUNK)
        client.sendall(size_line)
        size = int(size_line.split(b";")[0], 16)
        client.sendall(answer.read(size + 2))
        if size == 0:
            return True


def _reset(client: socket.socket) -> None:
    """Ends a connection with RST instead of FIN."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def _error(fault: Fault, *, head: bool) -> bytes:
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>'
        f"<Error><Code>{fault.code}</Code><Message>injected</Message><RequestId>1</RequestId></Error>"
    ).encode()
    start = f"HTTP/1.1 {fault.status} Injected\r\nContent-Type: application/xml\r\nContent-Length: {len(text)}\r\n\r\n"
    return start.encode() + (b"" if head else text)
