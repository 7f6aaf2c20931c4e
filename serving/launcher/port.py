"""A port with a few pages on it, for kubelet and Prometheus."""

from __future__ import annotations

import http.server
import socket
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Port(http.server.ThreadingHTTPServer):
    """Answers GET on every address of the pod, whichever family it has.

    Args:
        port: 0 for any free one.
        routes: path → what computes status, content type and body at each request.

    Raises:
        OSError: the port is taken.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, routes: Mapping[str, Callable[[], tuple[int, str, bytes]]]) -> None:
        dual = socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if dual else socket.AF_INET
        self.routes = routes
        super().__init__(("::" if dual else "0.0.0.0", port), _Page)  # noqa: S104 - kubelet and Prometheus come from outside

    def server_bind(self) -> None:
        """Accepts IPv4 too on an IPv6 socket."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no event."""


class _Page(http.server.BaseHTTPRequestHandler):
    timeout = 10
    protocol_version = "HTTP/1.1"
    server_version = "coldstart"
    sys_version = ""

    def do_GET(self) -> None:
        """Answers one of the routes."""
        routes = cast("Port", self.server).routes
        route = routes.get(self.path.partition("?")[0])
        status, kind, body = route() if route else (404, "text/plain", f"known: {', '.join(routes)}\n".encode())
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Probes come every few seconds: they are not worth a line."""
