"""What follows from a model's settings: the node, the volume, the pod. Computed once, used by all that need it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from budget.disk import (
    GP3_DEFAULT_IOPS,
    GP3_DEFAULT_MIB_S,
    GP3_IOPS_PER_MIB_S,
    GP3_TUNED_MIB_S,
    IO2_MIB_S,
    IO_BYTES,
    SOCI_FLOOR_MIB_S,
    data_volume_gib,
)
from budget.instances import GIB, MIB, MIB_S_TO_MB_S, Instance, gpu_instance
from budget.memory import Streamer, local_host_memory, streaming_host_memory
from budget.models import ModelFacts
from budget.staged import StagedModel
from budget.streamer import rank_memory_limit_bytes, streamer_release
from infra.accounts import CACHE_PREFIX, bucket_name, environment_tags, zone_names
from infra.forecast import (
    ImageFacts,
    distributed,
    facts_of_model,
    gpu_sharing,
    image_facts,
    keeps_compile_cache,
    phases,
    pods_per_node,
    streamer_bytes,
    tensor_parallel,
    vllm_version,
)
from infra.model_settings import Model, Profile, Volume, WeightsPath
from infra.stack_file import Stack
from nodeconfig.bottlerocket import NodeSpec
from nodeconfig.soci import Tuned, Tuning, tune
from nodeconfig.storage import Storage, choose
from nodeconfig.storage import Volume as NodeVolume
from serving.engine import EngineSpec
from serving.manifests import MARGIN, CompileCacheSpec, Phase, Scaling, ServingSpec, Window
from serving.weights import SharedFileSystem, WeightsSpec, copies_memory_bytes

API_KEY_SECRET = "engine-api-key"  # noqa: S105 - the name of a Kubernetes Secret, not its content
UNPINNED = "unpinned"
"""Stands where a revision would, so that an unpinned stack can be looked at; nothing is ever staged there."""
RESTORE_S = 20
"""Compiling takes 15 to 60 s from 32 layers on; an archive of some 100 MB arrives in two."""
SHUTDOWN_TIMEOUT_S = 60
"""Requests in flight get this long to finish."""
CPU_SHARE = 0.85
"""Of what is left when one vCPU is set aside: daemon sets and the kubelet need the rest."""
NODE_TIMEOUT_MINUTES = 45
"""For creating or updating a node group. EKS waits up to 15 minutes for a node's pods to leave (EKS user guide, update
behavior); the rest is for a slow boot and a second node."""
FILL_TIMEOUT_FLOOR_S = 60
"""A small model is copied within seconds, but S3 may answer SlowDown for a while."""
MOST_STABILIZATION_S = 3_600
"""Longest that a HorizontalPodAutoscaler takes (Kubernetes API reference, HPAScalingRules)."""
COOLDOWN_FLOOR_S = 300
"""KEDA's own default."""
IO2_IOPS = IO2_MIB_S * MIB // IO_BYTES
"""As many as io2's highest throughput takes."""
NVME_MIN_VOLUME_GIB = 20
"""Data volume of a node whose images are on NVMe: logs of the system and what is written before the disks are bound."""


@dataclass(frozen=True, kw_only=True)
class ModelSpecs:
    """Everything that a model's resources are built from.

    Attributes:
        pods_per_node: replicas that fit one node by GPUs.
        max_nodes: nodes that the most replicas need; bounds the bill.
        ephemeral_gib: node disk that pods see.
        zone_groups: node groups as (suffix of the name, zones).
        staged: where the weights lie in the bucket; the revision is `unpinned` until `coldstart pin` has run.
        slowest_start_s: the budget's high total.
    """

    node: NodeSpec
    serving: ServingSpec
    image: ImageFacts
    bucket: str
    staged: StagedModel
    weights_bytes: int
    pods_per_node: int
    max_nodes: int
    ephemeral_gib: int
    zone_groups: Sequence[tuple[str, tuple[str, ...]]]
    slowest_start_s: float
    rollout_timeout_s: int
    node_timeout_minutes: int


def nodes_for(replicas: int, pods_per_node: int) -> int:
    """Nodes that hold so many replicas."""
    return math.ceil(replicas / pods_per_node)


def staged_of(model: Model) -> StagedModel:
    """Where the model's weights lie in the bucket."""
    return StagedModel(name=model.source, revision=model.revision or UNPINNED)


def model_specs(stack: Stack, model: Model) -> ModelSpecs:
    """The specs of a model stack.

    Raises:
        BadInput: unknown instance type or model.
    """
    instance = gpu_instance(model.nodes.instance, where="model.nodes.instance")
    image, facts = image_facts(model), facts_of_model(stack, model)
    node = _node(stack, model, instance, image, facts)
    pods = pods_per_node(model, instance)
    budget = phases(stack, model, node)
    slowest_s = sum(phase.high_s for phase in budget.values())
    places = model.scaling.max_replicas + model.scaling.spare_replicas
    volume_gib = node.storage.volume.size_gib
    on_nvme = node.storage.kind == "nvme"
    return ModelSpecs(
        node=node,
        serving=_serving(stack, model, node, facts, budget, pods, slowest_s),
        image=image,
        bucket=bucket_name(stack),
        staged=staged_of(model),
        weights_bytes=facts.weights_bytes,
        pods_per_node=pods,
        max_nodes=nodes_for(places, pods),
        ephemeral_gib=instance.nvme_bytes // GIB if on_nvme else volume_gib,
        zone_groups=_zone_groups(stack, model),
        slowest_start_s=slowest_s,
        # Replicas are replaced one after another; one that never gets ready ends earlier, by its own deadline.
        rollout_timeout_s=math.ceil(slowest_s * MARGIN) * model.scaling.max_replicas,
        node_timeout_minutes=NODE_TIMEOUT_MINUTES,
    )


