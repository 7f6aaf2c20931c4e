"""`coldstart:model`: every key of a model, with its unit, its default and the reason for it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import (
    Field,
)

from infra.setting import REVISION, Cron, Image, Moment, Release, SnapshotId, Source, Tree, Zone, setting


class LayerCodec(StrEnum):
    """What layers are compressed with."""

    GZIP = "gzip"
    ZSTD = "zstd"


class Profile(StrEnum):
    """What a model's start is tuned for."""

    PRODUCTION = "production"
    DEV = "dev"


class Capacity(StrEnum):
    """How GPU instances are bought."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    RESERVATION = "reservation"
    CAPACITY_BLOCK = "capacity-block"


class Disk(StrEnum):
    """Where images, SOCI and the kubelet keep their bytes."""

    AUTO = "auto"
    NVME = "nvme"
    EBS = "ebs"


class WeightsPath(StrEnum):
    """How weights reach the GPU."""

    STREAM = "stream"
    NODE_CACHE = "node-cache"
    SHARED_FS = "shared-fs"
    BAKED = "baked"
    PRESHARDED = "presharded"


# ---- environment -------------------------------------------------------------------------------------------------


class Volume(Tree):
    """`model.nodes.volume`: the EBS data volume of a GPU node (`/dev/xvdb`)."""

    kind: Literal["gp3", "io2"] = setting(
        "gp3", what="EBS volume type.", why="gp3 reaches 2,000 MiB/s; io2 is for instances that can take more."
    )
    size_gib: int | None = setting(
        None, what="Size.", unit="GiB", why="Unset: three times the unpacked image plus headroom.", ge=20, le=65536
    )
    iops: int | None = setting(
        None, what="Provisioned IOPS.", unit="IOPS", why="Unset: what the throughput needs.", ge=100, le=256_000
    )
    throughput_mib_s: int | None = setting(
        None,
        what="Provisioned throughput of gp3.",
        unit="MiB/s",
        why="Unset: 1,000 when images are on EBS, else the 125 that are free; never more than the instance can use.",
        ge=125,
        le=2000,
    )
    snapshot_id: SnapshotId | None = setting(
        None,
        what="EBS snapshot that the volume starts from, with the engine image on it: `coldstart image snapshot` bakes "
        "one.",
        why="Unset: an empty volume, and every new node pulls. A snapshot is of one image.",
    )
    initialization_mib_s: int | None = setting(
        None,
        what="Rate at which EBS fetches the snapshot's blocks from S3, billed for each volume.",
        unit="MiB/s",
        why="Unset: as fast as EBS likes, ten minutes and more; right only where fast snapshot restore is on.",
        ge=100,
        le=300,
    )


class WarmPool(Tree):
    """`model.nodes.warm_pool`: stopped or running spare instances."""

    size: int = setting(what="Instances kept prepared.", unit="nodes", ge=1, le=100)
    state: Literal["stopped", "running"] = setting(
        "stopped",
        what="Stopped spares cost only their volumes but hold no capacity; running ones cost their full price.",
        why="Bottlerocket has no hibernation.",
    )


class GpuSharing(Tree):
    """`model.nodes.gpu_sharing`: several pods on one GPU."""

    time_slicing: int | None = setting(
        None,
        what="Pods that take turns on each GPU.",
        unit="replicas",
        why="Unset: a GPU is one pod's own.",
        ge=2,
        le=48,
    )
    mig_profile: str | None = setting(
        None,
        what="MIG partition of each GPU, such as 1g.10gb, or the number of equal parts.",
        why="Unset: no partitioning.",
        pattern=r"^([12347]|\dg\.\d+gb)$",
    )


class Soci(Tree):
    """`model.nodes.soci`: overrides of the computed parallel pull tuning."""

    max_concurrent_downloads: int | None = setting(
        None, what="Ranged requests at once over all images.", unit="requests", why="Unset: no limit of its own.", ge=1
    )
    max_concurrent_downloads_per_image: int | None = setting(
        None,
        what="Ranged requests at once of one image.",
        unit="requests",
        why="Unset: computed from the network.",
        ge=1,
    )
    max_concurrent_unpacks: int | None = setting(
        None, what="Layers unpacked at once over all images.", unit="layers", why="Unset: no limit of its own.", ge=1
    )
    max_concurrent_unpacks_per_image: int | None = setting(
        None,
        what="Layers of one image unpacked at once.",
        unit="layers",
        why="Unset: computed from vCPUs and layers.",
        ge=1,
    )
    chunk_mib: int | None = setting(
        None, what="Size of one ranged request.", unit="MiB", why="Unset: computed from the layers.", ge=1, le=1024
    )


class Nodes(Tree):
    """`model.nodes`: the GPU node group."""

    instance: str = setting(what="EC2 instance type with NVIDIA GPUs; `coldstart plan --model` lists those that fit.")
    capacity: Capacity = setting(
        Capacity.ON_DEMAND, what="How instances are bought.", why="Spot and reservations are decisions."
    )
    reservation_id: str | None = setting(
        None,
        what="Capacity reservation or capacity block, cr-…",
        why="Needed by `reservation` and `capacity-block` alone.",
        pattern=r"^cr-[0-9a-f]{17}$",
    )
    zones: tuple[Zone, ...] = setting(
        (), what="Zones for GPU nodes.", why="Empty: every zone of the environment, since capacity is where it is."
    )
    group_per_zone: bool = setting(
        default=False,
        what="One node group per zone instead of one over all.",
        why="One group finds capacity in any zone; separate ones let the autoscaler give up on a zone without it.",
    )
    disk: Disk = setting(
        Disk.AUTO,
        what="Where images live: instance NVMe, the EBS volume, or whichever writes faster.",
        why="Small NVMe disks are slower than a tuned gp3 on some types, so numbers decide.",
    )
    volume: Volume = setting(Volume, what="The EBS data volume.")
    warm_pool: WarmPool | None = setting(None, what="Prepared spare instances.", why="They cost money while idle.")
    gpu_sharing: GpuSharing = setting(GpuSharing, what="Several pods on one GPU.")
    soci: Soci = setting(Soci, what="Overrides of the parallel pull tuning.")
    bottlerocket_release: Release | None = setting(
        None,
        what="Bottlerocket release of these nodes.",
        why="Unset: the environment's. Set it to try a release on one model.",
    )


class Engine(Tree):
    """`model.engine`: vLLM."""

    tensor_parallel: int | None = setting(
        None, what="GPUs one replica spreads over.", unit="GPUs", why="Unset: all GPUs of the instance.", ge=1, le=16
    )
    context_tokens: int = setting(
        8192,
        what="Longest prompt plus answer.",
        unit="tokens",
        why="KV cache is bought by the token: 8,192 fits chat; raise it for documents.",
        ge=128,
        le=10_000_000,
    )
    concurrency: int = setting(
        64,
        what="Requests one replica serves at once; also decides which CUDA graphs are captured.",
        unit="requests",
        why="Graphs nobody runs still cost start time.",
        ge=1,
        le=4096,
    )
    gpu_memory_utilization: float = setting(
        0.9, what="Share of GPU memory the engine may take.", why="The engine's own default.", gt=0.1, le=0.98
    )
    version: Release | None = setting(
        None, what="vLLM version inside the image.", why="Unset: read from the image's tag, v0.27.1 or the like."
    )
    compile_cache: bool = setting(
        default=True,
        what="Whether compile artefacts are kept in the bucket and restored by the next pod (`production` only).",
        why="Compiling is the largest part of a warm node's start, and the same every time.",
    )
    startup_plan: bool = setting(
        default=False,
        what="Whether a container that starts again in the same pod skips memory profiling (vLLM's start-up plan).",
        why="A plan taken from a start that compiled freezes its smaller KV cache (vllm#54122).",
    )
    args: tuple[str, ...] = setting((), what="More engine arguments, each `--flag=value` or `--flag`.")
    require_api_key: bool = setting(
        default=False,
        what="Whether requests need the key in the secret `coldstart:apiKey`.",
        why="The Service is cluster-internal.",
    )


class SharedFs(Tree):
    """`model.weights.shared_fs`: a file system that exists already, with its CSI driver in the cluster."""

    driver: Literal["efs.csi.aws.com", "fsx.csi.aws.com"] = setting(what="CSI driver of EFS, or of FSx for Lustre.")
    throughput_mb_s: float = setting(
        what="What it delivers to a node that reads it for the first time.", unit="MB/s", gt=0, le=100_000
    )
    volume_handle: str = setting(what="Id of the file system.", pattern=r"^fs-[0-9a-f]{8,17}(::fsap-[0-9a-f]{17})?$")


class Weights(Tree):
    """`model.weights`: how weights reach the GPU."""

    path: WeightsPath = setting(
        WeightsPath.STREAM,
        what="`stream`: bucket to GPU memory. `node-cache`: a copy on each node, shared by its pods. `shared-fs`: EFS "
        "or FSx. `baked`: inside the image, for air-gapped sites. `presharded`: one file per rank, streamed.",
        why="No disk between S3 and the GPU.",
    )
    fallback: tuple[WeightsPath, ...] = setting(
        (), what="Paths tried in this order when the chosen one fails.", why="A second way is a second thing to test."
    )
    node_cache_gib: int | None = setting(
        None,
        what="Most bytes of a node's cache, all models together; the oldest copies go first.",
        unit="GiB",
        why="Unset: half of the node's image disk, at least twice this model.",
        ge=1,
        le=65_536,
    )
    shared_fs: SharedFs | None = setting(
        None, what="The file system of `shared-fs`.", why="It must be there before: it outlives models."
    )
    directory: str = setting(
        "/weights",
        what="Where a `baked` image holds the weights.",
        why="As the image's builder chose.",
        pattern=r"^/.+",
    )
    distributed: bool | None = setting(
        None,
        what="Whether tensor parallel ranks share one read of the weights.",
        why="Unset: yes when tensor_parallel > 1, since otherwise every rank reads everything.",
    )
    streamer_memory_gib: int | None = setting(
        None,
        what="Host memory the streamer may use as a buffer.",
        unit="GiB",
        why="Unset: the smaller of the weights and 16 GiB; more buys nothing once the network is full.",
        ge=1,
        le=2048,
    )
    trust_remote_code: bool = setting(
        default=False, what="Whether the model's own Python files are staged and run.", why="They are somebody's code."
    )


class Window(Tree):
    """`model.scaling.schedule[]`: a time with a minimum of replicas."""

    start: Cron = setting(what="When it begins: five cron fields.")
    end: Cron = setting(what="When it ends: five cron fields.")
    timezone: str = setting("UTC", what="IANA time zone of both.", why="One clock unless said otherwise.")
    replicas: int = setting(what="Replicas kept in between.", unit="replicas", ge=1, le=1000)


class Scaling(Tree):
    """`model.scaling`: replicas."""

    min_replicas: int = setting(
        1,
        what="Replicas outside any schedule.",
        unit="replicas",
        why="The fastest cold start is the one avoided.",
        ge=0,
    )
    max_replicas: int = setting(what="Replicas at most; also bounds the node group, hence the bill.", ge=1, le=1000)
    waiting_requests: int = setting(
        4,
        what="Waiting requests per replica above which one more is asked for.",
        unit="requests",
        why="Public operators use 4 to 5; GPU utilisation says nothing about a queue.",
        ge=1,
        le=1000,
    )
    spare_replicas: int = setting(
        0,
        what="Places held ready for more replicas: warm nodes with the image on them, evicted by a replica at once.",
        unit="replicas",
        why="Each costs as much as a replica.",
        ge=0,
        le=100,
    )
    schedule: tuple[Window, ...] = setting((), what="Times with more replicas than the minimum.")
    cooldown_s: int | None = setting(
        None,
        what="Quiet time before scaling to the minimum.",
        unit="seconds",
        why="Unset: longer than the slowest predicted start, so that a loading pod is never scaled away.",
        ge=60,
        le=86_400,
    )


class Slo(Tree):
    """`model.slo`: what a cold start may take."""

    cold_start_s: int | None = setting(None, what="Longest acceptable cold start.", unit="seconds", why="", ge=1)
    enforce: bool = setting(
        default=False,
        what="Whether `pulumi up` fails when the predicted start is longer.",
        why="A prediction warns first.",
    )


class ModelCost(Tree):
    """`model.cost`."""

    expires_after: Moment | None = setting(
        None,
        what="When its GPU nodes go to zero: a while after `pulumi up` (8h, 3d), or a date in UTC.",
        why="Unset: the environment's.",
    )
    max_usd_per_hour: float | None = setting(
        None,
        what="The most this stack may cost per hour at list prices, every replica running; one that could cost more "
        "is refused.",
        unit="USD per hour",
        why="Unset: no limit of its own.",
        gt=0,
    )


class ImageFacts(Tree):
    """`model.image_facts`: what is known of an image that no table knows."""

    digest: str | None = setting(
        None,
        what="Digest of the image that these are facts of, sha256:…",
        why="Unset: taken for facts of model.image, whatever it is.",
        pattern=r"^sha256:[0-9a-f]{64}$",
    )
    compressed_bytes: int = setting(what="Sum of the layers as stored in the registry.", unit="bytes", ge=10**6)
    layers: tuple[Annotated[int, Field(ge=1)], ...] = setting(
        (), what="Compressed bytes of each layer.", why="Empty: a typical split is assumed.", unit="bytes"
    )
    unpacked_layers: tuple[Annotated[int, Field(ge=0)], ...] = setting(
        (),
        what="Bytes of each layer's tar stream, as `coldstart image inspect --write` has read them.",
        why="Empty: 1.95 times the compressed ones, as measured engine images have.",
        unit="bytes",
    )
    waste_layers: tuple[Annotated[int, Field(ge=0)], ...] = setting(
        (),
        what="Compressed bytes in each layer that `coldstart image inspect --write` found not to belong there.",
        why="Empty: nobody has looked, and a plan takes a typical slim image.",
        unit="bytes",
    )
    codec: LayerCodec = setting(
        LayerCodec.GZIP, what="What the layers are compressed with.", why="What builders write unless told otherwise."
    )


class Model(Tree):
    """`coldstart:model`: one model on an environment."""

    environment: str = setting(what="Name of the environment stack it runs on.")
    source: Source = setting(what="Model repository, ORG/NAME.")
    revision: str | None = setting(
        None,
        what="Commit of the model repository, 40 hex digits.",
        why="Unset: unpinned; `coldstart pin` writes it. Production refuses it unset.",
        pattern=REVISION.pattern,
    )
    image: Image = setting(what="Engine image; a pin ends in @sha256:…, which `coldstart pin` writes.")
    image_facts: ImageFacts | None = setting(
        None, what="Size of the image.", why="Unset: the table of known images, else a typical split, said as such."
    )
    profile: Profile = setting(
        Profile.PRODUCTION,
        what="`production`: compiled and captured; `dev`: eager, starts sooner and answers slower.",
        why="Eager answers cost more GPU time than they save.",
    )
    nodes: Nodes = setting(what="GPU nodes.")
    engine: Engine = setting(Engine, what="The engine.")
    weights: Weights = setting(Weights, what="The weights.")
    scaling: Scaling = setting(what="Replicas.")
    slo: Slo = setting(Slo, what="What a cold start may take.")
    pod_monitor: bool = setting(
        default=False,
        what="Whether a PodMonitor tells a Prometheus operator where the metrics are.",
        why="Its custom resource definition must be in the cluster.",
    )
    cost: ModelCost = setting(ModelCost, what="When to stop paying, and how much is too much.")
