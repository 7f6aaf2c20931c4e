"""Prices: what an hour of each part costs."""

from __future__ import annotations

import pytest

from budget.disk import data_volume_gib
from budget.instances import GIB, instance
from budget.price import (
    bucket_cost,
    control_plane_cost,
    endpoint_cost,
    nat_cost,
    node_cost,
    prices,
    registry_cost,
    total_usd_per_hour,
    volume_cost,
)


def test_every_price_has_a_source_and_the_table_a_date() -> None:
    table = prices()
    assert table.priced_on
    assert set(table.sources) == set(table.usd)
    assert all(table.sources.values())


def test_gp3_beyond_what_is_free() -> None:
    # 100 GB x 0.08 + 13,000 IOPS x 0.005 + 875 MiB/s x 0.04 a month.
    cost = volume_cost("gp3", gib=100, iops=16_000, throughput_mib_s=1_000)
    assert cost.usd_per_hour == pytest.approx((8 + 65 + 35) / 730)
    assert volume_cost("gp3", gib=100).usd_per_hour == pytest.approx(8 / 730)


def test_io2_iops_come_in_tiers() -> None:
    month = 12.5 + 32_000 * 0.065 + 32_000 * 0.0455 + 6_000 * 0.03185
    assert volume_cost("io2", gib=100, iops=70_000).usd_per_hour == pytest.approx(month / 730)


def test_a_kind_of_volume_is_never_billed_as_another() -> None:
    assert volume_cost("gp2", gib=100, iops=300).usd_per_hour == pytest.approx(10 / 730)
    unpriced = volume_cost("st1", gib=500, count=2)
    assert unpriced.item == "2 x st1 500 GiB"
    assert unpriced.usd_per_hour is None


def test_nodes_by_purchase() -> None:
    kind = instance("g6e.4xlarge")
    assert node_cost(kind, count=2).usd_per_hour == pytest.approx(6.00848)
    spot = node_cost(kind, purchase="spot")
    assert spot.usd_per_hour == kind.usd_per_hour
    assert "ceiling" in spot.note
    known = node_cost(kind, purchase="spot", usd_per_hour=1.25)
    assert known.usd_per_hour == 1.25
    assert "ceiling" not in known.note


def test_no_list_price_is_said_and_never_summed_away() -> None:
    unpriced = node_cost(instance("p5e.48xlarge"))
    assert unpriced.usd_per_hour is None
    assert total_usd_per_hour([control_plane_cost(), unpriced]) is None


def test_the_rest_of_a_stack() -> None:
    items = [control_plane_cost(), nat_cost(1), endpoint_cost(8, 3), bucket_cost(100e9), registry_cost(10e9)]
    expected = 0.10 + 0.05 + 0.24 + 2.3 / 730 + 1.0 / 730
    assert total_usd_per_hour(items) == pytest.approx(expected)
    assert control_plane_cost(extended_support=True).usd_per_hour == 0.60


def test_the_data_volume_holds_image_and_headroom() -> None:
    size = data_volume_gib(image_bytes=10_778_000_000, unpacked_bytes=20_000_000_000)
    assert size % 10 == 0
    assert size * GIB >= 10_778_000_000 + 20_000_000_000 + 20 * GIB
    assert data_volume_gib(image_bytes=1e9) >= 20
