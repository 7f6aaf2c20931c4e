"""How weights reach the engine: one path, and the order of what is tried when it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from serving.engine import EngineSpec, weights_arguments
from serving.placement import COMPONENT_LABEL

Kind = Literal["stream", "node-cache", "shared-fs", "baked", "presharded"]

NODE_CACHE_HOST_DIR = "/var/lib/kubelet/coldstart-weights"
"""On the disk that holds images: NVMe is bound to /var/lib/kubelet where it is the faster one."""
NODE_CACHE_MOUNT = "/node-cache"
SHARED_FS_MOUNT = "/models"
CONNECTIONS = 32
"""Ranged requests in flight while a copy is made; about 2.7 GB/s at 85 MB/s each."""
CONNECTION_BYTES = 8 * 2**20
FILL_WORKER_BYTES = 40 * 2**20
"""What a copy's worker takes besides its connections (measured on the launcher)."""
ENGINE_USER, ENGINE_GROUP = 2000, 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedFileSystem:
    """A file system that is there already.

    Attributes:
        driver: its CSI driver.
        volume_handle: fs-…
    """

    driver: Literal["efs.csi.aws.com", "fsx.csi.aws.com"]
    volume_handle: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsSpec:
    """Where the weights are and which ways to them are tried.

    Attributes:
        order: the chosen path first, then its fallbacks.
        uri: `s3://bucket/prefix/` of the staged revision.
        manifest_uri: of its manifest, by which a copy is verified.
        prefix: of the revision, below which a shared file system keeps it.
        node_cache_bytes: most bytes of the node's cache, all models together.
        shared_fs: None unless `shared-fs` is in the order.
        directory: of weights inside the image, for `baked`.
        fill_timeout_s: how long a pod waits for a copy, its own or another pod's, before the next path is tried.
    """

    order: tuple[Kind, ...]
    uri: str
    manifest_uri: str
    prefix: str
    node_cache_bytes: int
    shared_fs: SharedFileSystem | None
    directory: str
    fill_timeout_s: int

    def has(self, kind: Kind) -> bool:
        """Whether a path is among those tried."""
        return kind in self.order

    @property
    def needs_bucket(self) -> bool:
        """Whether any path reads the staged weights: all do but `baked`, for air-gapped sites without a bucket."""
        return any(kind != "baked" for kind in self.order)


def copies_memory_bytes(spec: WeightsSpec) -> int:
    """Host memory that making a copy takes, besides the engine's."""
    return FILL_WORKER_BYTES + CONNECTIONS * CONNECTION_BYTES if spec.has("node-cache") else 0


def launcher_paths(spec: WeightsSpec, engine: EngineSpec) -> Sequence[Mapping[str, Any]]:
    """The paths as the launcher's configuration lists them. Local files take the default loader: it beats streaming."""
    local = ["{dir}", "--load-format", "safetensors"]
    paths: dict[Kind, Mapping[str, Any]] = {
        "stream": {"kind": "stream", "source": spec.uri, "engine_args": list(weights_arguments(engine))},
        "presharded": {
            "kind": "presharded",
            "source": spec.uri,
            "engine_args": [spec.uri, "--load-format", "runai_streamer_sharded"],
        },
        "node-cache": {
            "kind": "node-cache",
            "source": spec.uri,
            "engine_args": local,
            "dir": NODE_CACHE_MOUNT,
            "limit_bytes": spec.node_cache_bytes,
            "manifest": spec.manifest_uri,
            "fill_timeout_s": spec.fill_timeout_s,
            "connections": CONNECTIONS,
        },
        "shared-fs": {
            "kind": "shared-fs",
            "source": _shared_directory(spec),
            "engine_args": [*local, "--safetensors-load-strategy", "prefetch"],
            "dir": _shared_directory(spec),
        },
        "baked": {"kind": "baked", "source": spec.directory, "engine_args": local, "dir": spec.directory},
    }
    return [paths[kind] for kind in spec.order]


def _shared_directory(spec: WeightsSpec) -> str:
    return f"{SHARED_FS_MOUNT}/{spec.prefix.rstrip('/')}"


# ---- Kubernetes ----------------------------------------------------------------------------------------------------


def volumes(spec: WeightsSpec, name: str) -> tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
    """Volumes and mounts that the engine's pod needs for its paths."""
    pod: list[Mapping[str, Any]] = []
    mounts: list[Mapping[str, Any]] = []
    if spec.has("node-cache"):
        pod.append({"name": "node-cache", "persistentVolumeClaim": {"claimName": f"{name}-node-cache"}})
        mounts.append({"name": "node-cache", "mountPath": NODE_CACHE_MOUNT})
    if spec.has("shared-fs"):
        pod.append({"name": "models", "persistentVolumeClaim": {"claimName": f"{name}-models", "readOnly": True}})
        mounts.append({"name": "models", "mountPath": SHARED_FS_MOUNT, "readOnly": True})
    return pod, mounts


def claimed_volumes(
    spec: WeightsSpec, *, name: str, namespace: str, labels: Mapping[str, str]
) -> Sequence[Mapping[str, Any]]:
    """Persistent volumes and claims of the paths that need them.

    Restricted pods may not mount host paths, but may claim a volume that is one. The node's cache is such a volume:
    one claim, and on each node that node's own directory behind it.
    """
    found: list[Mapping[str, Any]] = []
    if spec.has("node-cache"):
        source = {"hostPath": {"path": NODE_CACHE_HOST_DIR, "type": "Directory"}}
        own = dict(labels) | {COMPONENT_LABEL: "node-cache"}
        found += _claim(f"{name}-node-cache", namespace, own, source, "ReadWriteMany")
    if spec.shared_fs is not None and spec.has("shared-fs"):
        csi = {"csi": {"driver": spec.shared_fs.driver, "volumeHandle": spec.shared_fs.volume_handle}}
        own = dict(labels) | {COMPONENT_LABEL: "models"}
        found += _claim(f"{name}-models", namespace, own, csi, "ReadWriteMany")
    return found


def _claim(
    name: str, namespace: str, labels: Mapping[str, str], source: Mapping[str, Any], mode: str
) -> Sequence[Mapping[str, Any]]:
    # Nothing reads the size of a volume that is there already, but the API demands one.
    capacity = {"storage": "1Ti"}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{namespace}-{name}", "labels": dict(labels)},
        "spec": {
            "capacity": capacity,
            "accessModes": [mode],
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"name": name, "namespace": namespace},
            **source,
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": {
            "accessModes": [mode],
            "storageClassName": "",
            "volumeName": f"{namespace}-{name}",
            "resources": {"requests": capacity},
        },
    }
    return [volume, claim]
