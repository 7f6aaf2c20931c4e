"""From a model's settings to the budget's scenario: `pulumi up`, probes and `coldstart plan` predict from this one."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from budget.coefficients import Coefficients, coefficients
from budget.disk import IO2_MIB_S, Disk
from budget.image import known_images, layers_of
from budget.instances import GIB, Instance, gpu_instance
from budget.models import ModelFacts
from budget.models import model as known_model
from budget.phases import Budget, budget_of
from budget.problems import BadInput, Problem, bad_input
from budget.scenario import (
    EngineCase,
    ImageCase,
    LayerCase,
    ModelCase,
    NodeCase,
    PullCase,
    Scenario,
    WarmupCase,
    WeightsCase,
)
from budget.scenario import WeightsPath as BudgetPath
from budget.streamer import rank_connections, rank_memory_limit_bytes, streamer_clients, streamer_release
from infra.model_settings import ImageFacts as StatedImage
from infra.model_settings import LayerCodec, Model, Profile, WeightsPath
from infra.setting import DIGEST
from infra.stack_file import Stack, facts_path
from nodeconfig.bottlerocket import NodeSpec, Sharing
from nodeconfig.storage import Storage
from serving.engine import capture_sizes
from serving.manifests import WARMUP_WINDOW, Phase

TYPICAL_ENGINE_IMAGE_BYTES = 9_612_695_005
"""A vllm-openai image of 2026 (v0.19.1, as the kubelet reported it in the llm-d guide); stands in for unknown tags."""
PATHS: Mapping[WeightsPath, BudgetPath] = {
    WeightsPath.STREAM: "stream",
    WeightsPath.PRESHARDED: "stream",
    # The first pod of a node pays for the copy; those after it read it.
    WeightsPath.NODE_CACHE: "download",
    WeightsPath.SHARED_FS: "shared-fs",
    WeightsPath.BAKED: "baked",
}
"""Weights path of the settings → of the budget."""
CUDA_SINCE = (((0, 21), (13, 0)), ((0, 11), (12, 9)), ((0, 9), (12, 8)))
"""CUDA of the plain vllm-openai tags by first vLLM release, newest first (vLLM Dockerfiles)."""
CURRENT_CUDA = CUDA_SINCE[0][1]


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """What is known of the engine image.

    Attributes:
        layers: compressed bytes of each layer; a typical split when nobody has read the manifest.
        known: the layers are the image's own.
    """

    compressed_bytes: int
    unpacked_bytes: int
    layers: tuple[int, ...]
    known: bool


def image_facts(model: Model) -> ImageFacts:
    """The image as the settings, the table of known images, or experience has it."""
    case = image_case(model)
    layers = layers_of(case, coefficients())
    return ImageFacts(
        compressed_bytes=math.ceil(case.bytes),
        unpacked_bytes=math.ceil(sum(layer.unpacked_bytes for layer in layers)),
        layers=tuple(math.ceil(layer.bytes) for layer in layers),
        known=case.layers is not None,
    )


def image_case(model: Model) -> ImageCase:
    """The image for a scenario. A digest does not change its size, so the tag is looked up."""
    stated, known = model.image_facts, known_images().get(model.image.partition("@")[0])
    if stated is not None:
        bytes_, layers = stated.compressed_bytes, _layers(stated)
    else:
        bytes_, layers = known.bytes if known else TYPICAL_ENGINE_IMAGE_BYTES, None
    volume = model.nodes.volume
    return ImageCase(
        bytes=bytes_,
        layers=layers,
        registry="docker-hub" if _on_docker_hub(model.image) else "ecr",
        cached=volume.snapshot_id is not None,
        hydration_mib_s=volume.initialization_mib_s,
        cuda=cuda_of(vllm_version(model)),
    )


def _layers(stated: StatedImage) -> tuple[LayerCase, ...] | None:
    """The layers as far as they are known: a list of another length, which the rules refuse, says nothing of them."""
    nobody_looked = (None,) * len(stated.layers)
    unpacked, waste = (
        known if len(known) == len(stated.layers) else nobody_looked
        for known in (stated.unpacked_layers, stated.waste_layers)
    )
    each = zip(stated.layers, unpacked, waste, strict=True)
    return tuple(LayerCase(bytes=size, unpacked_bytes=plain, waste_bytes=waste) for size, plain, waste in each) or None


def cuda_of(version: tuple[int, int, int] | None) -> tuple[int, int] | None:
    """CUDA of the image of a vLLM release; None when the release is not known, or older than any listed."""
    if version is None:
        return None
    return next((cuda for since, cuda in CUDA_SINCE if version[:2] >= since), None)


def _on_docker_hub(image: str) -> bool:
    """A name whose first part is no host is Docker Hub's."""
    host, slash, _ = image.partition("/")
    return not slash or not re.search(r"[.:]", host) or host == "docker.io"


