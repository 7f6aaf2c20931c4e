"""A control plane in which pods of a model take time to start, as a kubelet would show it: pulling, running, Ready.

kwok plays the kubelet by stages of its own (stages.yaml beside this file); logs come from
a small HTTPS server that the real API server asks, exactly as it asks a kubelet.
"""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import yaml

from tests.toolchain.control_plane import ControlPlane
from tests.toolchain.engines import TOOLS, Server
from tests.toolchain.nodes import is_ready, node_object
from tests.toolchain.waiting import wait_until

HERE = Path(__file__).resolve().parent
STAGES = HERE / "stages.yaml"
NAMESPACE = "llama"
MODEL = "llama"
GPU = "nvidia.com/gpu"


class Answers:
    """What the kubelet says: path → text. A path that is not there is 404."""

    def __init__(self) -> None:
        self.texts: dict[str, str | Callable[[str], str]] = {}

    def of(self, path: str) -> str | None:
        found = self.texts.get(path)
        if found is None:
            for prefix, text in self.texts.items():
                if prefix.endswith("*") and path.startswith(prefix[:-1]):
                    found = text
        return found(path) if callable(found) else found


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    answers: Answers

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        text = self.server.answers.of(urlsplit(self.path).path)
        body = (text or "").encode()
        self.send_response(200 if text is not None else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


class StartsPlane(ControlPlane):
    """A control plane with slow pods.

    Attributes:
        kubelet: what the kubelets answer.
        launcher: what every pod's launcher answers; all pods have the address 127.0.0.1.
        launcher_port: its port.
    """

    def __init__(self, folder: Path, *, pulling_ms: int = 300, loading_ms: int = 300) -> None:
        super().__init__(folder)
        self._pulling_ms, self._loading_ms = pulling_ms, loading_ms
        self.kubelet, self.launcher = Answers(), Answers()
        self._kubelet_port = self.launcher_port = 0
        self._http: list[_Server] = []
        self._commands: dict[str, tuple[Path, tuple[str, ...]]] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.launcher_port = self._serve(self.launcher).server_address[1]
        super().__enter__()
        self._kubelet_port = self._serve(self.kubelet, self.folder / "certificates").server_address[1]
        self.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        wait_until(
            lambda: self.api.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"), what="the service account"
        )
        return self

    def stop(self) -> None:
        super().stop()
        while self._http:
            server = self._http.pop()
            server.shutdown()
            server.server_close()

    def _serve(self, answers: Answers, certificates: Path | None = None) -> _Server:
        server = _Server(("127.0.0.1", 0), _Handler)
        server.answers = answers
        if certificates:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self._http.append(server)
        return server

    def _server(self, name: str, binary: Path, *flags: str) -> None:
        more: tuple[str, ...] = ()
        if name == "kwok":
            flags = tuple(f"--config={self._stages()}" if flag.startswith("--config=") else flag for flag in flags)
        if name == "apiserver":
            more = ("--kubelet-preferred-address-types=InternalIP",)
        super()._server(name, binary, *flags, *more)
        self._commands[name] = (binary, (*flags, *more))

    def restart(self, name: str) -> None:
        """Ends one of the servers and starts it again as it was: an API server that is replaced under everybody."""
        index = next(i for i, server in enumerate(self._servers) if server.name == name)
        self._servers[index].stop()
        binary, flags = self._commands[name]
        self._servers[index] = Server(name, [str(binary), *flags], folder=self.folder)
        wait_until(self.api.ready, what=f"{name} is ready again", patience_s=90.0)

    def _stages(self) -> Path:
        """Kwok's own stages for nodes and for the end of pods, ours for the start of a model's pods."""
        kept = [
            stage
            for stage in yaml.safe_load_all((TOOLS / "kwok-stages.yaml").read_text())
            if stage["metadata"]["name"] not in {"pod-ready", "pod-complete"}
        ]
        text = STAGES.read_text()
        times = {"PULLING_MS": self._pulling_ms, "PULLED_MS": self._pulling_ms - 10, "LOADING_MS": self._loading_ms}
        for name, value in times.items():
            text = text.replace(name, str(value))
        path = self.folder / "stages.yaml"
        path.write_text(yaml.safe_dump_all([*kept, *yaml.safe_load_all(text)]))
        return path

    def gpu_node(self, name: str, gpus: int = 1, *, more: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Joins a node of the model."""
        node = node_object(
            name,
            labels={"coldstart/model": MODEL, "node.kubernetes.io/instance-type": "g6e.4xlarge"},
            allocatable={GPU: str(gpus), "cpu": "4000", "memory": "4000Gi", "pods": "2000", **(more or {})},
        )
        node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self._kubelet_port}}
        self.api.create(node)
        return wait_until(
            lambda: (found := self.api.get(f"/api/v1/nodes/{name}")) and is_ready(found) and found,
            what=f"node {name} is Ready",
        )

    def deployment(self, replicas: int = 0, *, gpus: int = 1) -> dict[str, Any]:
        """The model's deployment."""
        container = {
            "name": "engine",
            "image": "registry.example/vllm:v0.33.0",
            "command": ["python3", "launch.py"],
            "ports": [{"name": "launcher", "containerPort": self.launcher_port}],
            "resources": {"limits": {GPU: str(gpus)}} if gpus else {},
        }
        labels = {"coldstart/model": MODEL}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": MODEL, "namespace": NAMESPACE},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
                },
            },
        }

    def pods(self) -> list[dict[str, Any]]:
        """The model's pods."""
        return self.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=coldstart/model={MODEL}")

    def ready_pods(self) -> list[dict[str, Any]]:
        """Those that are Ready."""
        return [
            pod
            for pod in self.pods()
            if any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
        ]


def launcher_document(started_at: str, **more: Any) -> dict[str, Any]:
    """A launcher's ledger of a start of 40 s."""
    bounds = [0.0, 8.0, 20.0, 36.0, 40.0]
    names = ("start", "weights", "engine", "warmup")
    return {
        "format": 1,
        "state": "ready",
        "reason": "",
        "labels": {"model": "org/llama", "revision": "0" * 40, "instance": "g6e.4xlarge", "image": "sha256:0"},
        "started_at": started_at,
        "clock_jump_s": 0.0,
        "segments": [
            {"phases": [name], "detail": name, "begin_s": bounds[i], "end_s": bounds[i + 1]}
            for i, name in enumerate(names)
        ],
        "budget": {name: {"low_s": 1.0, "expected_s": 5.0, "high_s": 30.0} for name in ("node", "pull", *names)},
        "weights": {"kind": "stream", "weights_bytes": 16 * 10**9, "read_s": 11.0, "distributed_ranks": None},
        "compile_cache": {"restore": "restored", "hit": True, "evidence": "Directly load AOT compilation from path /x"},
        "engine": {"version": "0.33.0", "graph_capture_s": 2.0, "startup_plan": "Applying persisted startup plan"},
        "warmup": {"requests": 9, "first_s": 1.2, "steady_s": 0.1, "steady": True},
        "answer": {"right": True},
        "attempts": [],
    } | more


def as_text(document: Mapping[str, Any]) -> str:
    return json.dumps(document)
