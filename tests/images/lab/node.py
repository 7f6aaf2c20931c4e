"""A node's pulling half: containerd, with the SOCI snapshotter or without, and crictl in the kubelet's place."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tests.images.lab.build import LAB, tool
from tests.toolchain.engines import Server
from tests.toolchain.waiting import wait_until

CONTAINERD = """version = 3
root = "{folder}/containerd"
state = "{folder}/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.nri.v1.nri",
  "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "{folder}/containerd.sock"
[proxy_plugins.soci]
  type = "snapshot"
  address = "{folder}/soci.sock"
  [proxy_plugins.soci.exports]
    root = "{folder}/soci"
    enable_remote_snapshot_annotations = "true"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter}"
  disable_snapshot_annotations = false
  max_concurrent_downloads = {downloads}
[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{folder}/cni"]
    conf_dir = "{folder}/cni"
"""
SOCI = """skip_check_snapshotter_supported = true
no_prometheus = true
[content_store]
  type = "containerd"
  containerd_address = "{folder}/containerd.sock"
[pull_modes.soci_v1]
  enable = false
[pull_modes.soci_v2]
  enable = false
[pull_modes.parallel_pull_unpack]
  enable = true
  max_concurrent_downloads = -1
  max_concurrent_downloads_per_image = {downloads}
  concurrent_download_chunk_size = "{chunk}"
  max_concurrent_unpacks = -1
  max_concurrent_unpacks_per_image = {unpacks}
  discard_unpacked_layers = true
  [pull_modes.parallel_pull_unpack.decompress_streams."gzip"]
    path = "{decompressor}"
    args = ["-d", "-c"]
"""


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """How the node pulls.

    Attributes:
        unpack_bytes_s: what one layer unpacks at most, as if one core were that slow; None is this machine's own speed.
    """

    snapshotter: Literal["soci", "overlayfs"] = "soci"
    downloads: int = 20
    unpacks: int = 12
    chunk: str = "1mb"
    unpack_bytes_s: int | None = None


class PullingNode:
    """One node that has never pulled anything; gone with everything it pulled when left."""

    def __init__(self, folder: Path, settings: NodeSettings) -> None:
        self.folder, self.settings = folder, settings
        self._servers: list[Server] = []

    def __enter__(self) -> Self:
        for name in ("containerd", "soci", "cni", "bin"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        settings = self.settings
        decompressor = self._decompressor()
        fields = {
            "folder": self.folder,
            "snapshotter": settings.snapshotter,
            "downloads": settings.downloads,
            "unpacks": settings.unpacks,
            "chunk": settings.chunk,
            "decompressor": decompressor,
        }
        containerd, soci = self.folder / "containerd.toml", self.folder / "soci.toml"
        containerd.write_text(CONTAINERD.format(**fields))
        soci.write_text(SOCI.format(**fields))
        # containerd takes the first igzip or unpigz of its PATH, so the paced one comes first.
        path = f"{decompressor.parent}:{LAB / 'bin'}:{os.environ['PATH']}:/usr/sbin"
        environment = {**os.environ, "PATH": path}
        if settings.snapshotter == "soci":
            argv = [tool("soci-snapshotter-grpc"), "--config", str(soci), "--address", f"{self.folder}/soci.sock"]
            argv += ["--root", f"{self.folder}/soci"]
            self._servers.append(Server("soci", argv, folder=self.folder, env=environment))
        argv = [tool("containerd"), "-c", str(containerd)]
        self._servers.append(Server("containerd", argv, folder=self.folder, env=environment))
        wait_until(self._is_up, what=lambda: f"containerd: {self._servers[-1].tail()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in reversed(self._servers):
            server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _decompressor(self) -> Path:
        rate = self.settings.unpack_bytes_s
        if rate is None:
            return Path(tool("igzip"))
        script = self.folder / "bin" / "igzip"
        script.write_text(f'#!/bin/sh\nexec {tool("pace")} filter {rate} {tool("igzip")} "$@"\n')
        script.chmod(0o755)
        return script

    def _is_up(self) -> bool:
        for server in self._servers:
            server.check()
        return self._crictl("version").returncode == 0 and self._crictl("images").returncode == 0

    def _crictl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        socket = f"unix://{self.folder}/containerd.sock"
        argv = [
            tool("crictl"),
            "--runtime-endpoint",
            socket,
            "--image-endpoint",
            socket,
            "--timeout",
            "600s",
            *arguments,
        ]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def pull(self, reference: str) -> float:
        """Seconds that the kubelet's PullImage takes."""
        began = time.monotonic()
        done = self._crictl("pull", reference)
        seconds = time.monotonic() - began
        if done.returncode != 0:
            raise RuntimeError(f"pull of {reference}: {done.stderr}\n{self._servers[-1].tail()}")
        return seconds

    def run(self, reference: str, *argv: str) -> str:
        """What a command of a pulled image prints, run in a container."""
        done = subprocess.run(
            [
                tool("ctr"),
                "--address",
                f"{self.folder}/containerd.sock",
                "--namespace",
                "k8s.io",
                "run",
                "--rm",
                "--snapshotter",
                self.settings.snapshotter,
                "--runc-binary",
                tool("runc"),
                reference,
                f"run-{os.getpid()}-{time.monotonic_ns()}",
                *argv,
            ],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": f"{LAB / 'bin'}:{os.environ['PATH']}:/usr/sbin"},
        )
        if done.returncode != 0:
            raise RuntimeError(f"run of {reference}: {done.stdout}{done.stderr}")
        return done.stdout
