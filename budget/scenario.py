"""A what-if: everything a budget is computed from, as plain values.

The shape mirrors the scenario file of `coldstart plan --scenario`; `scripts.scenario` parses that file into this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from budget.disk import Disk
from budget.instances import Instance
from budget.models import ModelFacts
from budget.problems import BadInput, Problem

Registry = Literal["ecr", "docker-hub"]
Decompressor = Literal["igzip", "unpigz", "go", "zstd"]
WeightsPath = Literal["stream", "download", "local", "baked", "shared-fs"]
WeightsSource = Literal["s3", "hub", "disk"]
CompileCache = Literal["hit", "miss", "none"]

LAYERS_TOLERANCE = 0.01
"""Layers may miss the image's bytes by this share: registries count config and manifest, people round."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeCase:
    """The node. `warm`: it runs, with its GPUs allocatable."""

    warm: bool = False
    driver: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCase:
    """One layer as far as it is known.

    Attributes:
        bytes: compressed.
        unpacked_bytes: None falls back to the image's ratio.
        waste_bytes: compressed bytes of what does not belong in it; None when nobody has looked inside.
    """

    bytes: float
    unpacked_bytes: float | None = None
    waste_bytes: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageCase:
    """The engine image.

    Attributes:
        bytes: compressed.
        layers: in image order; None when nobody has read the manifest.
        unpack_ratio: unpacked / compressed; None when unknown.
        cached: the node has it.
        hydration_mib_s: rate at which a new node's volume fetches it from a snapshot in S3, which begins at launch;
            None when its blocks are there from the first second.
        cuda: CUDA version inside, (13, 0); None when unknown.
    """

    bytes: float
    layers: tuple[LayerCase, ...] | None = None
    unpack_ratio: float | None = None
    registry: Registry = "ecr"
    cached: bool = False
    hydration_mib_s: float | None = None
    cuda: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PullCase:
    """How the node pulls. `chunk_bytes` None asks for whole layers; see `budget.pull.PullSettings`."""

    snapshotter: Literal["soci", "overlayfs"] = "soci"
    downloads: int = 20
    unpacks: int = 12
    chunk_bytes: float | None = 16_000_000
    decompressor: Decompressor = "igzip"
    discard: bool | None = None

    @property
    def discards(self) -> bool:
        """Blobs are dropped after unpacking: what a tuned SOCI does; containerd keeps them unless told otherwise."""
        return self.snapshotter == "soci" if self.discard is None else self.discard


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCase:
    """The model, by numbers or by facts.

    Attributes:
        attention_heads: None when unknown: divisibility by tensor parallelism is then not checked.
        facts: everything known of the model; None in a scenario of bare numbers, where GPU memory is judged by the
            weights alone.
        context_tokens: None takes 8,192, or less if the model ends there.
    """

    weights_bytes: float
    layers: int
    parameters: float
    tensor_parallel: int = 1
    attention_heads: int | None = None
    kv_heads: int | None = None
    quantization: str | None = None
    facts: ModelFacts | None = None
    context_tokens: int | None = None
    concurrency: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsCase:
    """How weights reach the GPU.

    Attributes:
        path: `stream` storage → GPU; `download` to disk, then load; `local` they are on the node's disk or in its page
            cache; `baked` they are in the image; `shared-fs` read from a shared file system.
        concurrency: connections (requests in flight) to the source.
        clients: S3 clients of one streamer process, which open those connections: what RUNAI_STREAMER_OBJ_CONCURRENCY,
            or RUNAI_STREAMER_CONCURRENCY before streamer 0.17, says; None takes the streamer's default.
        files: safetensors files, which the hub client fetches in parallel; None guesses one per 5 GB.
        distributed: ranks share one read instead of each reading everything.
        shared_mb_s: cold throughput of a shared file system.
        streamer: (major, minor) of the Model Streamer.
    """

    path: WeightsPath = "stream"
    source: WeightsSource = "s3"
    concurrency: int = 32
    files: int | None = None
    distributed: bool = False
    shared_mb_s: float | None = None
    streamer: tuple[int, int] = (0, 17)
    clients: int | None = None
    memory_limit_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineCase:
    """The engine.

    Attributes:
        compile_cache: `hit` artefacts are there; `miss` they are written now; `none` compilation is not cached at all
            (same time as a miss).
        capture_sizes: CUDA graph batch sizes.
        cpu_factor: single-thread time of the host relative to the reference host (above 1 is slower); None takes the
            instance family's.
        version: (major, minor) of vLLM; None takes the reference release's behaviour.
        startup_plan: a stored plan replaces memory profiling.
    """

    compile_cache: CompileCache = "miss"
    eager: bool = False
    capture_sizes: int = 67
    cpu_factor: float | None = None
    version: tuple[int, int] | None = None
    startup_plan: bool = False
    gpu_memory_utilization: float = 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmupCase:
    """Synthetic requests before Ready."""

    requests: int = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class HostCase:
    """Measured factors of the host; every one set replaces what the instance table says.

    Attributes:
        connection_mb_s: one connection to the image registry.
        unpack_layer_mb_s: output of one layer's unpack, its slowest stage.
        unpack_cpu_s_per_gb: CPU of the whole pull per GB of output.
        dirty_bytes: unwritten data at which writers are held to the disk's speed.
    """

    cores: float | None = None
    memory_bytes: float | None = None
    network_mb_s: float | None = None
    connection_mb_s: float | None = None
    unpack_layer_mb_s: float | None = None
    unpack_cpu_s_per_gb: float | None = None
    disk_mb_s: float | None = None
    dirty_bytes: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """One cold start, described."""

    instance: Instance
    image: ImageCase
    model: ModelCase
    node: NodeCase = field(default_factory=NodeCase)
    pull: PullCase = field(default_factory=PullCase)
    disk: Disk = field(default_factory=lambda: Disk(kind="nvme"))
    disk_gib: float | None = None
    weights: WeightsCase = field(default_factory=WeightsCase)
    engine: EngineCase = field(default_factory=EngineCase)
    warmup: WarmupCase = field(default_factory=WarmupCase)
    host: HostCase = field(default_factory=HostCase)

    @property
    def ranks(self) -> int:
        """Engine processes, one per GPU."""
        return self.model.tensor_parallel

    @property
    def checked(self) -> Scenario:
        """Itself.

        Raises:
            BadInput: values that contradict each other or the instance, all of them.
        """
        problems = list(problems_of(self))
        if problems:
            raise BadInput(problems)
        return self


