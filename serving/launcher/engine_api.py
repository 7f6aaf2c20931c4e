"""The engine's HTTP API, as the launcher uses it."""

from __future__ import annotations

import http.client
import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from serving.launcher.fields import json_object

if TYPE_CHECKING:
    from collections.abc import Mapping

HEALTH_TIMEOUT_S = 2.0
"""A busy engine takes a while to say that it is well; whoever asks the launcher has to wait longer than this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What came back for a request: `status` 0 and `error` when nothing did."""

    status: int
    document: dict[str, Any]
    seconds: float
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the engine did what was asked."""
        return self.status == http.HTTPStatus.OK

    def why(self) -> str:
        """In words, why it did not."""
        return self.error or f"HTTP {self.status}: {json.dumps(self.document)[:300]}"


class EngineApi:
    """The engine's HTTP API on this machine."""

    def __init__(self, port: int, model: str) -> None:
        self._port, self.model = port, model
        key = os.environ.get("VLLM_API_KEY")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    def health(self, timeout_s: float) -> int:
        """The status of /health; 0 when nothing answers."""
        return self._ask("GET", "/health", None, timeout_s).status

    def models(self, timeout_s: float) -> Reply:
        """What is served under which name."""
        return self._ask("GET", "/v1/models", None, timeout_s)

    def post(self, path: str, body: Mapping[str, object], timeout_s: float) -> Reply:
        """Sends a request for the served model and reads the whole answer, a streamed one to its end."""
        return self._ask("POST", path, {"model": self.model, **body}, timeout_s)

    def _ask(self, method: str, path: str, body: Mapping[str, object] | None, timeout_s: float) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=max(timeout_s, 0.05))
        began = time.monotonic()
        try:
            connection.request(method, path, None if body is None else json.dumps(body), self._headers)
            response = connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            return Reply(
                status=0, document={}, seconds=time.monotonic() - began, error=f"{type(error).__name__}: {error}"
            )
        finally:
            connection.close()
        return Reply(status=response.status, document=json_object(raw), seconds=time.monotonic() - began)