def facts_of_model(stack: Stack, model: Model) -> ModelFacts:
    """Facts of the model: those beside the stack file, else those that ship.

    Raises:
        BadInput: facts of another revision, or a model whose facts neither ship nor were read from the hub.
    """
    own, mend = stack.facts, f"`coldstart pin {stack.name}` reads them from the hub."
    if own is None:
        try:
            return known_model(model.source, where="model.source")
        except BadInput as error:
            raise BadInput(replace(problem, fix=f"{mend} {problem.fix}") for problem in error.problems) from error
    if own.name != model.source or model.revision not in (None, own.revision):
        path = facts_path(stack.name).name
        raise bad_input("model.revision", f"{path} holds facts of {own.name} at {own.revision}", mend)
    return own


def vllm_version(model: Model) -> tuple[int, int, int] | None:
    """VLLM's version as the settings state it, or the image's tag; None when neither does."""
    if model.engine.version:
        major, minor, patch = model.engine.version.split(".")
        return int(major), int(minor), int(patch)
    tag = re.search(r":v?(\d+)\.(\d+)\.(\d+)[\w.-]*(@|$)", model.image)
    return (int(tag[1]), int(tag[2]), int(tag[3])) if tag else None


def tensor_parallel(model: Model, instance: Instance) -> int:
    """GPUs one replica spreads over: all of a node, unless GPUs are shared or the settings say otherwise."""
    shared = model.nodes.gpu_sharing.time_slicing or model.nodes.gpu_sharing.mig_profile
    return model.engine.tensor_parallel or (1 if shared else instance.kubernetes_gpus)


def gpu_sharing(model: Model) -> Sharing:
    """How pods share the GPUs of a node."""
    asked = model.nodes.gpu_sharing
    return Sharing(time_slicing=asked.time_slicing, mig_profile=asked.mig_profile)


