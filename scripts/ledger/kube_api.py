"""The Kubernetes API as the ledger needs it: JSON in, JSON out, and streams of lines. Standard library alone.

Two ways in: a pod's own service account (here), and a person's kubeconfig (kubeconfig.py). What is asked, and how a
watch is kept alive (watching.py), is the same code for both.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode, urlsplit

from scripts.ledger.raw import NOTHING, Object, object_of, parsed, text

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_S = 30.0
GONE, CONFLICT, FORBIDDEN, NOT_FOUND, TOO_MANY = 410, 409, 403, 404, 429


class ApiError(Exception):
    """The API server refused, or could not be reached.

    Attributes:
        status: HTTP status; 0 when there was no answer.
        message: what the server said.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}" if status else message)
        self.status = status
        self.message = message


class Api(Protocol):
    """What a connection offers. `path` begins with /; `query` is added to it."""

    def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """GET, as text. Raises ApiError."""
        ...

    def send(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        """A write; the parsed answer. Raises ApiError."""
        ...

    def stream(self, path: str, query: Mapping[str, str], timeout_s: float) -> Iterator[str]:
        """GET, line by line, until the server ends it. Raises ApiError."""
        ...


def get(api: Api, path: str, query: Mapping[str, str] | None = None) -> Object:
    """GET, as JSON.

    Raises:
        ApiError: refused, unreachable, or the answer is not a JSON object.
    """
    try:
        found = object_of(parsed(api.text(path, query)))
    except ValueError as error:
        raise ApiError(0, f"{path}: the answer is not JSON") from error
    if not found:
        raise ApiError(0, f"{path}: the answer is not a JSON object")
    return found


class InCluster:
    """The API server through the pod's service account. The token is read anew for every connection: it is rotated.

    A connection is kept per thread; one that broke is made again once. Counts what it asked, by verb.
    """

    def __init__(self, endpoint: str, token: Path, authority: Path | None) -> None:
        parts = urlsplit(endpoint)
        self._host, self._port = parts.hostname or "", parts.port or 443
        self._token = token
        self._tls = ssl.create_default_context(cafile=str(authority) if authority else None)
        self._local = threading.local()
        self._lock = threading.Lock()
        self.requests: dict[str, int] = {}

    @classmethod
    def from_environment(cls) -> InCluster:
        """The API server of the cluster this pod runs in.

        Raises:
            ApiError: this is no pod.
        """
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not (ACCOUNT / "token").is_file():
            why = "this is not a pod with a service account: KUBERNETES_SERVICE_HOST or its token is missing"
            raise ApiError(0, why)
        shown = f"[{host}]" if ":" in host else host
        return cls(f"https://{shown}:{port}", ACCOUNT / "token", ACCOUNT / "ca.crt")

    def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """GET, as text."""
        return self._ask("GET", _with(path, query), None, "").decode("utf-8", "replace")

    def send(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        """A write; the parsed answer."""
        payload = None if body is None else json.dumps(body, default=dict).encode()
        answer = self._ask(method, path, payload, kind)
        return object_of(json.loads(answer) if answer else None)

    def stream(self, path: str, query: Mapping[str, str], timeout_s: float) -> Iterator[str]:
        """GET, line by line, on a connection of its own."""
        connection = self._connect(timeout_s)
        try:
            self._request(connection, "GET", _with(path, query), None, "")
            answer = connection.getresponse()
            if answer.status >= http.client.BAD_REQUEST:
                raise refusal(answer.status, answer.read())
            for line in answer:
                yield line.decode("utf-8", "replace").rstrip("\n")
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, f"{path}: {error or type(error).__name__}") from error
        finally:
            connection.close()

    def close(self) -> None:
        """Closes the connection that this thread keeps."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def _connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._tls)

    def _request(
        self, connection: http.client.HTTPSConnection, method: str, path: str, payload: bytes | None, kind: str
    ) -> None:
        headers = {"Authorization": f"Bearer {self._token.read_text().strip()}", "Accept": "application/json, */*"}
        if payload is not None:
            headers["Content-Type"] = kind
        with self._lock:
            self.requests[method] = self.requests.get(method, 0) + 1
        connection.request(method, path, body=payload, headers=headers)

    def _ask(self, method: str, path: str, payload: bytes | None, kind: str) -> bytes:
        for last_try in (False, True):
            connection = getattr(self._local, "connection", None) or self._connect(TIMEOUT_S)
            self._local.connection = connection
            try:
                self._request(connection, method, path, payload, kind)
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                self._local.connection = None
                if last_try or method != "GET":
                    raise ApiError(0, f"{path}: {error or type(error).__name__}") from error
                continue
            if answer.status >= http.client.BAD_REQUEST:
                raise refusal(answer.status, body)
            return body
        raise ApiError(0, f"{path}: no answer")


def _with(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def refusal(status: int, body: bytes) -> ApiError:
    """What the server said: the message of its Status object, else the text."""
    shown = body.decode("utf-8", "replace")
    try:
        found = object_of(parsed(shown))
    except ValueError:
        found = NOTHING
    return ApiError(status, text(found, "message") or shown[:300] or "no message")