def _zone_groups(stack: Stack, model: Model) -> Sequence[tuple[str, tuple[str, ...]]]:
    letters = model.nodes.zones or stack.environment.network.zones
    zones = zone_names(stack.environment.region, letters)
    if model.nodes.group_per_zone:
        return [(letter, (zone,)) for letter, zone in zip(letters, zones, strict=True)]
    return [("", zones)]


# ---- node ---------------------------------------------------------------------------------------------------------


def _node(stack: Stack, model: Model, instance: Instance, image: ImageFacts, facts: ModelFacts) -> NodeSpec:
    release = model.nodes.bottlerocket_release or stack.environment.bottlerocket_release
    major, minor, patch = (int(part) for part in release.split("."))
    return NodeSpec(
        release=(major, minor, patch),
        instance=instance,
        soci=_tuning(model, instance, image),
        storage=_storage(model, instance, image, facts),
        sharing=gpu_sharing(model),
        metrics=stack.environment.network.egress == "nat",
    )


def _tuning(model: Model, instance: Instance, image: ImageFacts) -> Tuning:
    computed, asked = tune(instance, image.layers), model.nodes.soci

    def value(override: int | None, tuned: Tuned, cap: int | None = None) -> Tuned:
        if override is not None:
            return Tuned(value=override, reason="asked for")
        if cap is not None and tuned.value > cap:
            return Tuned(value=cap, reason=f"the cap over all images, below the computed {tuned.value}")
        return tuned

    return Tuning(
        downloads=value(asked.max_concurrent_downloads_per_image, computed.downloads, asked.max_concurrent_downloads),
        unpacks=value(asked.max_concurrent_unpacks_per_image, computed.unpacks, asked.max_concurrent_unpacks),
        chunk_mib=value(asked.chunk_mib, computed.chunk_mib),
        downloads_all=asked.max_concurrent_downloads,
        unpacks_all=asked.max_concurrent_unpacks,
    )


def _storage(model: Model, instance: Instance, image: ImageFacts, facts: ModelFacts) -> Storage:
    size_gib = data_volume_gib(
        image_bytes=image.compressed_bytes,
        unpacked_bytes=image.unpacked_bytes,
        cached_bytes=_cached_bytes(model, facts),
    )
    return choose(
        instance,
        wanted=model.nodes.disk.value,
        nvme_volume=_volume(model.nodes.volume, NVME_MIN_VOLUME_GIB, GP3_DEFAULT_MIB_S),
        ebs_volume=_volume(model.nodes.volume, size_gib, _useful_mib_s(instance)),
    )


def _cached_bytes(model: Model, facts: ModelFacts) -> int:
    """Room for a node cache on the image disk."""
    if WeightsPath.NODE_CACHE not in (model.weights.path, *model.weights.fallback):
        return 0
    asked_gib = model.weights.node_cache_gib
    return asked_gib * GIB if asked_gib else 2 * facts.weights_bytes


def _useful_mib_s(instance: Instance) -> int:
    """Throughput worth paying for: what the instance can take in a burst, within what SOCI needs and gp3 can do."""
    return min(GP3_TUNED_MIB_S, max(SOCI_FLOOR_MIB_S, math.ceil(instance.ebs_max_mb_s / MIB_S_TO_MB_S)))


def _volume(asked: Volume, size_gib: int, throughput_mib_s: int) -> NodeVolume:
    throughput = None if asked.kind == "io2" else asked.throughput_mib_s or throughput_mib_s
    usual_iops = IO2_IOPS if throughput is None else max(GP3_DEFAULT_IOPS, GP3_IOPS_PER_MIB_S * throughput)
    return NodeVolume(
        kind=asked.kind,
        size_gib=asked.size_gib or size_gib,
        iops=asked.iops or usual_iops,
        throughput_mib_s=throughput,
        snapshot_id=asked.snapshot_id,
        initialization_mib_s=asked.initialization_mib_s,
    )


# ---- pod ----------------------------------------------------------------------------------------------------------


