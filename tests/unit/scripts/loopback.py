"""Small servers on loopback that answer as a registry and as the hub do, and that can be made to misbehave."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

LAYER = f"sha256:{'1' * 64}"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as it came in."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass(kw_only=True)
class Answer:
    """What to answer; `content` is JSON unless it is bytes."""

    status: int = 200
    content: object = b""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        return self.content if isinstance(self.content, bytes) else json.dumps(self.content).encode()


Route = Callable[[Asked], Answer]


class Served:
    """A server of its own port: paths → answers, and everything that was asked."""

    def __init__(self) -> None:
        self.routes: dict[str, Route | Answer] = {}
        self.asked: list[Asked] = []
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"  # no connection outlives its answer: a closed server is closed

            def do_GET(self) -> None:
                address = urlsplit(self.path)
                # Header names as they are asked for below: HTTP does not tell capitals apart.
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(method="GET", path=address.path, query=dict(parse_qsl(address.query)), headers=headers)
                served.asked.append(asked)
                route = served.routes.get(address.path, Answer(status=404))
                answer = route if isinstance(route, Answer) else route(asked)
                self.send_response(answer.status)
                for name, value in ({"Content-Length": str(len(answer.body))} | answer.headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self.address}"

    @contextmanager
    def running(self) -> Generator[Served]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self.close()
            thread.join()

    def close(self) -> None:
        """Stops answering: whoever asks now finds the port closed."""
        self._server.shutdown()
        self._server.server_close()


class Images(Served):
    """A registry of one repository, `vllm`."""

    def add(self, document: object, *tags: str, digest: str | None = None) -> str:
        """Serves a manifest by its digest and by tags; returns the digest. `digest` states a wrong one."""
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        real = f"sha256:{hashlib.sha256(content).hexdigest()}"
        answer = Answer(content=content, headers={"Docker-Content-Digest": digest or real})
        for name in (real, *tags):
            self.routes[f"/v2/vllm/manifests/{name}"] = answer
        return real

    def add_image(self, *tags: str, layers: Mapping[str, list[int]]) -> str:
        """An index of manifests by architecture, among them an attestation that is for no platform."""
        entries: list[dict[str, Any]] = [
            {"digest": self.add({"layers": []}), "platform": {"os": "unknown", "architecture": "unknown"}}
        ]
        for architecture, sizes in layers.items():
            described = [{"digest": LAYER, "size": size} for size in sizes]
            child = self.add({"schemaVersion": 2, "for": architecture, "layers": described})
            entries.append({"digest": child, "platform": {"os": "linux", "architecture": architecture}})
        return self.add({"schemaVersion": 2, "manifests": entries}, *tags)

    def image(self, tag: str = "v0.27.1") -> str:
        """The image as a stack file names it."""
        return f"{self.address}/vllm:{tag}"
