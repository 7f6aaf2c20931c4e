"""A small registry on loopback with faults on purpose, for tests that need no real one."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

from tests.images.synthetic import MadeImage, digest

HELD_BYTES = 100_000


@dataclass
class Faults:
    """What goes wrong.

    Attributes:
        token: every request needs it as a bearer token.
        basic: every request needs this login.
        drop_after: a blob's connection breaks after so many bytes, this many times.
        short: blobs end early though the whole length is announced as theirs.
        moves_to: the tag's digest changes to this one after its first read.
        refuse_push: answer to pushes.
        hold: large blobs are not answered until this is set.
    """

    token: str | None = None
    basic: str | None = None
    drop_after: int = 0
    drops: int = 0
    moves_to: str | None = None
    refuse_push: int = 0
    wrong_manifest: bool = False
    hold: threading.Event | None = None


class LoopbackRegistry:
    """Holds manifests and blobs by repository."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.manifests: dict[tuple[str, str], bytes] = {}
        self.asked: Counter[str] = Counter()
        self.uploads: dict[str, bytes] = {}
        self.begun = 0
        self.lock = threading.Lock()
        registry = self

        class Handler(_Handler):
            owner = registry

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def add(self, repository: str, tag: str, image: MadeImage) -> str:
        for name, content in image.blobs.items():
            self.blobs[repository, name] = content
        self.manifests[repository, tag] = self.manifests[repository, image.digest] = image.manifest
        return f"{self.host}/{repository}:{tag}"


class _Handler(BaseHTTPRequestHandler):
    owner: LoopbackRegistry
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def _answer(self, status: int, content: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _allowed(self) -> bool:
        faults, given = self.owner.faults, self.headers.get("Authorization", "")
        if faults.token and given != f"Bearer {faults.token}":
            realm = f'Bearer realm="http://{self.owner.host}/token",service="x",scope="repository:y:pull"'
            self._answer(401, WWW_Authenticate=realm)
            return False
        if faults.basic and given != f"Basic {faults.basic}":
            self._answer(401, WWW_Authenticate='Basic realm="x"')
            return False
        return True

    def _parts(self) -> tuple[str, str, str]:
        found = re.match(r"^/v2/(.+)/(manifests|blobs)/([^/]+)$", urlsplit(self.path).path)
        return (found[1], found[2], found[3]) if found else ("", "", "")

    def do_GET(self) -> None:
        self.owner.asked[f"{self.command} {urlsplit(self.path).path}"] += 1
        if self.path.startswith("/token"):
            self._answer(200, json.dumps({"token": self.owner.faults.token}).encode())
            return
        if not self._allowed():
            return
        repository, kind, name = self._parts()
        if kind == "manifests":
            self._manifest(repository, name)
        elif kind == "blobs":
            self._blob(repository, name)
        else:
            self._answer(200 if self.path == "/v2/" else 404)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def _manifest(self, repository: str, name: str) -> None:
        faults = self.owner.faults
        content = self.owner.manifests.get((repository, name))
        if content is None:
            self._answer(404)
            return
        if faults.moves_to and not name.startswith("sha256:") and self.command == "GET":
            self.owner.manifests[repository, name] = self.owner.manifests[repository, faults.moves_to]
        stated = "sha256:" + "0" * 64 if faults.wrong_manifest else digest(content)
        self._answer(200, content, Content_Type=json.loads(content).get("mediaType", "x"), Docker_Content_Digest=stated)

    def _blob(self, repository: str, name: str) -> None:
        content = self.owner.blobs.get((repository, name))
        if content is None:
            self._answer(404)
            return
        ranged = re.match(r"bytes=(\d+)-$", self.headers.get("Range", ""))
        start = int(ranged[1]) if ranged else 0
        rest, faults = content[start:], self.owner.faults
        if faults.hold is not None and len(content) > HELD_BYTES:
            faults.hold.wait(60)
        with self.owner.lock:
            drop = faults.drops > 0 and 0 < faults.drop_after < len(rest)
            faults.drops -= drop
        self._answer(206 if ranged else 200, rest[: faults.drop_after] if drop else rest, Content_Length=str(len(rest)))
        if drop:
            self.close_connection = True

    def do_POST(self) -> None:
        self.owner.asked["POST"] += 1
        if not self._allowed():
            return
        if self.owner.faults.refuse_push:
            self._answer(self.owner.faults.refuse_push, b'{"errors":[{"code":"DENIED","message":"read only"}]}')
            return
        query = parse_qs(urlsplit(self.path).query)
        repository = re.match(r"^/v2/(.+)/blobs/uploads/", self.path)[1]
        if "mount" in query and (query["from"][0], query["mount"][0]) in self.owner.blobs:
            name = query["mount"][0]
            self.owner.blobs[repository, name] = self.owner.blobs[query["from"][0], name]
            self._answer(201)
            return
        with self.owner.lock:
            self.owner.begun += 1
            place = f"/v2/{repository}/blobs/uploads/{self.owner.begun}"
            self.owner.uploads[place] = b""
        self._answer(202, Location=place)

    def do_PATCH(self) -> None:
        path = urlsplit(self.path).path
        self.owner.uploads[path] += self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(202, Location=path)

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        parts = urlsplit(self.path)
        repository, kind, name = self._parts()
        if kind == "manifests":
            self.owner.manifests[repository, name] = self.owner.manifests[repository, digest(content)] = content
            self._answer(201)
            return
        repository = re.match(r"^/v2/(.+)/blobs/uploads/", parts.path)[1]
        name, content = parse_qs(parts.query)["digest"][0], self.owner.uploads.pop(parts.path)
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != name:
            self._answer(400, b'{"errors":[{"code":"DIGEST_INVALID","message":"no match"}]}')
            return
        self.owner.blobs[repository, name] = content
        self._answer(201)