def _serving(
    stack: Stack,
    model: Model,
    node: NodeSpec,
    facts: ModelFacts,
    budget: Mapping[str, Phase],
    pods: int,
    slowest_s: float,
) -> ServingSpec:
    instance, storage = node.instance, node.storage
    ranks = tensor_parallel(model, instance)
    engine = _engine(stack, model, instance, facts, ranks)
    weights = _weights(stack, model, storage, facts, budget)
    return ServingSpec(
        name=stack.slug,
        namespace=stack.slug,
        labels={f"coldstart/{key}": environment_tags(stack)[key] for key in ("environment", "stack")},
        model=model.source,
        revision=model.revision or UNPINNED,
        image=model.image,
        instance=instance.name,
        engine=engine,
        weights=weights,
        compile_cache=_compile_cache(stack, model, instance),
        gpus=ranks,
        cpu_millicores=int((instance.vcpu - 1) * 1000 * CPU_SHARE / pods),
        memory_bytes=_host_memory(engine, weights, facts, ranks),
        budget=budget,
        scaling=_scaling(model, slowest_s),
        spare_replicas=model.scaling.spare_replicas,
        pod_monitor=model.pod_monitor,
        api_key_secret=API_KEY_SECRET if model.engine.require_api_key else None,
    )


def _engine(stack: Stack, model: Model, instance: Instance, facts: ModelFacts, ranks: int) -> EngineSpec:
    engine, weights = model.engine, model.weights
    return EngineSpec(
        version=vllm_version(model) or (0, 0, 0),
        weights_uri=staged_of(model).uri(bucket_name(stack)),
        region=stack.environment.region,
        served_name=stack.slug,
        tensor_parallel=ranks,
        context_tokens=engine.context_tokens,
        concurrency=engine.concurrency,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        eager=model.profile is Profile.DEV,
        distributed=distributed(model, ranks),
        network_gbps=instance.plan_network_gbps,
        streamer_memory_bytes=rank_memory_limit_bytes(
            facts,
            instance,
            ranks=ranks,
            pods=pods_per_node(model, instance),
            asked_bytes=streamer_bytes(model),
        ),
        trust_remote_code=weights.trust_remote_code,
        startup_plan=engine.startup_plan,
        shutdown_timeout_s=SHUTDOWN_TIMEOUT_S,
        args=engine.args,
    )


def _host_memory(engine: EngineSpec, weights: WeightsSpec, facts: ModelFacts, ranks: int) -> int:
    """Host memory of the hungriest path that may be tried."""
    streamer = Streamer(
        version=streamer_release(engine.version),
        distributed=engine.distributed,
        memory_limit_bytes=engine.streamer_memory_bytes,
    )
    streamed = streaming_host_memory(
        streamer,
        checkpoint_bytes=facts.weights_bytes,
        largest_tensor_bytes=facts.largest_tensor_bytes,
        ranks=ranks,
    ).request_bytes
    local = local_host_memory(largest_tensor_bytes=facts.largest_tensor_bytes, ranks=ranks).request_bytes
    streams = weights.has("stream") or weights.has("presharded")
    return max(streamed if streams else 0, local + copies_memory_bytes(weights))


def _weights(
    stack: Stack, model: Model, storage: Storage, facts: ModelFacts, budget: Mapping[str, Phase]
) -> WeightsSpec:
    settings, staged, bucket = model.weights, staged_of(model), bucket_name(stack)
    return WeightsSpec(
        order=tuple(path.value for path in (settings.path, *settings.fallback)),
        uri=staged.uri(bucket),
        manifest_uri=staged.manifest_uri(bucket),
        prefix=staged.prefix,
        node_cache_bytes=_node_cache_bytes(settings.node_cache_gib, storage, facts),
        shared_fs=(
            SharedFileSystem(driver=settings.shared_fs.driver, volume_handle=settings.shared_fs.volume_handle)
            if settings.shared_fs
            else None
        ),
        directory=settings.directory,
        fill_timeout_s=max(FILL_TIMEOUT_FLOOR_S, math.ceil(budget["weights"].high_s * MARGIN)),
    )


def _node_cache_bytes(asked_gib: int | None, storage: Storage, facts: ModelFacts) -> int:
    if asked_gib is not None:
        return asked_gib * GIB
    return max(storage.capacity_bytes // 2, 2 * facts.weights_bytes)


def _compile_cache(stack: Stack, model: Model, instance: Instance) -> CompileCacheSpec | None:
    if not keeps_compile_cache(model):
        return None
    return CompileCacheSpec(
        uri=f"s3://{bucket_name(stack)}/{cache_prefix(model)}",
        gpu=instance.gpu,
        max_restore_s=RESTORE_S,
    )


def cache_prefix(model: Model) -> str:
    """Where a model's compile artefacts lie in the bucket: outside of what an engine lists."""
    return f"{CACHE_PREFIX}/{model.source}/"


def _scaling(model: Model, slowest_s: float) -> Scaling:
    scaling = model.scaling
    cooldown_s = scaling.cooldown_s or max(COOLDOWN_FLOOR_S, math.ceil(slowest_s * MARGIN))
    return Scaling(
        min_replicas=scaling.min_replicas,
        max_replicas=scaling.max_replicas,
        waiting_requests=scaling.waiting_requests,
        cooldown_s=cooldown_s,
        stabilization_s=min(MOST_STABILIZATION_S, cooldown_s),
        schedule=tuple(
            Window(start=window.start, end=window.end, timezone=window.timezone, replicas=window.replicas)
            for window in scaling.schedule
        ),
    )
