"""Does it fit at all? Every refusal has its numbers and the nearest change that fits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator

from budget.coefficients import Coefficients
from budget.disk import HEADROOM_BYTES, data_volume_gib, disk_bytes
from budget.drivers import CUDA_13, FRACTIONAL_MAX, R580, branch_runs
from budget.findings import Finding
from budget.image import unpacked_bytes
from budget.instances import GIB, Instance, instances
from budget.memory import (
    HEADROOM,
    NCCL_BYTES,
    NON_TORCH_BYTES,
    STREAMER_CLIENTS,
    GpuMemory,
    HostMemory,
    Serving,
    Streamer,
    allocatable_memory_bytes,
    gpu_memory,
    local_host_memory,
    streaming_host_memory,
)
from budget.models import ModelFacts
from budget.scenario import Scenario

DEFAULT_CONTEXT = 8_192
SHORTEST_USEFUL_CONTEXT = 2_048
CONTEXT_STEP = 1_024
UNKNOWN_MODEL_SLACK = 1.10
"""Without a model's facts its KV cache and activations are unknown: a tenth of the weights stands for both."""
MAX_TENSOR_PARALLEL = 16


def feasibility(scenario: Scenario, coefficients: Coefficients) -> list[Finding]:
    """Everything that keeps the scenario from working, and what works with a catch."""
    return [
        *_gpu_memory(scenario),
        *_host_memory(scenario),
        *_disk_space(scenario, coefficients),
        *_number_formats(scenario),
        *_driver(scenario),
    ]


# --- GPU memory -------------------------------------------------------------------------------------------------------


def serving_of(scenario: Scenario, *, tensor_parallel: int | None = None) -> Serving:
    """How the engine would serve: context asked for, or 8,192 tokens, never more than the model can."""
    facts = scenario.model.facts
    longest = facts.context if facts is not None and facts.context else DEFAULT_CONTEXT
    return Serving(
        context=scenario.model.context_tokens or min(DEFAULT_CONTEXT, longest),
        concurrency=scenario.model.concurrency,
        tensor_parallel=tensor_parallel or scenario.ranks,
        capture_sizes=0 if scenario.engine.eager else scenario.engine.capture_sizes,
        utilization=scenario.engine.gpu_memory_utilization,
    )


def gpu_memory_of(scenario: Scenario) -> GpuMemory:
    """Memory of one rank. Without the model's facts a tenth of the weights stands for KV cache and activations."""
    model, serving = scenario.model, serving_of(scenario)
    memory = scenario.instance.gpu_memory_bytes
    if model.facts is not None:
        return gpu_memory(model.facts, serving, gpu_memory_bytes=memory)
    weights = math.ceil(model.weights_bytes / scenario.ranks)
    return GpuMemory(
        weights_bytes=weights,
        activations_bytes=int(weights * (UNKNOWN_MODEL_SLACK - 1)),
        graphs_bytes=0,
        overhead_bytes=NON_TORCH_BYTES + (NCCL_BYTES if scenario.ranks > 1 else 0),
        kv_bytes=0,
        usable_bytes=int(memory * serving.utilization),
    )


