"""The verbs' way to a Kubernetes API: what is asked on the wire, and what each answer means."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import pytest

from budget.problems import BadInput
from scripts.cluster.access import Access
from scripts.cluster.api import PAGE, Refused, Server, Unreachable
from scripts.cluster.scaled_objects import hold, of_stack, release
from tests.toolchain.certificates import write_certificates

Answer = tuple[int, object]


@dataclass
class Plane:
    """A server in a cluster's place: answers by method and path, and remembers what it was asked."""

    answers: dict[tuple[str, str], Answer | Callable[[dict[str, str]], Answer]] = field(default_factory=dict)
    asked: list[tuple[str, str, str, Any]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    refuses: str = ""
    endpoint: str = ""


class Handler(BaseHTTPRequestHandler):
    plane: ClassVar[Plane]
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        address, length = urlsplit(self.path), int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.plane.tokens.append(token)
        self.plane.asked.append((self.command, self.path, self.headers.get("Content-Type", ""), body))
        found = self.plane.answers.get((self.command, address.path), (404, {"message": "no such thing"}))
        status, answer = found if isinstance(found, tuple) else found(dict(parse_qsl(address.query)))
        if token == self.plane.refuses:
            status, answer = 401, {"message": "Unauthorized"}
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PATCH = do_DELETE = _serve  # noqa: N815 - names of the base class

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def plane() -> Iterator[Plane]:
    plane = Plane()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"plane": plane}))
    server.daemon_threads = True
    plane.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield plane
    server.shutdown()
    server.server_close()
    thread.join()


