"""The tuning of parallel pull: whatever instance and image, it stays inside what is documented to help."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budget.instances import instance, instances
from nodeconfig.soci import MIB, tune

GPU_TYPES = sorted(name for name, found in instances().items() if found.gpus)
LAYERS = st.lists(st.integers(min_value=1, max_value=52_000 * MIB), min_size=1, max_size=130)
"""ECR takes layers of at most 52,000 MiB, an image of at most 127 of them."""


@given(name=st.sampled_from(GPU_TYPES), layers=LAYERS)
def test_every_value_stays_within_the_documented_range(name: str, layers: list[int]) -> None:
    tuning = tune(instance(name), layers)
    assert 10 <= tuning.downloads.value <= 20
    assert 1 <= tuning.unpacks.value <= 12
    assert tuning.chunk_mib.value in (8, 16)


@given(name=st.sampled_from(GPU_TYPES), layers=LAYERS)
def test_never_more_unpacks_than_layers_nor_than_cores(name: str, layers: list[int]) -> None:
    """One layer unpacks on one core: more slots than layers would idle, more than cores would queue."""
    unpacks = tune(instance(name), layers).unpacks.value
    assert unpacks <= len(layers)
    assert unpacks <= max(2, instance(name).vcpu // 2)


@given(name=st.sampled_from(GPU_TYPES), layers=LAYERS)
def test_the_caps_over_all_images_stay_unset(name: str, layers: list[int]) -> None:
    """A cap below the per-image value stops the snapshotter, and the node pulls nothing at all."""
    tuning = tune(instance(name), layers)
    assert tuning.downloads_all is None
    assert tuning.unpacks_all is None
    assert tuning.discard is True


@given(name=st.sampled_from(GPU_TYPES), layers=LAYERS)
def test_every_value_says_why_with_the_numbers_it_came_from(name: str, layers: list[int]) -> None:
    found = instance(name)
    tuning = tune(found, layers)
    assert f"{found.plan_network_peak_gbps:g} Gbps" in tuning.downloads.reason
    assert f"half of {found.vcpu} vCPUs" in tuning.unpacks.reason
    assert f"of {len(layers)}" in tuning.unpacks.reason
    assert f"{max(layers) / tuning.downloads.value / MIB:.0f} MiB to each of {tuning.downloads.value}" in (
        tuning.chunk_mib.reason
    )


@given(name=st.sampled_from(GPU_TYPES), layers=LAYERS)
def test_a_small_chunk_only_where_the_largest_layer_could_not_feed_every_request(name: str, layers: list[int]) -> None:
    tuning = tune(instance(name), layers)
    share = max(layers) / tuning.downloads.value
    assert (tuning.chunk_mib.value == 16) == (share >= 16 * MIB)


@given(name=st.sampled_from(GPU_TYPES), layers=LAYERS, extra=st.integers(1, 52_000 * MIB))
def test_one_more_layer_never_lowers_a_value(name: str, layers: list[int], extra: int) -> None:
    before, after = tune(instance(name), layers), tune(instance(name), [*layers, extra])
    assert after.downloads == before.downloads
    assert after.unpacks.value >= before.unpacks.value
    assert after.chunk_mib.value >= before.chunk_mib.value


@pytest.mark.parametrize(
    ("name", "downloads", "unpacks"),
    [
        ("g5g.xlarge", 15, 2),  # 10 Gbps burst: 1,250 MB/s take 15 requests of 85 MB/s; half of 4 vCPUs
        ("g6e.2xlarge", 20, 4),
        ("g6e.4xlarge", 20, 8),
        ("g5.12xlarge", 20, 12),
        ("p5.48xlarge", 20, 12),
    ],
)
def test_known_instances(name: str, downloads: int, unpacks: int) -> None:
    tuning = tune(instance(name), [500_000_000] * 20)
    assert (tuning.downloads.value, tuning.unpacks.value) == (downloads, unpacks)


def test_requests_fill_the_network_of_every_type_or_stop_at_the_advice() -> None:
    for name in GPU_TYPES:
        fill = math.ceil(instance(name).plan_network_peak_gbps * 125 / 85)
        assert tune(instance(name), [1]).downloads.value == min(20, max(10, fill))


def test_a_single_layer_unpacks_alone() -> None:
    assert tune(instance("p5.48xlarge"), [20_000_000_000]).unpacks.value == 1