def sequences_that_fit(scenario: Scenario) -> int | None:
    """Sequences of the context's full length that the KV cache holds at once; None without the model's facts."""
    facts, serving = scenario.model.facts, serving_of(scenario)
    if facts is None:
        return None
    memory = scenario.instance.gpu_memory_bytes
    one = gpu_memory(facts, dataclasses.replace(serving, concurrency=1), gpu_memory_bytes=memory)
    room = one.slack_bytes + one.kv_bytes
    return max(0, room // one.kv_bytes) if one.kv_bytes else None


def _gpu_memory(scenario: Scenario) -> Iterator[Finding]:
    needed = gpu_memory_of(scenario)
    serving = serving_of(scenario)
    if needed.fits:
        return
    kv = (
        ""
        if scenario.model.facts is None
        else f" + {_gib(needed.kv_bytes)} KV cache for {serving.concurrency} x {serving.context:,} tokens"
    )
    yield Finding(
        code="gpu-memory",
        level="error",
        message=f"each GPU needs {_gib(needed.needed_bytes)}: {_gib(needed.weights_bytes)}"
        f" weights{kv}"
        f" + {_gib(needed.activations_bytes + needed.graphs_bytes + needed.overhead_bytes)} engine;"
        f" {scenario.instance.name} offers {_gib(needed.usable_bytes)} of each {scenario.instance.gpu}"
        f" ({_gib(scenario.instance.gpu_memory_bytes)} x {serving.utilization:g})",
        fix=_nearest_fit(scenario),
    )


def _nearest_fit(scenario: Scenario) -> str:
    """The smallest change that fits: a shorter context, more ranks here, the cheapest instance that does."""
    ways = [*_shorter(scenario), *_more_ranks(scenario), *_other_instance(scenario)]
    return (
        "Fits with " + ", or ".join(ways) + "."
        if ways
        else "No known instance holds it: quantize, or use several nodes."
    )


def _shorter(scenario: Scenario) -> Iterator[str]:
    """The longest context that fits, in steps of 1,024 tokens, if a useful one does."""
    facts, serving = scenario.model.facts, serving_of(scenario)
    if facts is None:
        return
    memory = scenario.instance.gpu_memory_bytes
    fitting, too_long = 0, serving.context // CONTEXT_STEP + 1
    while too_long - fitting > 1:
        steps = (fitting + too_long) // 2
        shorter = dataclasses.replace(serving, context=steps * CONTEXT_STEP)
        if gpu_memory(facts, shorter, gpu_memory_bytes=memory).fits:
            fitting = steps
        else:
            too_long = steps
    if fitting * CONTEXT_STEP >= SHORTEST_USEFUL_CONTEXT:
        yield f"a context of {fitting * CONTEXT_STEP:,} tokens"


def _more_ranks(scenario: Scenario) -> Iterator[str]:
    for ranks in parallel_sizes(scenario, scenario.instance):
        if ranks > scenario.ranks and _fits_with(scenario, scenario.instance, ranks):
            yield f"tensor_parallel {ranks}"
            return


def _other_instance(scenario: Scenario) -> Iterator[str]:
    offers = [
        (candidate.usd_per_hour, candidate.name, ranks)
        for candidate in instances().values()
        if candidate.usd_per_hour is not None and candidate.name != scenario.instance.name
        for ranks in parallel_sizes(scenario, candidate)
        if _fits_with(scenario, candidate, ranks)
    ]
    if offers:
        price, name, ranks = min(offers)
        yield f"{name} and tensor_parallel {ranks} (${price:.2f}/h)"


def parallel_sizes(scenario: Scenario, instance: Instance) -> list[int]:
    """Tensor parallel sizes that the instance's GPUs and the model's heads allow, smallest first."""
    heads = scenario.model.attention_heads
    sizes = [1, 2, 4, 8, MAX_TENSOR_PARALLEL]
    return [size for size in sizes if size <= instance.kubernetes_gpus and (not heads or heads % size == 0)]


def _fits_with(scenario: Scenario, instance: Instance, ranks: int) -> bool:
    model = dataclasses.replace(scenario.model, tensor_parallel=ranks)
    changed = dataclasses.replace(scenario, instance=instance, model=model)
    return gpu_memory_of(changed).fits and not any(
        finding.level == "error" for finding in (*_number_formats(changed), *_host_memory(changed))
    )


# --- host memory and disk ---------------------------------------------------------------------------------------------


def host_memory_of(scenario: Scenario) -> HostMemory:
    """Host memory of the pod by weight path and streamer version."""
    facts, weights = scenario.model.facts, scenario.weights
    largest = facts.largest_tensor_bytes if facts is not None and facts.largest_tensor_bytes else 0
    if weights.path != "stream":
        return local_host_memory(largest_tensor_bytes=largest, ranks=scenario.ranks)
    streamer = Streamer(
        version=weights.streamer,
        distributed=weights.distributed,
        memory_limit_bytes=_limit(weights.memory_limit_bytes),
        clients=weights.clients or STREAMER_CLIENTS,
    )
    return streaming_host_memory(
        streamer,
        checkpoint_bytes=int(scenario.model.weights_bytes),
        largest_tensor_bytes=largest,
        ranks=scenario.ranks,
    )


def _limit(value: float | None) -> int | None:
    return None if value is None else int(value)


def _host_memory(scenario: Scenario) -> Iterator[Finding]:
    needed, node = host_memory_of(scenario), scenario.host.memory_bytes
    offered = int(node) if node else allocatable_memory_bytes(scenario.instance)
    if needed.request_bytes <= offered:
        return
    yield Finding(
        code="host-memory",
        level="error",
        message=f"the pod needs {_gib(needed.request_bytes)} of host memory ({_gib(needed.ring_bytes)} streamer buffer,"
        f" {_gib(needed.in_flight_bytes)} in flight, {_gib(needed.processes_bytes)} processes,"
        f" {_gib(needed.shm_bytes)} shared memory); {scenario.instance.name} can give {_gib(offered)}",
        fix=_host_memory_fix(scenario, needed, offered),
    )


def _host_memory_fix(scenario: Scenario, needed: HostMemory, offered: int) -> str:
    with_headroom = 1 + HEADROOM
    room = offered - (needed.request_bytes - needed.ring_bytes - needed.headroom_bytes) * with_headroom
    facts = scenario.model.facts
    floor = scenario.ranks * (facts.largest_tensor_bytes if facts is not None else GIB)
    ways: list[str] = []
    if scenario.weights.path == "stream" and room / with_headroom > floor:
        each = room / with_headroom / (1 if scenario.weights.distributed else scenario.ranks)
        ways.append(f"a streamer memory limit of {each / 1e9:.0f} GB")
    if scenario.weights.path == "stream" and scenario.ranks > 1 and not scenario.weights.distributed:
        ways.append("distributed streaming")
    larger = [
        (other.memory_gib, other.name)
        for other in instances().values()
        if other.gpu == scenario.instance.gpu
        and other.gpus >= scenario.instance.gpus
        and allocatable_memory_bytes(other) >= needed.request_bytes
    ]
    if larger:
        ways.append(min(larger)[1])
    return "Fits with " + ", or ".join(ways) + "." if ways else "Choose an instance with more memory."


def _disk_space(scenario: Scenario, coefficients: Coefficients) -> Iterator[Finding]:
    image = scenario.image
    unpacked = unpacked_bytes(image, coefficients)
    cached = scenario.model.weights_bytes if scenario.weights.path in {"download", "local"} else 0.0
    needed = image.bytes + unpacked + cached + HEADROOM_BYTES
    offered = disk_bytes(scenario.disk, scenario.instance, scenario.disk_gib)
    if offered is None or needed <= offered:
        return
    advice = data_volume_gib(image_bytes=image.bytes, unpacked_bytes=unpacked, cached_bytes=cached)
    nvme = scenario.disk.kind == "nvme"
    yield Finding(
        code="disk-space",
        level="error",
        message=f"images and caches need {needed / 1e9:.0f} GB ({image.bytes / 1e9:.1f} compressed +"
        f" {unpacked / 1e9:.1f}"
        f" unpacked + {cached / 1e9:.1f} weights + headroom), the {scenario.disk.kind} disk has {offered / 1e9:.0f} GB",
        fix=f"Use a gp3 volume of {advice} GiB." if nvme else f"Give the data volume {advice} GiB.",
    )


# --- number formats and drivers ---------------------------------------------------------------------------------------

FP8_NATIVE, FP8_WEIGHT_ONLY = 8.9, 8.0
BF16_SINCE = 8.0
FOUR_BIT_SINCE = {"awq": 7.5, "gptq": 7.5, "mxfp4": 8.0, "nvfp4": 8.0, "int8": 7.5}
NVFP4_NATIVE = 10.0
"""Compute capabilities: FP8 tensor cores from Ada, Marlin weight-only kernels from Ampere, bfloat16 from Ampere, FP4
tensor cores from Blackwell (vLLM's quantization support table)."""


def _number_formats(scenario: Scenario) -> Iterator[Finding]:
    board = scenario.instance.board
    if board is None:
        return
    capability, scheme = board.compute_capability, quantization_of(scenario)
    where = f"{board.name} (compute capability {capability:g})"
    if scheme == "fp8" and capability < FP8_WEIGHT_ONLY:
        yield Finding(
            code="fp8-unsupported",
            level="error",
            message=f"{where} runs no FP8 checkpoint: FP8 needs 8.0 for weights, 8.9 for compute",
            fix="Use a 16-bit or AWQ checkpoint, or a GPU from A10G on.",
        )
    elif scheme == "fp8" and capability < FP8_NATIVE:
        yield Finding(
            code="fp8-weight-only",
            level="warning",
            message=f"{where} has no FP8 compute: weights stay in FP8 and save memory and load time, not compute",
            fix="For FP8 compute choose L4, L40S, H100 or newer.",
        )
    needs = FOUR_BIT_SINCE.get(scheme or "")
    if needs is not None and capability < needs:
        yield Finding(
            code=f"{scheme}-unsupported",
            level="error",
            message=f"{where} has no kernels for {scheme}, which needs {needs:g}",
            fix="Use a 16-bit checkpoint or a newer GPU.",
        )
    if scheme == "nvfp4" and FP8_WEIGHT_ONLY <= capability < NVFP4_NATIVE:
        yield Finding(
            code="nvfp4-weight-only",
            level="warning",
            message=f"{where} has no FP4 compute: weights are expanded as they are used",
            fix="For FP4 compute choose a Blackwell GPU.",
        )
    if scheme is None and capability < BF16_SINCE:
        yield Finding(
            code="no-bfloat16",
            level="warning",
            message=f"{where} has no bfloat16",
            fix="Run with --dtype half and check the answers, or choose a GPU from A10G on.",
        )


def quantization_of(scenario: Scenario) -> str | None:
    """As the facts or the scenario say; None for 16-bit weights."""
    facts = scenario.model.facts
    return facts.quantization if facts is not None else scenario.model.quantization


def _driver(scenario: Scenario) -> Iterator[Finding]:
    board, cuda, driver = scenario.instance.board, scenario.image.cuda, scenario.node.driver
    if board is None:
        return
    if cuda is not None and board.cuda_max is not None and cuda[0] > board.cuda_max:
        yield Finding(
            code="cuda-too-new",
            level="error",
            message=f"the image's CUDA {cuda[0]}.{cuda[1]} no longer supports {board.name} ({board.architecture})",
            fix=f"Use an image built for CUDA {board.cuda_max}.",
        )
    if driver is None:
        return
    if driver < board.driver_min:
        yield Finding(
            code="driver-too-old",
            level="error",
            message=f"{board.name} needs driver branch R{board.driver_min} or newer, the node has R{driver}",
            fix=f"Choose a node image with R{board.driver_min}; on Bottlerocket the `pb` branch for g7.",
        )
    if cuda is not None and not branch_runs(cuda, driver):
        yield Finding(
            code="driver-cuda",
            level="error",
            message=f"CUDA {cuda[0]}.{cuda[1]} needs driver branch R{R580} or newer, the node has R{driver}",
            fix=f"Choose a node image with R{R580}, or an image built for CUDA {CUDA_13 - 1}.",
        )
    if scenario.instance.fractional and driver > FRACTIONAL_MAX:
        yield Finding(
            code="driver-fractional",
            level="error",
            message=f"driver branch R{driver} does not run the fractional GPU of {scenario.instance.name}",
            fix=f"Use branch R{R580}.",
        )


def fits(findings: Iterable[Finding]) -> bool:
    """Nothing refuses."""
    return all(finding.level != "error" for finding in findings)


def _gib(value: float) -> str:
    return f"{value / GIB:.1f} GiB"


def scenario_with_facts(scenario: Scenario, facts: ModelFacts) -> Scenario:
    """The same with the model's facts filled in."""
    model = dataclasses.replace(
        scenario.model,
        facts=facts,
        weights_bytes=facts.weights_bytes,
        layers=facts.layers,
        parameters=facts.parameters,
        attention_heads=facts.attention_heads,
        kv_heads=facts.kv_heads,
        quantization=facts.quantization,
    )
    return dataclasses.replace(scenario, model=model)
