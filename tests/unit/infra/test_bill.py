"""What a stack costs per hour: what always runs, and what may run at most."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from budget.instances import instance
from budget.price import prices
from infra.bill import Bill, bill
from infra.network import INTERFACE_ENDPOINTS, NO_EGRESS_ENDPOINTS
from infra.specs import ModelSpecs, model_specs
from infra.stack_file import read
from tests.unit.infra.changed_stacks import change

LLAMA, QWEN, LARGE = "dev-llama-3-1-8b", "dev-qwen2-5-0-5b", "dev-qwen3-32b"
NO_EGRESS = {
    "environment.network.egress": "none",
    "environment.addons.keda": "present",
    "environment.addons.cluster_autoscaler": "present",
}


def billed(stacks: Path, name: str, changes: Mapping[str, Any] | None = None) -> tuple[Bill, ModelSpecs | None]:
    change(stacks, name, dict(changes or {}))
    stack = read(name, stacks)
    specs = model_specs(stack, stack.model) if stack.model else None
    return bill(stack, specs), specs


def items(found: Bill, *, most: bool = True) -> dict[str, float | None]:
    return {item.item: item.usd_per_hour for item in (found.most if most else found.least)}


# ---- environment ----------------------------------------------------------------------------------------------------


def test_an_environment_costs_the_same_busy_or_idle(stacks: Path) -> None:
    found, _ = billed(stacks, "dev")
    assert found.least == found.most
    assert found.most_usd_per_hour == pytest.approx(sum(cost for cost in items(found).values() if cost))


def test_what_an_environment_is_made_of(stacks: Path) -> None:
    found, _ = billed(stacks, "dev")
    usd, costs = prices().usd, items(found)
    assert costs["EKS control plane"] == pytest.approx(0.10)
    assert costs["2 x m7i.large (on-demand)"] == pytest.approx(2 * (instance("m7i.large").usd_per_hour or 0))
    assert costs["1 x NAT gateway"] == pytest.approx(0.045 + 0.005)
    endpoints = len(INTERFACE_ENDPOINTS)
    assert costs[f"{endpoints} interface endpoints x 3 zones"] == pytest.approx(0.01 * endpoints * 3)
    assert usd["eks_standard_usd_per_hour"] == 0.10 if "eks_standard_usd_per_hour" in usd else True


def test_production_pays_for_a_nat_gateway_a_zone(stacks: Path) -> None:
    found, _ = billed(stacks, "dev", {"environment.production": True})
    assert items(found)["3 x NAT gateway"] == pytest.approx(3 * (0.045 + 0.005))


def test_without_egress_there_is_no_nat_and_there_are_more_endpoints(stacks: Path) -> None:
    found, _ = billed(stacks, "dev", NO_EGRESS)
    endpoints = len(INTERFACE_ENDPOINTS) + len(NO_EGRESS_ENDPOINTS)
    costs = items(found)
    assert not [item for item in costs if "NAT" in item]
    assert costs[f"{endpoints} interface endpoints x 3 zones"] == pytest.approx(0.01 * endpoints * 3)


def test_two_zones_cost_less_than_three(stacks: Path) -> None:
    three, _ = billed(stacks, "dev")
    two, _ = billed(stacks, "dev", {"environment.network.zones": ["a", "b"]})
    assert three.most_usd_per_hour is not None
    assert two.most_usd_per_hour is not None
    difference = three.most_usd_per_hour - two.most_usd_per_hour
    assert difference == pytest.approx(0.01 * len(INTERFACE_ENDPOINTS))


# ---- model ----------------------------------------------------------------------------------------------------------


def test_a_model_costs_its_nodes_at_least_and_at_most(stacks: Path) -> None:
    found, specs = billed(stacks, LLAMA)
    assert specs is not None
    price = instance("g6e.2xlarge").usd_per_hour or 0
    assert items(found)["4 x g6e.2xlarge (on-demand)"] == pytest.approx(4 * price)
    assert items(found, most=False)["1 x g6e.2xlarge (on-demand)"] == pytest.approx(price)
    assert found.least_usd_per_hour is not None
    assert found.most_usd_per_hour is not None
    assert found.least_usd_per_hour < found.most_usd_per_hour


def test_a_model_that_sleeps_costs_its_weights_alone(stacks: Path) -> None:
    found, _ = billed(stacks, QWEN)
    (weights,) = found.least
    assert weights.usd_per_hour is not None
    assert 0 < weights.usd_per_hour < 0.001


def test_two_replicas_on_a_node_are_one_node(stacks: Path) -> None:
    changes = {"model.engine.tensor_parallel": 2, "model.scaling.min_replicas": 2, "model.scaling.max_replicas": 5}
    found, specs = billed(stacks, LARGE, changes)
    assert specs is not None
    assert specs.pods_per_node == 2
    assert [item for item in items(found, most=False) if item.startswith("1 x g6e.12xlarge")]
    assert [item for item in items(found) if item.startswith("3 x g6e.12xlarge")]


def test_the_data_volume_is_billed_as_it_is_made(stacks: Path) -> None:
    changes = {
        "model.nodes.disk": "ebs",
        "model.nodes.volume": {"size_gib": 300, "iops": 8_000, "throughput_mib_s": 1_000},
    }
    found, _ = billed(stacks, LARGE, changes)
    cost = items(found)["2 x gp3 300 GiB, 8000 IOPS, 1000 MiB/s"]
    month = 300 * 0.08 + (8_000 - 3_000) * 0.005 + (1_000 - 125) * 0.04
    assert cost == pytest.approx(2 * month / 730, rel=0.02)


def test_a_price_nobody_knows_is_not_nothing(stacks: Path) -> None:
    unpriced = next(name for name in ("p6-b300.48xlarge", "p5e.48xlarge") if instance(name).usd_per_hour is None)
    changes = {"model.nodes.instance": unpriced, "model.engine.tensor_parallel": 8}
    found, _ = billed(stacks, LARGE, changes)
    assert found.most_usd_per_hour is None


def test_a_group_a_zone_may_cost_three_times_as_much(stacks: Path) -> None:
    found, specs = billed(stacks, LLAMA, {"model.nodes.group_per_zone": True})
    assert specs is not None
    groups = len(specs.zone_groups)
    assert f"{groups * specs.max_nodes} x g6e.2xlarge (on-demand)" in items(found)


def test_a_warm_pool_is_billed(stacks: Path) -> None:
    without, _ = billed(stacks, LLAMA)
    found, _ = billed(stacks, LLAMA, {"model.nodes.warm_pool": {"size": 2, "state": "running"}})
    assert found.least_usd_per_hour is not None
    assert without.least_usd_per_hour is not None
    assert found.least_usd_per_hour > without.least_usd_per_hour


def test_spare_replicas_are_billed_whenever_nobody_needs_them(stacks: Path) -> None:
    found, _ = billed(stacks, LLAMA, {"model.scaling.spare_replicas": 1})
    assert "2 x g6e.2xlarge (on-demand)" in items(found, most=False)