def aws_command(folder: Path, script: str) -> None:
    """An `aws` of the test's own, found first."""
    folder.mkdir(exist_ok=True)
    path = folder / "aws"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an `aws` that gives a new token each time it is asked."""
    folder = tmp_path / "bin"
    count = tmp_path / "count"
    aws_command(
        folder,
        f'echo "$@" >> {count}\nprintf \'{{"status": {{"token": "token-%d"}}}}\' "$(wc -l < {count})"',
    )
    monkeypatch.setenv("PATH", str(folder) + os.pathsep + os.environ["PATH"])
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return folder


@contextmanager
def server_at(endpoint: str, tmp_path: Path) -> Iterator[Server]:
    authority = write_certificates(tmp_path / "certificates", "10.0.0.1").authority.read_bytes()
    access = Access(
        cluster="coldstart-dev",
        endpoint=endpoint,
        certificate_authority=base64.b64encode(authority).decode(),
        region="us-west-2",
    )
    with closing(Server(access)) as server:
        yield server


@pytest.fixture
def server(plane: Plane, commands: Path, tmp_path: Path) -> Iterator[Server]:
    del commands
    with server_at(plane.endpoint, tmp_path) as server:
        yield server


def test_signs_in_as_the_stacks_kubeconfig_does_and_once(plane: Plane, server: Server, tmp_path: Path) -> None:
    plane.answers["GET", "/version"] = 200, {"gitVersion": "v1.35.2"}
    assert server.get("/version") == {"gitVersion": "v1.35.2"}
    assert server.get("/version") == {"gitVersion": "v1.35.2"}
    assert plane.tokens == ["token-1", "token-1"]
    assert (tmp_path / "count").read_text() == "eks get-token --cluster-name coldstart-dev --region us-west-2\n"


def test_signs_in_again_when_the_token_has_run_out(plane: Plane, server: Server) -> None:
    plane.answers["GET", "/version"] = 200, {}
    server.get("/version")
    plane.refuses = "token-1"
    assert server.get("/version") == {}
    assert plane.tokens == ["token-1", "token-1", "token-2"]


def test_nothing_there_is_none_and_changes_say_so(plane: Plane, server: Server) -> None:
    assert server.get("/api/v1/namespaces/x") is None
    assert list(server.items("/apis/keda.sh/v1alpha1/scaledobjects")) == []
    assert server.merge("/x", {"a": None}) is False
    assert server.delete("/x") is False
    plane.answers["PATCH", "/x"] = 200, {}
    plane.answers["DELETE", "/x"] = 200, {}
    assert server.merge("/x", {"a": None}) is True
    assert server.delete("/x") is True
    assert plane.asked[-2:] == [
        ("PATCH", "/x", "application/merge-patch+json", {"a": None}),
        ("DELETE", "/x", "application/json", {"propagationPolicy": "Background"}),
    ]


def test_lists_are_followed_to_the_last_page(plane: Plane, server: Server) -> None:
    def page(query: dict[str, str]) -> Answer:
        assert query["limit"] == str(PAGE)
        assert query["labelSelector"] == "coldstart/stack=dev-a"
        at = int(query.get("continue", "0"))
        return 200, {"items": [{"n": at}], "metadata": {"continue": str(at + 1) if at < 2 else ""}}

    plane.answers["GET", "/api/v1/pods"] = page
    found = list(server.items("/api/v1/pods", labelSelector="coldstart/stack=dev-a"))
    assert found == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_refusal_keeps_the_servers_own_words(plane: Plane, server: Server) -> None:
    plane.answers["GET", "/api/v1/pods"] = 403, {"kind": "Status", "message": "pods is forbidden: User cannot list"}
    with pytest.raises(Refused, match=r"refuses \(403\): pods is forbidden: User cannot list") as caught:
        list(server.items("/api/v1/pods"))
    assert caught.value.code == 403


@pytest.mark.parametrize("answer", [b"<html>Sign in to the hotel</html>", b""])
def test_whoever_is_no_kubernetes_api_counts_as_no_answer(plane: Plane, server: Server, answer: bytes) -> None:
    plane.answers["GET", "/version"] = 200, answer
    with pytest.raises(Unreachable, match="not as a Kubernetes API does"):
        server.get("/version")


def test_no_answer(commands: Path, tmp_path: Path) -> None:
    del commands
    words = "the Kubernetes API of coldstart-dev does not answer: /version"
    with server_at("http://127.0.0.1:9", tmp_path) as server, pytest.raises(Unreachable, match=words):
        server.get("/version")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Unable to locate credentials' >&2; exit 255", "Unable to locate credentials"),
        ("echo no json", "Expecting value"),
        (None, "No such file"),
    ],
    ids=["signed out", "some other command", "not installed"],
)
def test_without_a_token_it_is_the_persons_to_mend_and_nothing_is_taken_for_gone(
    plane: Plane, server: Server, commands: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, words: str
) -> None:
    if script is None:
        monkeypatch.setenv("PATH", str(commands.parent / "empty"))
    else:
        aws_command(commands, script)
    with pytest.raises(BadInput, match=f"aws eks get-token: gave no token for coldstart-dev: .*{words}"):
        server.get("/version")
    assert not plane.asked


def test_scaled_objects_of_a_stack_are_held_and_released_by_kedas_own_annotation(plane: Plane, server: Server) -> None:
    path = "/apis/keda.sh/v1alpha1/namespaces/llama/scaledobjects/llama"
    metadata: dict[str, Any] = {"namespace": "llama", "name": "llama", "annotations": {"a": "b"}}
    plane.answers["GET", "/apis/keda.sh/v1alpha1/scaledobjects"] = lambda query: (
        200,
        {"items": [{"metadata": metadata}] if query["labelSelector"] == "coldstart/stack=dev-llama" else []},
    )
    plane.answers["PATCH", path] = 200, {}

    assert of_stack(server, "dev-other") == []
    (scaled,) = of_stack(server, "dev-llama")
    release(server, scaled)
    hold(server, scaled)
    metadata["annotations"]["autoscaling.keda.sh/paused-replicas"] = "0"
    (held,) = of_stack(server, "dev-llama")
    hold(server, held)
    release(server, held)
    changes = [body for method, _, _, body in plane.asked if method == "PATCH"]
    assert changes == [
        {"metadata": {"annotations": {"autoscaling.keda.sh/paused-replicas": value}}} for value in ("0", None)
    ], "neither a second hold nor a release of what is free changes anything"
