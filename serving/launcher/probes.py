"""What kubelet, Prometheus and `coldstart measure` ask."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING

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
        return self._answer(ok=health == HTTPStatus.OK, reason=f"the engine's /health answers {health or 'nothing'}")

    def live(self) -> tuple[int, str, bytes]:
        """Whether a restart would help: only when a loaded engine says that it is dead."""
        if not self._status.decided():
            return self._answer(ok=True, reason=self._status.reason)
        health = self._api.health(HEALTH_TIMEOUT_S)
        dead = health >= HTTPStatus.INTERNAL_SERVER_ERROR
        return self._answer(ok=not dead, reason=f"the engine's /health answers {health or 'nothing'}")

    def ledger(self) -> tuple[int, str, bytes]:
        """The ledger as it stands."""
        return _json(200, self._ledger.document(self._status.state, self._status.reason))

    def _answer(self, *, ok: bool, reason: str) -> tuple[int, str, bytes]:
        return _json(200 if ok else 503, {"ok": ok, "state": self._status.state, "reason": reason})
