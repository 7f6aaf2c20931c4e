"""The recorder as it is shipped: its files as the ConfigMap lays them, a plain Python, a service account's token."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Self

from infra.recorder import code
from serving.recorder import NAMESPACE, RecorderSpec, objects
from tests.cluster.starts_plane import StartsPlane
from tests.toolchain.engines import free_port
from tests.toolchain.kube_api import KubeApi
from tests.toolchain.waiting import wait_until

PLAIN_PYTHON = Path(sys.base_prefix) / "bin" / "python3"


def install(api: KubeApi) -> None:
    """Applies every object of the recorder but the pod: a process of ours is the pod."""
    spec = RecorderSpec(
        image="python:3.13-slim", code=code(), keep=1000, otlp_endpoint=None, cloudwatch=False, replicas=0
    )
    for manifest in objects(spec):
        api.apply(dict(manifest))


def token(api: KubeApi) -> str:
    """A token of the recorder's service account."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/coldstart-recorder/token"
    wait_until(lambda: api.get(path.removesuffix("/token")), what="the service account")
    return api.request("POST", path, body={"spec": {"expirationSeconds": 7200}})["status"]["token"]


class RecorderProcess:
    """One recorder, running."""

    def __init__(self, plane: StartsPlane, folder: Path, **environment: str) -> None:
        self.folder = folder
        for path, text in code().items():
            target = folder / "code" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        (folder / "token").write_text(token(plane.api))
        self.port = free_port()
        self._environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(folder / "code"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MALLOC_ARENA_MAX": "2",
            "COLDSTART_NAMESPACE": NAMESPACE,
            "COLDSTART_PORT": str(self.port),
            "COLDSTART_API": plane.api.endpoint,
            "COLDSTART_TOKEN_FILE": str(folder / "token"),
            "COLDSTART_CA_FILE": str(plane.folder / "certificates" / "ca.crt"),
            **environment,
        }

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts it and waits until it has seen everything once. -S: nothing that is installed can be imported."""
        self.log = (self.folder / "recorder.log").open("ab")
        command = [str(PLAIN_PYTHON), "-S", "-m", "scripts.ledger.recorder"]
        self._process = subprocess.Popen(
            command, env=self._environment, cwd=self.folder, stdout=self.log, stderr=self.log
        )
        wait_until(self._healthy, what=lambda: f"the recorder is healthy:\n{self.said()}")

    def _healthy(self) -> bool:
        assert self._process.poll() is None, self.said()
        try:
            return self._get("/healthz") == "ok\n"
        except OSError:
            return False

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        self.log.close()

    def said(self) -> str:
        return (self.folder / "recorder.log").read_text()

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return answer.read().decode()

    def text(self) -> str:
        """Its metrics."""
        return self._get("/metrics")

    def metric(self, name: str, **labels: str) -> float | None:
        """The value of one series; the sum when several match."""
        values = [
            float(line.rpartition(" ")[2])
            for line in self.text().splitlines()
            if line.partition("{")[0].partition(" ")[0] == name
            and all(f'{key}="{value}"' in line for key, value in labels.items())
        ]
        return sum(values) if values else None

    @property
    def cpu_s(self) -> float:
        """CPU time it has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def peak_bytes(self) -> int:
        """Most memory it has held."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1024


def kept(api: KubeApi) -> list[dict[str, Any]]:
    """The ConfigMaps of ledgers."""
    return api.items(f"/api/v1/namespaces/{NAMESPACE}/configmaps?labelSelector=coldstart/ledger=true")
