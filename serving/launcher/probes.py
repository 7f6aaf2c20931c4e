"""What kubelet, Prometheus and `coldstart measure` ask."""

from __future__ import annotations

import http.server
import json
import socket
from typing import TYPE_CHECKING, cast

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from serving.launcher.engine_api import HEALTH_TIMEOUT_S
from serving.launcher.metrics import LedgerCollector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from serving.launcher.config import Config
    from serving.launcher.engine_api import EngineApi
    from serving.launcher.ledger import Ledger
    from serving.launcher.status import Status
    from serving.launcher.timeline import Timeline


class ProbeServer(http.server.ThreadingHTTPServer):
    """The launcher's own port, on every address of the pod, whichever family it has."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, routes: Mapping[str, Callable[[], tuple[int, str, bytes]]]) -> None:
        dual = socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if dual else socket.AF_INET
        self.routes = routes
        super().__init__(("::" if dual else "0.0.0.0", port), _Handler)  # noqa: S104 - kubelet and Prometheus come from outside

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
        """Answers one of the routes."""
        server = cast("ProbeServer", self.server)
        route = server.routes.get(self.path.partition("?")[0])
        status, kind, body = route() if route else (404, "text/plain", f"known: {', '.join(server.routes)}\n".encode())
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Probes come every few seconds: they are not worth a line."""


def _json(status: int, document: Mapping[str, object]) -> tuple[int, str, bytes]:
    return status, "application/json", json.dumps(document).encode() + b"\n"


class Probes:
    """What kubelet, Prometheus and `coldstart measure` ask."""

    def __init__(self, config: Config, timeline: Timeline, ledger: Ledger, status: Status, api: EngineApi) -> None:
        self._ledger, self._status, self._api = ledger, status, api
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(LedgerCollector(config, timeline, ledger, status))  # pyright: ignore[reportArgumentType] - its stub wants a subclass

    def routes(self) -> dict[str, Callable[[], tuple[int, str, bytes]]]:
        """Path → answer."""
        return {
            "/startup": self.startup,
            "/ready": self.ready,
            "/live": self.live,
            "/ledger": self.ledger,
            "/metrics": lambda: (200, CONTENT_TYPE_LATEST, generate_latest(self._registry)),
        }

    def startup(self) -> tuple[int, str, bytes]:
        """Whether the start is decided."""
        return self._answer(ok=self._status.state not in {"starting", "loading", "warming"}, reason=self._status.reason)

    def ready(self) -> tuple[int, str, bytes]:
        """Whether a request would be answered, rightly and at normal speed."""
        if self._status.state != "ready":
            return self._answer(ok=False, reason=self._status.reason)
        health = self._api.health(HEALTH_TIMEOUT_S)
        return self._answer(
            ok=health == http.HTTPStatus.OK, reason=f"the engine's /health answers {health or 'nothing'}"
        )

    def live(self) -> tuple[int, str, bytes]:
        """Whether a restart would help: only when a loaded engine says that it is dead."""
        if not self._status.decided():
            return self._answer(ok=True, reason=self._status.reason)
        health = self._api.health(HEALTH_TIMEOUT_S)
        dead = health >= http.HTTPStatus.INTERNAL_SERVER_ERROR
        return self._answer(ok=not dead, reason=f"the engine's /health answers {health or 'nothing'}")

    def ledger(self) -> tuple[int, str, bytes]:
        """The ledger as it stands."""
        return _json(200, self._ledger.document(self._status.state, self._status.reason))

    def _answer(self, *, ok: bool, reason: str) -> tuple[int, str, bytes]:
        return _json(200 if ok else 503, {"ok": ok, "state": self._status.state, "reason": reason})
