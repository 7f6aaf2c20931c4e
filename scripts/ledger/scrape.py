"""The recorder's own port: /metrics for Prometheus, /healthz for the kubelet."""

from __future__ import annotations

import http.server
import socket
from collections.abc import Callable
from typing import cast

from scripts.ledger.exposition import CONTENT_TYPE


class MetricsServer(http.server.ThreadingHTTPServer):
    """Answers on every address of the pod, whichever family it has."""

    daemon_threads = True

    def __init__(self, port: int, text: Callable[[], str], healthy: Callable[[], bool]) -> None:
        dual = socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if dual else socket.AF_INET
        self.text, self.healthy = text, healthy
        super().__init__(("::" if dual else "0.0.0.0", port), _Handler)  # noqa: S104 - Prometheus and kubelet come from outside

    def server_bind(self) -> None:
        """Accepts IPv4 too on an IPv6 socket."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no event."""


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = 10
    protocol_version = "HTTP/1.1"
    server_version = "coldstart"
    sys_version = ""

    def do_GET(self) -> None:
        """Answers one of the two routes."""
        server = cast("MetricsServer", self.server)
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, CONTENT_TYPE, server.text())
            case "/healthz":
                healthy = server.healthy()
                self._answer(
                    200 if healthy else 503, "text/plain", "ok\n" if healthy else "the first list is not complete\n"
                )
            case _:
                self._answer(404, "text/plain", "known: /metrics, /healthz\n")

    def _answer(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Scrapes come every few seconds: they are not worth a line."""
