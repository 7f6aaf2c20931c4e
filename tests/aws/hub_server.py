"""A model hub on loopback, as far as its client asks: model info, tree, resolve with redirects, ranges, gates.

Paths, headers and status codes are those of huggingface.co as huggingface_hub reads them: large files redirect to a
content server on another host (here another port) with a signed address that runs out; small ones come from the hub.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

CHUNK = 1 << 20


@dataclass
class Content:
    """A file's bytes: in memory, or in a file of the disk."""

    data: bytes | None = None
    path: Path | None = None
    known_sha256: str | None = None

    @property
    def size(self) -> int:
        return len(self.data) if self.data is not None else self.path.stat().st_size

    def read(self, start: int, length: int) -> bytes:
        if self.data is not None:
            return self.data[start : start + length]
        with self.path.open("rb") as stream:
            stream.seek(start)
            return stream.read(length)

    @property
    def sha256(self) -> str:
        if self.known_sha256 is None:
            digest = hashlib.sha256()
            for start in range(0, self.size, CHUNK):
                digest.update(self.read(start, CHUNK))
            self.known_sha256 = digest.hexdigest()
        return self.known_sha256

    @property
    def git_blob(self) -> str:
        return hashlib.sha1(b"blob %d\0" % self.size + self.read(0, self.size)).hexdigest()  # noqa: S324 - git's name


@dataclass
class Repository:
    """A model repository: commits with their files, and names for them."""

    commits: dict[str, dict[str, Content]]
    refs: dict[str, str]
    gated: bool = False
    token: str | None = None


@dataclass
class HubState:
    repositories: dict[str, Repository] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, int]] = field(default_factory=list)
    """(path pattern, status): answered once each, in order."""
    expired: set[str] = field(default_factory=set)
    page: int = 1000
    limit_mb_s: float | None = None
    served_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class HubServer:
    """A hub and its content server."""

    def __init__(self, hub: ThreadingHTTPServer, cdn: ThreadingHTTPServer, state: HubState) -> None:
        self.endpoint = f"http://127.0.0.1:{hub.server_address[1]}"
        self.cdn = f"http://127.0.0.1:{cdn.server_address[1]}"
        self.state = state
        self._hub = hub

    def redirect_to(self, content_server: str) -> None:
        """Large files are served from there from now on."""
        self._hub.RequestHandlerClass.cdn = content_server

    @classmethod
    @contextmanager
    def running(cls) -> Generator[HubServer]:
        state = HubState()
        cdn = _server(_Cdn, state)
        hub = _server(_Hub, state)
        hub.RequestHandlerClass.cdn = f"http://127.0.0.1:{cdn.server_address[1]}"
        threads = [threading.Thread(target=server.serve_forever, args=(0.02,)) for server in (hub, cdn)]
        for thread in threads:
            thread.start()
        try:
            yield cls(hub, cdn, state)
        finally:
            for server in (hub, cdn):
                server.shutdown()
                server.server_close()
            for thread in threads:
                thread.join()

    def add(
        self,
        name: str,
        files: Mapping[str, bytes | Content],
        *,
        refs: tuple[str, ...] = ("main",),
        gated: bool = False,
        token: str | None = None,
    ) -> str:
        """Adds a commit to a repository; returns its 40 hex digits."""
        contents = {path: value if isinstance(value, Content) else Content(data=value) for path, value in files.items()}
        names = "".join(f"{path}{content.sha256}" for path, content in sorted(contents.items()))
        commit = hashlib.sha1(f"{name}{names}".encode()).hexdigest()  # noqa: S324 - as git does
        repository = self.state.repositories.setdefault(name, Repository(commits={}, refs={}))
        repository.commits[commit] = contents
        repository.refs.update(dict.fromkeys(refs, commit))
        repository.gated, repository.token = gated, token
        return commit

    def fail(self, pattern: str, status: int, *, times: int = 1) -> None:
        """The next requests whose path matches are answered with a status."""
        self.state.failures.extend([(pattern, status)] * times)


