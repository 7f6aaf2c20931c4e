"""The pull simulator: exact where a hand can solve it, sensible everywhere, and close to real pulls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budget.pull import WRITEBACK_EFFICIENCY, Layer, PullHost, PullSettings, pull

MB = 1e6
FREE = PullHost(cores=1000, network_bytes_s=math.inf, connection_bytes_s=math.inf, unpack_bytes_s=math.inf)
SOCI = PullSettings(downloads=20, unpacks=12, chunk_bytes=MB)


def layers(*sizes: float, ratio: float = 2.0) -> list[Layer]:
    return [Layer(bytes=size * MB, unpacked_bytes=size * ratio * MB) for size in sizes]


def seconds(cut: Sequence[Layer], how: PullSettings = SOCI, host: PullHost = FREE, **kwargs: object) -> float:
    return pull(cut, how, host, **kwargs).seconds  # type: ignore[arg-type]


# --- solvable by hand ------------------------------------------------------------------------------------------------


def test_one_layer_is_downloaded_then_unpacked() -> None:
    host = replace(FREE, network_bytes_s=10 * MB, unpack_bytes_s=20 * MB)
    # 100 MB at 10 MB/s, then 200 MB of output at 20 MB/s.
    assert seconds(layers(100), host=host) == pytest.approx(20)


def test_latency_comes_first() -> None:
    host = replace(FREE, network_bytes_s=10 * MB, unpack_bytes_s=20 * MB, latency_s=1.5)
    assert seconds(layers(100), host=host) == pytest.approx(21.5)


def test_one_layer_over_few_connections() -> None:
    host = replace(FREE, connection_bytes_s=2 * MB, unpack_bytes_s=20 * MB)
    how = replace(SOCI, downloads=4)
    assert seconds(layers(80), how, host) == pytest.approx(80 / 8 + 160 / 20)


def test_a_layer_opens_no_more_connections_than_it_has_chunks() -> None:
    host = replace(FREE, connection_bytes_s=2 * MB)
    # 3 MB in chunks of 1 MB: three connections, though twenty are allowed.
    assert seconds(layers(3), host=host) == pytest.approx(3 / 6)


def test_whole_layer_requests_use_one_connection_each() -> None:
    host = replace(FREE, connection_bytes_s=2 * MB)
    assert seconds(layers(100, 60), replace(SOCI, chunk_bytes=None), host) == pytest.approx(50)


def test_network_bound_n_equal_layers() -> None:
    host = replace(FREE, network_bytes_s=10 * MB)
    assert seconds(layers(*[25] * 8), host=host) == pytest.approx(8 * 25 / 10)


def test_n_equal_layers_unpack_side_by_side() -> None:
    host = replace(FREE, unpack_bytes_s=10 * MB)
    # Downloads take no time: every layer unpacks alone at 10 MB/s.
    assert seconds(layers(*[25] * 8), host=host) == pytest.approx(50 / 10)


def test_unpack_slots_make_rounds() -> None:
    host = replace(FREE, unpack_bytes_s=10 * MB)
    assert seconds(layers(*[25] * 8), replace(SOCI, unpacks=3), host) == pytest.approx(3 * 50 / 10)


def test_cores_are_shared_by_unpacks() -> None:
    host = replace(FREE, cores=2, unpack_bytes_s=100 * MB, unpack_cpu_s_per_byte=0.1 / MB)
    # 8 layers x 50 MB of output x 0.1 core-seconds per MB on two cores.
    assert seconds(layers(*[25] * 8), host=host) == pytest.approx(8 * 50 * 0.1 / 2)


def test_disk_bound_writes_everything_once_the_allowance_is_gone() -> None:
    host = replace(FREE, disk_bytes_s=10 * MB, dirty_bytes=1)
    how = replace(SOCI, unpacks=1, discard=True)
    total = seconds(layers(100), how, host)
    # Compressed and unpacked bytes, at what writeback of unpacked files makes of the disk.
    assert total == pytest.approx((100 + 200) / (10 * WRITEBACK_EFFICIENCY), rel=1e-3)


def test_the_page_cache_hides_a_slow_disk_in_discard_mode() -> None:
    host = replace(FREE, network_bytes_s=10 * MB, disk_bytes_s=1 * MB, dirty_bytes=1000 * MB)
    assert seconds(layers(100), host=host) == pytest.approx(10)


def test_kept_blobs_are_flushed_before_they_count() -> None:
    host = replace(FREE, network_bytes_s=10 * MB, disk_bytes_s=20 * MB, dirty_bytes=1000 * MB, unpack_bytes_s=50 * MB)
    kept = replace(SOCI, discard=False)
    assert seconds(layers(100), kept, host) == pytest.approx(100 / 10 + 100 / 20 + 200 / 50)


def test_default_containerd_unpacks_in_order() -> None:
    host = replace(FREE, connection_bytes_s=1 * MB, unpack_bytes_s=10 * MB)
    how = PullSettings(snapshotter="overlayfs", downloads=3, unpacks=1, chunk_bytes=None, discard=False)
    # The first layer takes longest: 30 s, then everything one after another.
    assert seconds(layers(30, 10, 10), how, host) == pytest.approx(30 + (60 + 20 + 20) / 10)
    # Asked for in another order nothing changes here: three slots hold all three layers.
    assert seconds(layers(30, 10, 10), how, host, order=[2, 1, 0]) == pytest.approx(40)


def test_a_late_first_layer_idles_the_unpack() -> None:
    host = replace(FREE, connection_bytes_s=1 * MB, unpack_bytes_s=10 * MB)
    how = PullSettings(snapshotter="overlayfs", downloads=1, unpacks=1, chunk_bytes=None, discard=False)
    first = seconds(layers(10, 10, 10), how, host, order=[0, 1, 2])
    last = seconds(layers(10, 10, 10), how, host, order=[2, 1, 0])
    assert first == pytest.approx(30 + 2)
    assert last == pytest.approx(30 + 6)


def test_the_first_layer_takes_every_free_slot() -> None:
    host = replace(FREE, connection_bytes_s=1 * MB, unpack_bytes_s=1000 * MB)
    how = PullSettings(downloads=4, unpacks=1, chunk_bytes=MB, discard=True)
    trace = pull(layers(4, 4), how, host)
    # Four chunks of the first layer at once, then four of the second.
    assert trace.downloaded_s == pytest.approx(2)


def test_an_empty_layer_costs_nothing() -> None:
    cut = [Layer(bytes=0, unpacked_bytes=0), *layers(10)]
    assert seconds(cut, host=replace(FREE, network_bytes_s=MB)) == pytest.approx(10)


def test_what_binds_is_named() -> None:
    host = replace(FREE, network_bytes_s=1 * MB, unpack_bytes_s=100 * MB)
    assert pull(layers(100), SOCI, host).bound_by == "network"
    assert pull(layers(100), SOCI, replace(FREE, unpack_bytes_s=MB)).bound_by == "unpack"
    assert pull(layers(100), SOCI, replace(FREE, connection_bytes_s=MB / 100)).bound_by == "connection"
    cpu = replace(FREE, cores=1, unpack_bytes_s=100 * MB, unpack_cpu_s_per_byte=1 / MB)
    assert pull(layers(50, 50), SOCI, cpu).bound_by == "cpu"
    assert pull(layers(100), SOCI, replace(FREE, disk_bytes_s=MB, dirty_bytes=1)).bound_by == "disk"


# --- sense ------------------------------------------------------------------------------------------------------------

SIZES = st.lists(st.floats(0.5, 400), min_size=1, max_size=14)
HOSTS = st.builds(
    PullHost,
    cores=st.floats(1, 64),
    network_bytes_s=st.floats(5 * MB, 5000 * MB),
    connection_bytes_s=st.floats(1 * MB, 200 * MB),
    unpack_bytes_s=st.floats(5 * MB, 500 * MB),
    unpack_cpu_s_per_byte=st.floats(0, 10).map(lambda cost: cost / 1e9),
    download_cpu_s_per_byte=st.floats(0, 1).map(lambda cost: cost / 1e9),
    disk_bytes_s=st.floats(20 * MB, 3000 * MB),
    dirty_bytes=st.floats(10 * MB, 2000 * MB),
)
HOWS = st.builds(
    PullSettings,
    snapshotter=st.sampled_from(["soci", "overlayfs"]),
    downloads=st.integers(1, 40),
    unpacks=st.integers(1, 14),
    chunk_bytes=st.one_of(st.none(), st.floats(1 * MB, 64 * MB)),
    discard=st.booleans(),
)


@settings(max_examples=100, deadline=None)
@given(sizes=SIZES, how=HOWS, host=HOSTS)
def test_never_faster_than_the_narrowest_link(sizes: list[float], how: PullSettings, host: PullHost) -> None:
    cut = layers(*sizes)
    compressed, raw = sum(layer.bytes for layer in cut), sum(layer.unpacked_bytes for layer in cut)
    slots = how.downloads if how.chunk_bytes else min(how.downloads, len(cut))
    floor = max(
        compressed / host.network_bytes_s,
        compressed / (slots * host.connection_bytes_s),
        raw / (min(how.unpacks, len(cut)) * host.unpack_bytes_s),
        max(layer.unpacked_bytes for layer in cut) / host.unpack_bytes_s,
        raw * host.unpack_cpu_s_per_byte / host.cores,
    )
    assert seconds(cut, how, host) >= floor * (1 - 1e-6)


@settings(max_examples=100, deadline=None)
@given(sizes=SIZES, how=HOWS, host=HOSTS, more=st.floats(1, 20), name=st.sampled_from([
    "network_bytes_s", "connection_bytes_s", "unpack_bytes_s", "cores", "disk_bytes_s",
]))  # fmt: skip
def test_more_of_anything_is_never_slower(
    sizes: list[float], how: PullSettings, host: PullHost, more: float, name: str
) -> None:
    cut = layers(*sizes)
    richer = replace(host, **{name: getattr(host, name) * more})
    # Several layers share what there is, and what reaches the others earlier can delay the last one a little: true of
    # nodes too. Never where layers unpack one after another in image order and nothing but the network is short.
    free = how.in_order and how.chunk_bytes is None and how.downloads >= len(cut)
    tolerance = 1e-6 if free else 0.25
    assert seconds(cut, how, richer) <= seconds(cut, how, host) * (1 + tolerance)


@settings(max_examples=60, deadline=None)
@given(sizes=SIZES, host=HOSTS, how=HOWS)
def test_deterministic_and_finite(sizes: list[float], host: PullHost, how: PullSettings) -> None:
    cut = layers(*sizes)
    first, second = pull(cut, how, host), pull(cut, how, host)
    assert first == second
    assert math.isfinite(first.seconds)
    assert sum(first.bound_s.values()) == pytest.approx(first.seconds - host.latency_s)


@settings(max_examples=60, deadline=None)
@given(total=st.floats(500, 5000), count=st.integers(2, 12), share=st.floats(0.1, 0.95), host=HOSTS)
def test_even_layers_are_never_slower_where_one_layer_binds(
    total: float, count: int, share: float, host: PullHost
) -> None:
    """With an unpack slot and cores for every layer; where those are short, a head start of small layers helps."""
    rich = replace(host, cores=1e6, disk_bytes_s=math.inf)
    fat = max(share, 1 / count) * total
    small = [(total - fat) / (count - 1)] * (count - 1)
    uneven = layers(*small[: count // 2], fat, *small[count // 2 :])
    even = layers(*[total / count] * count)
    how = PullSettings(downloads=20, unpacks=12, chunk_bytes=MB, discard=True)
    # Requests are counted in chunks: that much may go either way.
    assert seconds(even, how, rich) <= seconds(uneven, how, rich) * (1 + 0.01)


def test_the_same_bytes_as_infinite_rates_terminate() -> None:
    assert seconds(layers(1, 2, 3)) == pytest.approx(0, abs=1e-6)
