"""Host and GPU memory against the streamer's code and vLLM's own logs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budget.instances import GIB, MIB, instance, instances
from budget.memory import (
    Serving,
    Streamer,
    allocatable_memory_bytes,
    gpu_memory,
    in_flight_bytes,
    local_host_memory,
    ring_bytes,
    streamer_limit_bytes,
    streaming_host_memory,
)
from budget.models import known_models, model

C, T = 140_000_000_000, 2_000_000_000
"""A checkpoint and its largest tensor."""


def ring(streamer: Streamer, ranks: int) -> int:
    return ring_bytes(streamer, checkpoint_bytes=C, largest_tensor_bytes=T, ranks=ranks)


def test_not_distributed_every_process_has_its_own_buffer() -> None:
    assert ring(Streamer(), 1) == 40_000_000_000
    assert ring(Streamer(), 8) == 320_000_000_000
    assert ring(Streamer(memory_limit_bytes=-1), 2) == 2 * C
    assert ring(Streamer(memory_limit_bytes=0), 1) == T


def test_distributed_limit_is_a_node_total_since_0_17() -> None:
    assert ring(Streamer(distributed=True), 8) == 40_000_000_000
    assert ring(Streamer(distributed=True, memory_limit_bytes=0), 8) == 8 * T
    assert ring(Streamer(distributed=True, memory_limit_bytes=-1), 8) == C
    assert ring(Streamer(distributed=True, memory_limit_bytes=1), 8) == 8 * T


def test_distributed_without_limit_was_unlimited_before() -> None:
    assert ring(Streamer(version=(0, 15), distributed=True), 8) == C
    assert ring(Streamer(version=(0, 15), distributed=True, memory_limit_bytes=10_000_000_000), 8) == 80_000_000_000


def test_one_rank_is_never_distributed() -> None:
    assert ring(Streamer(distributed=True), 1) == ring(Streamer(), 1)


def test_the_window_in_flight() -> None:
    assert in_flight_bytes(Streamer(), 1) == 1_500_000_000
    assert in_flight_bytes(Streamer(version=(0, 15)), 8) == 0


def test_the_request_holds_everything() -> None:
    memory = streaming_host_memory(Streamer(distributed=True), checkpoint_bytes=C, largest_tensor_bytes=T, ranks=4)
    parts = (
        memory.ring_bytes + memory.in_flight_bytes + memory.tensors_bytes + memory.shm_bytes + memory.processes_bytes
    )
    assert memory.headroom_bytes == int(parts * 0.1)
    assert memory.request_bytes % MIB == 0
    assert 0 <= memory.request_bytes - parts - memory.headroom_bytes < MIB


def test_local_weights_need_no_buffer() -> None:
    memory = local_host_memory(largest_tensor_bytes=T, ranks=1)
    assert memory.ring_bytes == memory.in_flight_bytes == memory.shm_bytes == 0


@pytest.mark.parametrize("name", sorted(name for name, kind in instances().items() if kind.gpus))
def test_allocatable_is_less_than_the_instance_has(name: str) -> None:
    kind = instance(name)
    assert 0.7 * kind.memory_bytes < allocatable_memory_bytes(kind) < 0.93 * kind.memory_bytes


def test_small_nodes_get_a_small_streamer_buffer() -> None:
    facts = model("meta-llama/Llama-3.1-8B-Instruct")
    small, large = (streamer_limit_bytes(facts, instance(name), 1) for name in ("g6.xlarge", "g6.8xlarge"))
    assert facts.largest_tensor_bytes <= small < 6 * GIB
    assert large == facts.weights_bytes
    request = streaming_host_memory(
        Streamer(memory_limit_bytes=small),
        checkpoint_bytes=facts.weights_bytes,
        largest_tensor_bytes=facts.largest_tensor_bytes,
        ranks=1,
    ).request_bytes
    assert request <= allocatable_memory_bytes(instance("g6.xlarge"))


def test_activations_agree_with_vllms_log() -> None:
    """vllm#10511, Llama-3-8B on an H100: weights 14.96 GiB, activation peak 1.26 GiB."""
    memory = gpu_memory(model("meta-llama/Llama-3.1-8B-Instruct"), Serving(context=8192), gpu_memory_bytes=81_920 * MIB)
    assert memory.weights_bytes / GIB == pytest.approx(14.96, abs=0.01)
    assert memory.activations_bytes / GIB == pytest.approx(1.26, abs=0.1)


@given(
    name=st.sampled_from(sorted(known_models())),
    context=st.integers(256, 65_536),
    concurrency=st.integers(1, 64),
    ranks=st.sampled_from([1, 2, 4]),
)
def test_more_ranks_and_less_to_hold_never_need_more(name: str, context: int, concurrency: int, ranks: int) -> None:
    facts = model(name)

    def needed(tokens: int, sequences: int, size: int) -> int:
        serving = Serving(context=tokens, concurrency=sequences, tensor_parallel=size)
        memory = gpu_memory(facts, serving, gpu_memory_bytes=81_920 * MIB)
        return memory.weights_bytes + memory.kv_bytes

    assert needed(context, concurrency, ranks * 2) <= needed(context, concurrency, ranks)
    assert needed(context, concurrency, ranks) <= needed(context * 2, concurrency + 1, ranks)