def _server(handler: type[BaseHTTPRequestHandler], state: HubState) -> ThreadingHTTPServer:
    bound = type(handler.__name__, (handler,), {"state": state})
    server = ThreadingHTTPServer(("127.0.0.1", 0), bound)
    server.daemon_threads = True
    return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: ClassVar[HubState]

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        """What this one serves; each handler has its own."""
        raise AssertionError(f"{type(self).__name__} answers nothing: {self.path}, body {body}")

    def reply(self, status: int, content: bytes = b"", *, body: bool = True, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def injected(self, path: str) -> bool:
        with self.state.lock:
            matching = next((failure for failure in self.state.failures if re.search(failure[0], path)), None)
            if matching is None:
                return False
            self.state.failures.remove(matching)
        self.reply(matching[1], b"injected", body=self.command != "HEAD")
        return True

    def send_content(self, content: Content, *, body: bool, **headers: str) -> None:
        """The content or the range of it that was asked for."""
        size = content.size
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, end = (int(match[1]), min(int(match[2] or size - 1), size - 1)) if match else (0, size - 1)
        if match and start >= size > 0:
            self.reply(416, body=body)
            return
        self.send_response(206 if match else 200)
        self.send_header("Content-Length", str(end - start + 1))
        self.send_header("Accept-Ranges", "bytes")
        if match:
            self.send_header("Content-Range", f"bytes {start}-{end}/{size}")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if body:
            self._stream(content, start, end + 1)

    def _stream(self, content: Content, start: int, end: int) -> None:
        pace = None if self.state.limit_mb_s is None else CHUNK / (self.state.limit_mb_s * 1e6)
        for offset in range(start, end, CHUNK):
            piece = content.read(offset, min(CHUNK, end - offset))
            self.wfile.write(piece)
            with self.state.lock:
                self.state.served_bytes += len(piece)
            if pace is not None:
                threading.Event().wait(pace)


class _Hub(_Handler):
    cdn: ClassVar[str]

    def answer(self, *, body: bool) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        with self.state.lock:
            self.state.requests["api" if path.startswith("/api/") else "resolve"] += 1
        if self.injected(path):
            return
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
            self._info(match[1], match[2])
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", path):
            self._tree(match[1], match[2], parse_qs(url.query))
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(match[1], match[2], match[3], body=body)
        else:
            self.reply(404, b"{}")

    def _repository(self, name: str) -> Repository | None:
        repository = self.state.repositories.get(name)
        if repository is None:
            # The hub says 401, not 404, to whoever is not logged in: the repository may be private.
            self.reply(401, b'{"error": "Invalid username or password."}', body=self.command != "HEAD")
        return repository

    def _commit(self, repository: Repository, revision: str) -> str | None:
        commit = repository.refs.get(revision, revision)
        if commit in repository.commits:
            return commit
        self.reply(404, b"{}", body=self.command != "HEAD", X_Error_Code="RevisionNotFound")
        return None

    def _info(self, name: str, revision: str) -> None:
        repository = self._repository(name)
        if repository and (commit := self._commit(repository, revision)):
            siblings = [{"rfilename": path} for path in repository.commits[commit]]
            document = {"id": name, "modelId": name, "sha": commit, "siblings": siblings, "tags": []}
            self.reply(200, json.dumps(document).encode(), Content_Type="application/json")

    def _tree(self, name: str, revision: str, query: Mapping[str, list[str]]) -> None:
        repository = self._repository(name)
        if not repository or not (commit := self._commit(repository, revision)):
            return
        entries = [self._entry(path, content) for path, content in sorted(repository.commits[commit].items())]
        folders = {parent for path in repository.commits[commit] for parent in _parents(path)}
        entries += [{"type": "directory", "path": folder, "oid": "0" * 40, "size": 0} for folder in sorted(folders)]
        start = int(query.get("cursor", ["0"])[0])
        page = entries[start : start + self.state.page]
        headers = {"Content_Type": "application/json"}
        if start + self.state.page < len(entries):
            address = f"http://{self.headers['Host']}/api/models/{name}/tree/{revision}"
            headers["Link"] = f'<{address}?recursive=True&cursor={start + self.state.page}>; rel="next"'
        self.reply(200, json.dumps(page).encode(), **headers)

    def _entry(self, path: str, content: Content) -> dict[str, object]:
        entry: dict[str, object] = {"type": "file", "path": path, "size": content.size}
        if _is_large(path):
            lfs = {"oid": content.sha256, "size": content.size, "pointerSize": 134}
            return {**entry, "oid": hashlib.sha1(content.sha256.encode()).hexdigest(), "lfs": lfs}  # noqa: S324 - as git does
        return {**entry, "oid": content.git_blob}

    def _resolve(self, name: str, revision: str, path: str, *, body: bool) -> None:
        repository = self._repository(name)
        if not repository or not (commit := self._commit(repository, revision)):
            return
        if repository.gated and self.headers.get("Authorization") != f"Bearer {repository.token}":
            status = 403 if self.headers.get("Authorization") else 401
            self.reply(status, b"gated", body=body, X_Error_Code="GatedRepo")
            return
        content = repository.commits[commit].get(path)
        if content is None:
            self.reply(404, b"", body=body, X_Error_Code="EntryNotFound")
            return
        common = {"X_Repo_Commit": commit}
        if not _is_large(path):
            self.send_content(content, body=body, ETag=f'"{content.git_blob}"', **common)
            return
        with self.state.lock:
            self.state.requests["signed"] += 1
            signature = self.state.requests["signed"]
        self.reply(
            302,
            b"",
            body=body,
            Location=f"{self.cdn}/{name}/{commit}/{path}?signature={signature}",
            X_Linked_Size=str(content.size),
            X_Linked_ETag=f'"{content.sha256}"',
            **common,
        )


class _Cdn(_Handler):
    def answer(self, *, body: bool) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        with self.state.lock:
            self.state.requests["content"] += 1
        if self.headers.get("Authorization"):
            self.reply(500, b"a token left the hub", body=body)
            return
        if self.injected(path):
            return
        signature = parse_qs(url.query)["signature"][0]
        if signature in self.state.expired:
            self.reply(403, b"expired", body=body)
            return
        org, name, commit, file = path.lstrip("/").split("/", 3)
        content = self.state.repositories[f"{org}/{name}"].commits[commit][file]
        self.send_content(content, body=body)


def _is_large(path: str) -> bool:
    """What repositories keep in LFS."""
    return path.endswith((".safetensors", ".bin", ".model", ".gguf")) or path == "tokenizer.json"


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: index + 1]) for index in range(len(parts))]
