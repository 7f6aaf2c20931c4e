"""How instances are bought, held ready, and where."""

from __future__ import annotations

import pytest

from tests.unit.infra.declared_nodes import (
    BLOCK,
    LLAMA,
    MODELS,
    QWEN,
    RESERVATION,
    RESERVED,
    SPLIT,
    Declared,
    autoscaler_tags,
    groups,
    templates,
)


def test_on_demand_and_spot(declared: Declared) -> None:
    for stack, bought in ((LLAMA, "ON_DEMAND"), (QWEN, "SPOT")):
        found = declared(stack)
        assert groups(found)[stack].inputs["capacityType"] == bought
        template = templates(found)[stack].inputs
        assert "instanceMarketOptions" not in template
        assert "capacityReservationSpecification" not in template


def test_a_reservation_is_named_on_the_template_and_bought_on_demand(declared: Declared) -> None:
    found = declared(LLAMA, RESERVED)
    assert groups(found)[LLAMA].inputs["capacityType"] == "ON_DEMAND"
    template = templates(found)[LLAMA].inputs
    assert template["capacityReservationSpecification"] == {
        "capacityReservationTarget": {"capacityReservationId": RESERVATION}
    }
    assert "instanceMarketOptions" not in template
    assert groups(found)[LLAMA].inputs["subnetIds"] == ["subnet-offline-dev-private-us-west-2b"]


def test_a_capacity_block_is_a_market_of_its_own(declared: Declared) -> None:
    found = declared(LLAMA, BLOCK)
    assert groups(found)[LLAMA].inputs["capacityType"] == "CAPACITY_BLOCK"
    template = templates(found)[LLAMA].inputs
    assert template["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert template["instanceType"] == "p5.48xlarge"
    assert template["capacityReservationSpecification"] == {
        "capacityReservationTarget": {"capacityReservationId": RESERVATION}
    }
    assert groups(found)[LLAMA].inputs["subnetIds"] == ["subnet-offline-dev-private-us-west-2c"]
    assert groups(found)[LLAMA].inputs["scalingConfig"]["desiredSize"] == 0


@pytest.mark.parametrize("state", ["stopped", "running"])
def test_a_warm_pool(declared: Declared, state: str) -> None:
    """Bottlerocket can neither hibernate nor go back into the pool. With other bounds AWS prepares the whole group."""
    changes = {"model.nodes.warm_pool": {"size": 2, "state": state}}
    (group,) = groups(declared(LLAMA, changes)).values()
    assert group.inputs["warmPoolConfig"] == {
        "minSize": 2,
        "maxGroupPreparedCapacity": 2,
        "poolState": state.upper(),
    }


def test_without_one_the_pool_is_not_mentioned(declared: Declared) -> None:
    """Its mere presence would switch it on."""
    for stack in MODELS:
        (group,) = groups(declared(stack)).values()
        assert "warmPoolConfig" not in group.inputs


def test_one_group_over_all_zones(declared: Declared) -> None:
    (group,) = groups(declared(LLAMA)).values()
    assert group.inputs["subnetIds"] == [f"subnet-offline-dev-private-us-west-2{zone}" for zone in "abc"]


@pytest.mark.parametrize("mode", ["up", "preview"])
def test_one_group_a_zone_where_asked(declared: Declared, mode: str) -> None:
    found = declared(LLAMA, SPLIT, mode=mode)
    assert set(groups(found)) == {f"{LLAMA}-{zone}" for zone in "abc"}
    assert set(templates(found)) == set(groups(found))
    if mode == "up":
        for zone in "abc":
            group = groups(found)[f"{LLAMA}-{zone}"]
            assert group.inputs["subnetIds"] == [f"subnet-offline-dev-private-us-west-2{zone}"]
            assert group.inputs["launchTemplate"]["id"] == f"lt-offline-{LLAMA}-{zone}"
            assert autoscaler_tags(found, f"{LLAMA}-{zone}")


def test_only_the_zones_that_are_named(declared: Declared) -> None:
    (group,) = groups(declared(LLAMA, {"model.nodes.zones": ["c", "a"]})).values()
    assert group.inputs["subnetIds"] == [f"subnet-offline-dev-private-us-west-2{zone}" for zone in "ca"]