def problems_of(scenario: Scenario) -> Iterable[Problem]:
    """Contradictions between keys. Ranges of single keys are the parser's business."""
    yield from _instance_problems(scenario)
    yield from _layer_problems(scenario.image)
    yield from _weights_problems(scenario.weights)


def _instance_problems(scenario: Scenario) -> Iterable[Problem]:
    instance, model = scenario.instance, scenario.model
    gpus = instance.kubernetes_gpus
    if not gpus:
        yield Problem("instance", f"{instance.name} has no GPU", "Choose a type with GPUs, such as g6e.2xlarge.")
    elif model.tensor_parallel > gpus:
        yield Problem(
            "model.tensor_parallel",
            f"{model.tensor_parallel} ranks need as many GPUs, {instance.name} has {gpus}",
            f"Allowed: 1 to {gpus}, or a larger instance.",
        )
    heads = model.attention_heads
    if heads and heads % model.tensor_parallel:
        allowed = [str(size) for size in range(1, heads + 1) if heads % size == 0 and size <= max(1, gpus)]
        yield Problem(
            "model.tensor_parallel",
            f"{model.tensor_parallel} does not divide {heads} attention heads",
            f"Allowed: {', '.join(allowed)}.",
        )
    if scenario.disk.kind == "nvme" and not instance.nvme_disks and scenario.host.disk_mb_s is None:
        yield Problem("disk.kind", f"{instance.name} has no local NVMe disk", "Allowed: gp3, io2.")


def _layer_problems(image: ImageCase) -> Iterable[Problem]:
    if image.layers is None:
        return
    total = sum(layer.bytes for layer in image.layers)
    if abs(total - image.bytes) > LAYERS_TOLERANCE * image.bytes:
        yield Problem(
            "image.layers",
            f"the layers sum to {total:.0f} bytes, image.bytes is {image.bytes:.0f}",
            "Give the compressed size of every layer, or `layers: null` for a typical split.",
        )


def _weights_problems(weights: WeightsCase) -> Iterable[Problem]:
    # Where local, baked and shared weights once came from does not matter to a start.
    allowed: dict[WeightsPath, Sequence[WeightsSource]] = {"stream": ("s3", "disk"), "download": ("s3", "hub")}
    if weights.path in allowed and weights.source not in allowed[weights.path]:
        yield Problem(
            "weights.source",
            f"path {weights.path} cannot read from {weights.source}",
            f"Allowed with {weights.path}: {', '.join(allowed[weights.path])}.",
        )
    if weights.path == "shared-fs" and not weights.shared_mb_s:
        yield Problem(
            "weights.shared_mb_s",
            "a shared file system needs its cold throughput",
            "Give MB/s, e.g. 125 per TiB of FSx for Lustre.",
        )
