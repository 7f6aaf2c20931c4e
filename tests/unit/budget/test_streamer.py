"""The streamer of a pod: what the budget counts with is what the pod is given."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budget.instances import instance, instances
from budget.streamer import rank_connections, streamer_clients, streamer_connections, streamer_release

GPU_TYPES = sorted(name for name, kind in instances().items() if kind.gpus)


@pytest.mark.parametrize(
    ("vllm", "release"), [(None, (0, 15)), ((0, 27, 1), (0, 15)), ((0, 32, 9), (0, 15)), ((0, 33, 0), (0, 17))]
)
def test_the_streamer_is_what_was_newest_on_the_image_s_build_day(
    vllm: tuple[int, int, int] | None, release: tuple[int, int]
) -> None:
    assert streamer_release(vllm) == release


@given(network=st.floats(0.1, 4_000), ranks=st.integers(1, 16))
def test_clients_fill_a_rank_s_share_within_what_descriptors_allow(network: float, ranks: int) -> None:
    clients = streamer_clients(network, ranks)
    assert 4 <= clients <= 16
    assert clients == 16 or clients * 10 * ranks >= network


@given(kind=st.sampled_from(GPU_TYPES), clients=st.integers(1, 256))
def test_more_clients_never_mean_fewer_connections(kind: str, clients: int) -> None:
    one = instance(kind)
    assert streamer_connections(one, clients) <= streamer_connections(one, clients + 1)
    slower = replace(one, network_baseline_gbps=one.network_baseline_gbps / 2)
    assert streamer_connections(slower, clients) <= streamer_connections(one, clients)


@given(kind=st.sampled_from(GPU_TYPES), ranks=st.sampled_from([2, 4, 8]))
def test_ranks_that_read_everything_share_the_connections(kind: str, ranks: int) -> None:
    one = instance(kind)
    together = rank_connections(one, clients=4, ranks=ranks, distributed=True)
    each = rank_connections(one, clients=4, ranks=ranks, distributed=False)
    assert together == streamer_connections(one, 4 * ranks)
    assert 8 <= each <= together