def pods_per_node(model: Model, instance: Instance) -> int:
    """Replicas that the GPUs of one node hold."""
    offered = instance.kubernetes_gpus * gpu_sharing(model).pods_per_gpu(instance)
    return max(1, offered // tensor_parallel(model, instance))


def presharded(model: Model) -> bool:
    """Whether each rank has a file of its own in the bucket. No path that reads whole checkpoints stands beside it."""
    return WeightsPath.PRESHARDED in (model.weights.path, *model.weights.fallback)


def distributed(model: Model, ranks: int) -> bool:
    """Whether the streamer reads once for all ranks. Of files of their own each rank reads its own (vLLM's source)."""
    asked = model.weights.distributed
    return not presharded(model) and (ranks > 1 if asked is None else asked)


def keeps_compile_cache(model: Model) -> bool:
    """Whether compile artefacts outlive a pod: for compiled engines, and only for an image that a digest names."""
    return model.engine.compile_cache and model.profile is Profile.PRODUCTION and DIGEST.search(model.image) is not None


def scenario(stack: Stack, model: Model, node: NodeSpec, *, first: bool = False) -> Scenario:
    """The scenario of one cold start of this model, as its settings have it.

    Args:
        stack: the stack, for the facts of its model.
        model: its model settings.
        node: the node's configuration, as `infra.specs` computed it.
        first: the very first start of this image and model, with nothing compiled yet.

    Raises:
        BadInput: unknown instance or model, or values that contradict each other.
    """
    instance = gpu_instance(model.nodes.instance, where="model.nodes.instance")
    facts = facts_of_model(stack, model)
    ranks = tensor_parallel(model, instance)
    disk, disk_gib = _disk(node.storage)
    version = vllm_version(model)
    return Scenario(
        instance=instance,
        node=NodeCase(warm=False),
        image=image_case(model),
        pull=_pull(node, model.image_facts.codec if model.image_facts else LayerCodec.GZIP),
        disk=disk,
        disk_gib=disk_gib,
        model=ModelCase(
            weights_bytes=facts.weights_bytes,
            layers=facts.layers,
            parameters=facts.parameters,
            tensor_parallel=ranks,
            attention_heads=facts.attention_heads,
            kv_heads=facts.kv_heads,
            quantization=facts.quantization,
            facts=facts,
            context_tokens=model.engine.context_tokens,
        ),
        weights=_weights(model, node, facts, ranks),
        engine=EngineCase(
            compile_cache="hit" if keeps_compile_cache(model) and not first else "miss",
            eager=model.profile is Profile.DEV,
            capture_sizes=len(capture_sizes(model.engine.concurrency)),
            version=version[:2] if version else None,
            gpu_memory_utilization=model.engine.gpu_memory_utilization,
        ),
        # No fewer than the probes that find the engine steady.
        warmup=WarmupCase(requests=WARMUP_WINDOW),
    ).checked


def _weights(model: Model, node: NodeSpec, facts: ModelFacts, ranks: int) -> WeightsCase:
    """The weights as the pod reads them: release, clients and memory limit of its streamer are what it is given."""
    settings, instance = model.weights, node.instance
    # Either way every byte is read once, which is what the scenario asks.
    once = distributed(model, ranks) or presharded(model)
    clients = streamer_clients(instance.plan_network_gbps, ranks)
    return WeightsCase(
        path=PATHS[settings.path],
        source="s3",
        concurrency=rank_connections(instance, clients=clients, ranks=ranks, distributed=once),
        distributed=once,
        shared_mb_s=settings.shared_fs.throughput_mb_s if settings.shared_fs else None,
        files=facts.files,
        streamer=streamer_release(vllm_version(model)),
        clients=clients,
        memory_limit_bytes=rank_memory_limit_bytes(
            facts,
            instance,
            ranks=ranks,
            pods=pods_per_node(model, instance),
            asked_bytes=streamer_bytes(model),
        ),
    )


def streamer_bytes(model: Model) -> int | None:
    """The streamer's buffer of a pod, as it is set."""
    asked = model.weights.streamer_memory_gib
    return int(asked * GIB) if asked else None


def _pull(node: NodeSpec, codec: LayerCodec) -> PullCase:
    soci = node.soci
    return PullCase(
        snapshotter="soci",
        downloads=soci.downloads.value,
        unpacks=soci.unpacks.value,
        chunk_bytes=soci.chunk_mib.value * 2**20,
        decompressor="zstd" if codec is LayerCodec.ZSTD else "igzip",
        discard=soci.discard,
    )


def _disk(storage: Storage) -> tuple[Disk, float | None]:
    volume = storage.volume
    if storage.kind == "nvme":
        return Disk(kind="nvme"), None
    return (
        Disk(kind=volume.kind, throughput_mib_s=volume.throughput_mib_s or IO2_MIB_S, iops=volume.iops),
        volume.size_gib,
    )


def factors_path(stack: Stack) -> Path:
    """Where an environment's own machine factors are kept: beside its stack file, to be committed with it."""
    return stack.directory / f"factors.{stack.environment_name}.json"


def factors_of(stack: Stack) -> Coefficients:
    """Machine factors of an environment: the shipped ones, corrected by `coldstart plan --calibrate`.

    Raises:
        BadInput: a factors file that was edited into something no formula knows.
    """
    path = factors_path(stack)
    if not path.exists():
        return coefficients()
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        values = {str(name): float(value) for name, value in stored["factors"].items()}
        return coefficients().replaced(values, source=str(stored["source"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, BadInput):
            raise
        raise bad_input(str(path), "is not a factors file", "Delete it and calibrate again.") from error


def budget(stack: Stack, model: Model, node: NodeSpec, *, first: bool = False) -> Budget:
    """The budget of one cold start of this model; `first` as in `scenario`."""
    return budget_of(scenario(stack, model, node, first=first), factors_of(stack))


def slo_problem(model: Model, predicted: Budget) -> Problem | None:
    """What to say when the expected start exceeds `model.slo.cold_start_s`; names the phase to blame.

    A warning, or with `model.slo.enforce` a refusal: the caller decides by the setting.
    """
    objective, total = model.slo.cold_start_s, predicted.total.expected_s
    if objective is None or total <= objective:
        return None
    blamed = predicted.longest
    phase = predicted.phases[blamed]
    return Problem(
        "model.slo.cold_start_s",
        f"{objective} s, but the predicted start takes {total:.0f} s; `{blamed}` takes {phase.expected_s:.0f} s"
        " of them:"
        f" {phase.bound_by}",
        "`coldstart plan` ranks the levers; or raise the objective.",
    )


def phases(stack: Stack, model: Model, node: NodeSpec) -> Mapping[str, Phase]:
    """The budget in the words of the serving room.

    Expected is a start like most of them, which finds the compile cache; high has to hold for the very first one too.
    """
    usual = budget(stack, model, node).phases
    first = budget(stack, model, node, first=True).phases
    return {
        name: Phase(low_s=phase.low_s, expected_s=phase.expected_s, high_s=max(phase.high_s, first[name].high_s))
        for name, phase in usual.items()
    }
