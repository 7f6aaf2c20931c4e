"""Serving specs that the tests of the objects start from, and the way to one object of a rendering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from serving.engine import EngineSpec
from serving.manifests import (
    CompileCacheSpec,
    Phase,
    Scaling,
    ServingSpec,
    Window,
    objects,
)
from serving.weights import SharedFileSystem, WeightsSpec

VERSIONS = ("1.35", "1.36")
CUSTOM_KINDS = ("ScaledObject", "PodMonitor")
"""Custom resources: Kubernetes has no schema of them."""
KINDS = [
    "Namespace",
    "ServiceAccount",
    "ConfigMap",
    "Service",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "Deployment",
    "ScaledObject",
]
BUDGET = {
    "node": Phase(low_s=40, expected_s=60, high_s=90),
    "pull": Phase(low_s=20, expected_s=30, high_s=60),
    "start": Phase(low_s=5, expected_s=8, high_s=12),
    "weights": Phase(low_s=10, expected_s=20, high_s=40),
    "engine": Phase(low_s=30, expected_s=60, high_s=100),
    "warmup": Phase(low_s=5, expected_s=10, high_s=28),
}
ENGINE = EngineSpec(
    version=(0, 27, 1),
    weights_uri="s3://bucket/models/org/name/rev/",
    region="us-west-2",
    served_name="llama",
    tensor_parallel=1,
    context_tokens=8192,
    concurrency=64,
    gpu_memory_utilization=0.9,
    eager=False,
    distributed=False,
    network_gbps=5.0,
    streamer_memory_bytes=2**34,
    trust_remote_code=False,
    startup_plan=False,
    shutdown_timeout_s=60,
    args=(),
)
WEIGHTS = WeightsSpec(
    order=("stream",),
    uri=ENGINE.weights_uri,
    manifest_uri="s3://bucket/manifests/org/name/rev.json",
    prefix="models/org/name/rev/",
    node_cache_bytes=2**37,
    shared_fs=None,
    directory="/weights",
    fill_timeout_s=60,
)
CACHE = CompileCacheSpec(uri="s3://bucket/cache/org/name/", gpu="L40S", max_restore_s=20)
SPEC = ServingSpec(
    name="llama",
    namespace="llama",
    labels={"coldstart/environment": "dev", "coldstart/stack": "dev-llama"},
    model="org/name",
    revision="a" * 40,
    image="123456789012.dkr.ecr.us-west-2.amazonaws.com/vllm:v0.27.1@sha256:" + "b" * 64,
    instance="g6e.2xlarge",
    engine=ENGINE,
    weights=WEIGHTS,
    compile_cache=None,
    gpus=1,
    cpu_millicores=5_950,
    memory_bytes=24 * 2**30,
    budget=BUDGET,
    scaling=Scaling(
        min_replicas=1, max_replicas=4, waiting_requests=4, cooldown_s=700, stabilization_s=700, schedule=()
    ),
    spare_replicas=0,
    pod_monitor=False,
    api_key_secret=None,
)
EVERYTHING = replace(
    SPEC,
    weights=replace(
        WEIGHTS,
        order=("node-cache", "shared-fs", "baked", "presharded", "stream"),
        shared_fs=SharedFileSystem(driver="efs.csi.aws.com", volume_handle="fs-0123456789abcdef0"),
    ),
    compile_cache=CACHE,
    spare_replicas=2,
    pod_monitor=True,
    api_key_secret="engine-api-key",  # noqa: S106 - a name
)
"""Every option at once: what one of them breaks shows here."""
WINDOW = Window(start="0 8 * * 1-5", end="0 18 * * 1-5", timezone="Europe/Berlin", replicas=2)


def by_kind(spec: ServingSpec = SPEC) -> dict[str, Any]:
    """The model's own objects; what comes with an option has another name."""
    return {manifest["kind"]: manifest for manifest in objects(spec) if spec.name in named_after(manifest)}


def named_after(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """An object's name as it is, and without the hash of its content."""
    name: str = manifest["metadata"]["name"]
    return name, name.rpartition("-")[0] if manifest["kind"] == "ConfigMap" else name


def pod_of(spec: ServingSpec = SPEC) -> dict[str, Any]:
    return by_kind(spec)["Deployment"]["spec"]["template"]["spec"]


def container_of(spec: ServingSpec = SPEC) -> dict[str, Any]:
    (container,) = pod_of(spec)["containers"]
    return container


def scaled(**changes: Any) -> ServingSpec:
    return replace(SPEC, scaling=replace(SPEC.scaling, **changes))


def strings(value: object) -> Iterator[str]:
    match value:
        case dict():
            for key, item in value.items():
                yield from strings(key)
                yield from strings(item)
        case list():
            for item in value:
                yield from strings(item)
        case str():
            yield value
