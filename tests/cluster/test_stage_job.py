"""`coldstart stage --in-cluster` against a real control plane.

kwok plays the kubelet's part of a pod's status. Its other part, running the container and serving the log, is played
here for real: the first request for a pod's log lays out the ConfigMap as the volume would, runs the pod's own command
with the pod's own environment against a real S3 server, and streams what it prints.
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from budget.problems import BadInput
from infra.environment_settings import Environment
from infra.model_settings import Model
from infra.stack_file import Stack
from scripts import stage_in_cluster
from scripts.failure import Failure
from scripts.staging.bucket import Bucket, client_config
from scripts.staging.destination import Origin
from serving.stage_job import NAMESPACE, objects
from tests.aws import seaweed
from tests.aws.hub_server import HubServer
from tests.aws.made_models import model_files
from tests.toolchain.control_plane import ControlPlane
from tests.toolchain.kube_api import ApiError, KubeApi

BUCKET = "weights-in-cluster"


class Kubelet:
    """The half of a kubelet that kwok does not play: containers and their logs."""

    def __init__(self, plane: ControlPlane, folder: Path, environment: Mapping[str, str]) -> None:
        handler = type("Bound", (_Logs,), {"api": plane.api, "folder": folder, "environment": dict(environment)})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        (certificate,) = plane.folder.glob("certificates/server*.crt")
        (key,) = plane.folder.glob("certificates/server*.key")
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.port = self._server.server_address[1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Logs(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: ClassVar[KubeApi]
    folder: ClassVar[Path]
    environment: ClassVar[dict[str, str]]

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        """`/containerLogs/NAMESPACE/POD/CONTAINER?follow=true`."""
        _, kind, namespace, pod_name, _ = self.path.split("?", 1)[0].split("/")
        assert kind == "containerLogs"
        pod = self.api.get(f"/api/v1/namespaces/{namespace}/pods/{pod_name}")
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with self._run(namespace, pod) as process:
            for line in process.stdout:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def _run(self, namespace: str, pod: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        root = self.folder / pod["metadata"]["name"]
        volume = next(volume["configMap"] for volume in pod["spec"]["volumes"] if volume["name"] == "code")
        data = self.api.get(f"/api/v1/namespaces/{namespace}/configmaps/{volume['name']}")["data"]
        for item in volume["items"]:
            file = root / item["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(data[item["key"]])
        (container,) = pod["spec"]["containers"]
        environment = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
        return subprocess.Popen(
            [sys.executable, *container["command"][1:], *container["args"]],
            cwd=root,
            env={
                "PATH": os.environ["PATH"],
                **environment,
                **self.environment,
                "PYTHONPATH": str(root),
                "HOME": str(root),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[seaweed.S3Server]:
    with seaweed.running(tmp_path_factory.mktemp("seaweed")) as server:
        server.client().create_bucket(Bucket=BUCKET)
        yield server


@pytest.fixture(scope="module")
def hub() -> Iterator[HubServer]:
    with HubServer.running() as server:
        yield server


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, s3: seaweed.S3Server, hub: HubServer) -> Iterator[ControlPlane]:
    environment = {**s3.environment(), "HF_ENDPOINT": hub.endpoint}
    with (
        ControlPlane(tmp_path_factory.mktemp("plane")) as running,
        Kubelet(running, tmp_path_factory.mktemp("kubelet"), environment) as kubelet,
    ):
        gpu = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
        running.join_node("gpu-1", taints=gpu, allocatable={"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "1"})
        running.join_node("cpu-1", allocatable={"cpu": "4", "memory": "16Gi"})
        for node in ("gpu-1", "cpu-1"):
            running.api.request(
                "PATCH",
                f"/api/v1/nodes/{node}/status",
                body={"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}}}},
                headers={"Content-Type": "application/merge-patch+json"},
            )
        yield running


@pytest.fixture(autouse=True)
def kubeconfig(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))


def stack() -> Stack:
    environment = Environment.model_validate({"region": "us-east-1", "account": "111122223333", "owner": "tests"})
    model = Model.model_validate(
        {
            "environment": "dev",
            "source": "org/name",
            "image": "vllm/vllm-openai:v0.33.0",
            "nodes": {"instance": "g6.xlarge"},
            "scaling": {"min_replicas": 0, "max_replicas": 1},
        }
    )
    return Stack(name="dev-name", environment=environment, model=model)


def run(source: str) -> Mapping[str, Any]:
    return stage_in_cluster.run(stack(), Origin(source=source), BUCKET, context=None, hub_secret=None)


def test_every_object_is_accepted_with_strict_validation(plane: ControlPlane) -> None:
    secret = "hub-token"  # noqa: S105 - the name of a Secret
    spec = stage_in_cluster.spec_of(stack(), Origin(source="hf:org/strict@main"), BUCKET, hub_secret=secret)
    for entry in objects(spec):
        if entry["kind"] in {"Namespace", "ServiceAccount"}:
            plane.api.apply(dict(entry))
        else:
            plane.api.apply(dict(entry), dry_run=True)


def test_a_pod_that_is_not_restricted_is_refused_in_that_namespace(plane: ControlPlane) -> None:
    spec = stage_in_cluster.spec_of(stack(), Origin(source="hf:org/strict@main"), BUCKET, hub_secret=None)
    plane.api.apply(dict(objects(spec)[0]))
    job = json.loads(json.dumps(objects(spec)[-1]))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": NAMESPACE}}
    pod["spec"] = job["spec"]["template"]["spec"]
    plane.api.apply(pod, dry_run=True)
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(ApiError, match="violates PodSecurity"):
        plane.api.apply(pod, dry_run=True)


def test_a_model_is_staged_by_the_job_and_followed(
    plane: ControlPlane, hub: HubServer, s3: seaweed.S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    files = model_files(shard_bytes=20_000_000)
    commit = hub.add("org/name", files)
    document = run("hf:org/name@main")
    assert document["state"] == "staged"
    assert document["revision"] == commit
    assert "100%" in capsys.readouterr().err
    (pod,) = plane.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=coldstart/stack=dev-name")
    assert pod["spec"]["nodeName"] == "cpu-1"
    bucket = Bucket(BUCKET, s3.client(config=client_config()))
    assert bucket.get(f"models/org/name/{commit}/config.json") == files["config.json"]


def test_a_job_that_has_ended_is_started_again(hub: HubServer) -> None:
    hub.add("org/twice", model_files())
    assert run("hf:org/twice@main")["state"] == "staged"
    assert run("hf:org/twice@main")["state"] == "already staged"


def test_what_the_pod_could_not_do_is_said_here(hub: HubServer) -> None:
    hub.add("org/broken", {"config.json": b"{}"})
    with pytest.raises(BadInput) as error:
        run("hf:org/broken@main")
    assert "*.safetensors: no weights" in str(error.value)
    assert "tokenizer: no tokenizer file" in str(error.value)


def test_what_the_world_refused_the_pod_is_said_here() -> None:
    with pytest.raises(Failure, match="staging in the cluster failed: failed: the hub shows no repository org/nowhere"):
        run("hf:org/nowhere@main")


def test_a_cluster_that_cannot_be_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match="there is no kubeconfig"):
        run("hf:org/name@main")
