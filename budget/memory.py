"""Memory: what a pod needs on the host while it streams weights, and what a model needs on each GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass

from budget.instances import GIB, MIB, Instance
from budget.models import ModelFacts

# --- host -------------------------------------------------------------------------------------------------------------

STREAMER_LIMIT_BYTES = 40_000_000_000
"""Default RUNAI_STREAMER_MEMORY_LIMIT (streamer 0.15 and 0.17, source)."""
STREAMER_CLIENTS = 8
"""Default RUNAI_STREAMER_OBJ_CONCURRENCY: S3 clients of one process (streamer 0.17, source)."""
STREAMER_TARGET_GBPS = 10.0
"""Default RUNAI_STREAMER_S3_TARGET_GBPS of one client (AWS CRT default)."""
IN_FLIGHT_BYTES_PER_GBPS = 18_750_000
"""In-flight window of streamer 0.17 per client and Gbps of target."""
STREAMER_BUFFER_BYTES = 16 * GIB
"""Largest streamer buffer this project sets."""
PROCESS_BYTES = 4 * GIB
"""One engine process: Python, torch, CUDA context, pinned buffers. An estimate; measured pods correct it."""
FRONT_BYTES = 2 * GIB
"""API server, tokenizer and launcher together. Estimate, as above."""
SHM_BYTES = 2 * GIB
"""Shared memory under tensor parallelism: NCCL and the message queue (vllm#1710: 64 MB breaks)."""
HEADROOM = 0.10
"""Left above what is computed, because memory request = limit and crossing it is exit 137."""

VM_OVERHEAD = 0.075
"""Share of an instance's memory the guest never sees: karpenter-provider-aws' default vm-memory-overhead-percent."""
KUBELET_BASE_BYTES = 255 * MIB
KUBELET_PER_POD_BYTES = 11 * MIB
EVICTION_BYTES = 100 * MIB
MAX_PODS_SMALL, MAX_PODS_LARGE, LARGE_VCPU = 110, 250, 30
"""Managed node groups allow 110 pods below 30 vCPU, else 250 (EKS); the kubelet reserves 255 + 11 MiB a pod."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Streamer:
    """How the Model Streamer is set up in one pod.

    Attributes:
        version: (major, minor), (0, 17) for 0.17.1.
        distributed: each rank reads its part and broadcasts it.
        memory_limit_bytes: RUNAI_STREAMER_MEMORY_LIMIT; None is unset, -1 no limit, 0 one tensor per rank.
        clients: S3 clients per process.
        target_gbps: CRT target of one client.
    """

    version: tuple[int, int] = (0, 17)
    distributed: bool = False
    memory_limit_bytes: int | None = None
    clients: int = STREAMER_CLIENTS
    target_gbps: float = STREAMER_TARGET_GBPS


@dataclass(frozen=True, kw_only=True, slots=True)
class HostMemory:
    """Host memory of a pod, bytes, by what takes it. `request_bytes` is request and limit alike."""

    ring_bytes: int
    in_flight_bytes: int
    tensors_bytes: int
    shm_bytes: int
    processes_bytes: int
    headroom_bytes: int

    @property
    def request_bytes(self) -> int:
        """All of it, rounded up to a MiB."""
        total = (
            self.ring_bytes
            + self.in_flight_bytes
            + self.tensors_bytes
            + self.shm_bytes
            + self.processes_bytes
            + self.headroom_bytes
        )
        return math.ceil(total / MIB) * MIB


def ring_bytes(streamer: Streamer, *, checkpoint_bytes: int, largest_tensor_bytes: int, ranks: int) -> int:
    """Host buffers the streamer reads into, all ranks of the node together.

    Source: streamer 0.15.7 and 0.17.1 code. From 0.17 the limit is a node total under distributed streaming, floored at
    one largest tensor per rank; before, an unset limit meant none there. Otherwise the limit counts per process, so
    eight ranks can hold 320 GB.
    """
    limit = streamer.memory_limit_bytes
    floor = ranks * largest_tensor_bytes
    if not streamer.distributed or ranks == 1:
        each = checkpoint_bytes if limit == -1 else max(largest_tensor_bytes, limit or 0)
        if limit is None:
            each = STREAMER_LIMIT_BYTES
        return ranks * min(checkpoint_bytes, each)
    if streamer.version < (0, 17):
        if limit is None or limit == -1:
            return checkpoint_bytes
        return min(checkpoint_bytes, max(floor, ranks * limit))
    if limit == -1:
        return checkpoint_bytes
    return min(checkpoint_bytes, max(STREAMER_LIMIT_BYTES if limit is None else limit, floor))


def streamer_limit_bytes(facts: ModelFacts, instance: Instance, ranks: int, *, pods: int = 1) -> int:
    """A pod's streamer memory limit (all its ranks together) that fills the network and leaves the node its memory.

    16 GiB is more than a second of the fastest network card, so a larger buffer only waits with it; a small node gets
    what its processes leave, but never less than one largest tensor per rank. `pods` share the node.
    """
    floor = ranks * facts.largest_tensor_bytes
    fixed = FRONT_BYTES + ranks * PROCESS_BYTES + floor + in_flight_bytes(Streamer(), ranks)
    fixed += SHM_BYTES if ranks > 1 else 0
    room = int(allocatable_memory_bytes(instance) / pods / (1 + HEADROOM)) - fixed - MIB
    return max(floor, min(facts.weights_bytes, STREAMER_BUFFER_BYTES, room))


def in_flight_bytes(streamer: Streamer, ranks: int) -> int:
    """Requests on the wire (streamer 0.17 reserves a window for them; earlier versions count them in the ring)."""
    if streamer.version < (0, 17):
        return 0
    return int(ranks * streamer.clients * streamer.target_gbps * IN_FLIGHT_BYTES_PER_GBPS)


def streaming_host_memory(
    streamer: Streamer, *, checkpoint_bytes: int, largest_tensor_bytes: int, ranks: int
) -> HostMemory:
    """Host memory of a pod whose weights stream from object storage.

    Args:
        streamer: its set-up.
        checkpoint_bytes: all safetensors of the model.
        largest_tensor_bytes: of the checkpoint.
        ranks: GPUs of the pod (tensor parallel size on one node).
    """
    ring = ring_bytes(
        streamer, checkpoint_bytes=checkpoint_bytes, largest_tensor_bytes=largest_tensor_bytes, ranks=ranks
    )
    return _host_memory(ring, in_flight_bytes(streamer, ranks), largest_tensor_bytes, ranks)


def local_host_memory(*, largest_tensor_bytes: int, ranks: int) -> HostMemory:
    """Host memory of a pod that maps local safetensors: the page cache is reclaimable and not counted."""
    return _host_memory(0, 0, largest_tensor_bytes, ranks)


def _host_memory(ring: int, in_flight: int, largest_tensor: int, ranks: int) -> HostMemory:
    tensors = ranks * largest_tensor
    shm = SHM_BYTES if ranks > 1 else 0
    processes = FRONT_BYTES + ranks * PROCESS_BYTES
    used = ring + in_flight + tensors + shm + processes
    return HostMemory(
        ring_bytes=ring,
        in_flight_bytes=in_flight,
        tensors_bytes=tensors,
        shm_bytes=shm,
        processes_bytes=processes,
        headroom_bytes=int(HEADROOM * used),
    )


def allocatable_memory_bytes(instance: Instance) -> int:
    """What pods can request on a node of this type, before daemon sets.

    Instance memory less what the hypervisor and kernel keep, the kubelet's reservation and the eviction threshold. The
    share for hypervisor and kernel is Karpenter's default, which errs on the safe side for large types.
    """
    pods = MAX_PODS_SMALL if instance.vcpu < LARGE_VCPU else MAX_PODS_LARGE
    seen = instance.memory_bytes * (1 - VM_OVERHEAD)
    return int(seen) - KUBELET_BASE_BYTES - KUBELET_PER_POD_BYTES * pods - EVICTION_BYTES


# --- GPU --------------------------------------------------------------------------------------------------------------

GPU_UTILIZATION = 0.90
"""vLLM's default --gpu-memory-utilization in most releases."""
NON_TORCH_BYTES = int(0.6 * GIB)
"""CUDA context, cuBLAS and NCCL of one rank. vllm#10511 logged 0.05-1.8 GiB; 0.6 is the middle of later logs."""
NCCL_BYTES = int(0.5 * GIB)
"""More of it when ranks talk: communicator buffers and custom all-reduce."""
GRAPH_BYTES_PER_SIZE_AND_LAYER = 240_000
"""CUDA graphs of one capture size and layer. About 0.5 GiB for 67 sizes and 32 layers in published start-up logs."""
BATCHED_TOKENS = 2048
BATCHED_TOKENS_LARGE = 8192
LARGE_GPU_BYTES = 70 * GIB
"""Default max_num_batched_tokens of the API server: 8,192 on GPUs of 70 GiB and more, else 2,048 (vLLM source)."""
SEQUENCES = 256
SEQUENCES_LARGE = 1024
"""Default max_num_seqs, by the same threshold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuMemory:
    """Memory of one rank's GPU, bytes, by what takes it, beside what the engine may use.

    Attributes:
        kv_bytes: for the context and concurrency asked for.
        usable_bytes: GPU memory x utilization.
        slack_bytes: what is left; negative when it does not fit.
    """

    weights_bytes: int
    activations_bytes: int
    graphs_bytes: int
    overhead_bytes: int
    kv_bytes: int
    usable_bytes: int

    @property
    def needed_bytes(self) -> int:
        """Everything the engine takes."""
        return self.weights_bytes + self.activations_bytes + self.graphs_bytes + self.overhead_bytes + self.kv_bytes

    @property
    def slack_bytes(self) -> int:
        """Usable less needed."""
        return self.usable_bytes - self.needed_bytes

    @property
    def fits(self) -> bool:
        """Nothing is missing."""
        return self.slack_bytes >= 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """How the engine is asked to serve.

    Attributes:
        context: tokens of the longest sequence (max_model_len).
        concurrency: sequences of that length held at once.
        capture_sizes: CUDA graph sizes; 0 when eager.
        kv_element_bytes: 2 for bf16, 1 for an FP8 cache.
        batched_tokens: max_num_batched_tokens; None takes vLLM's default for the GPU.
    """

    context: int
    concurrency: int = 1
    tensor_parallel: int = 1
    capture_sizes: int = 67
    utilization: float = GPU_UTILIZATION
    kv_element_bytes: float = 2
    batched_tokens: int | None = None


def gpu_memory(model: ModelFacts, serving: Serving, *, gpu_memory_bytes: int) -> GpuMemory:
    """What one rank of the model takes on one GPU.

    Weights are split over the ranks: embeddings and norms too, to within a percent. Activations follow vLLM's profile
    run: `batched_tokens` through one layer and the logits of every sequence, the larger of the two, plus the residual
    stream. Compared with vLLM's own log (vllm#10511: Llama-3-8B, 1.26 GiB) it errs high.
    """
    ranks = serving.tensor_parallel
    return GpuMemory(
        weights_bytes=math.ceil(model.weights_bytes / ranks),
        activations_bytes=activations_bytes(model, serving, gpu_memory_bytes=gpu_memory_bytes),
        graphs_bytes=serving.capture_sizes * model.layers * GRAPH_BYTES_PER_SIZE_AND_LAYER,
        overhead_bytes=NON_TORCH_BYTES + (NCCL_BYTES if ranks > 1 else 0),
        kv_bytes=model.kv_bytes(
            serving.context,
            sequences=serving.concurrency,
            tensor_parallel=ranks,
            element_bytes=serving.kv_element_bytes,
        ),
        usable_bytes=int(gpu_memory_bytes * serving.utilization),
    )


def activations_bytes(model: ModelFacts, serving: Serving, *, gpu_memory_bytes: int) -> int:
    """Peak of the profile run on one rank, bytes (16-bit activations, 32-bit logits)."""
    large = gpu_memory_bytes >= LARGE_GPU_BYTES
    tokens = serving.batched_tokens or (BATCHED_TOKENS_LARGE if large else BATCHED_TOKENS)
    sequences = min(tokens, SEQUENCES_LARGE if large else SEQUENCES)
    width = model.intermediate_size * (1 + model.experts_per_token / 4 if model.mixture_of_experts else 2)
    layer = tokens * (4 * model.hidden_size + 2 * width / serving.tensor_parallel) * 2
    # Logits are gathered to full width on every rank, in 16 bit, then once in 32 bit for sampling.
    logits = sequences * model.vocabulary * (2 + 4)
    return int(tokens * model.hidden_size * 2 * 2 + max(layer, logits))
