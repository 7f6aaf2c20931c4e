"""Plans: levers, advice, cost and the instance search."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budget.coefficients import coefficients
from budget.cost import UNBILLED_S, Terms, break_even_gap_s, cost_of
from budget.disk import Disk
from budget.feasibility import gpu_memory_of, sequences_that_fit
from budget.instances import instance, instances
from budget.levers import effects
from budget.models import known_models, model
from budget.phases import budget_of
from budget.plan import Plan, plan_of, today
from budget.problems import BadInput
from budget.scenario import (
    EngineCase,
    HostCase,
    ImageCase,
    LayerCase,
    ModelCase,
    NodeCase,
    PullCase,
    Scenario,
    WeightsCase,
)
from budget.search import Wish, candidates, cheapest_within, deployed

LLAMA = model("meta-llama/Llama-3.1-8B-Instruct")
IMAGE = ImageCase(bytes=9_612_695_005)
C = coefficients()


def scenario(kind: str = "g6e.4xlarge", **changes: object) -> Scenario:
    return replace(deployed(LLAMA, Wish(image=IMAGE), instance(kind), 1), **changes)  # type: ignore[arg-type]


STARTED = budget_of(scenario())


def codes(plan: Plan) -> set[str]:
    return {finding.code for finding in plan.findings}


def saved(case: Scenario) -> dict[str, float]:
    return {effect.lever: effect.saves_s for effect in effects(case, budget_of(case), C)}


# --- levers
# ------------------------------------------------------------------------------------------------------------


def test_levers_are_ranked_by_seconds() -> None:
    seconds = [effect.saves_s for effect in plan_of(today(scenario())).levers]
    assert seconds == sorted(seconds, reverse=True)
    assert plan_of(scenario()).levers[0].lever == "warm-replica"


def test_an_untuned_start_is_offered_every_cure() -> None:
    offered = saved(today(scenario()))
    cures = {"soci", "private-registry", "nvme", "volume-throughput", "streaming", "compile-cache", "warm-node"}
    assert cures <= set(offered)
    assert all(offered[lever] > 0 for lever in cures)


def test_a_pulled_lever_is_not_offered_again() -> None:
    tuned = scenario(
        node=NodeCase(warm=True),
        engine=EngineCase(compile_cache="hit", capture_sizes=8),
        image=replace(IMAGE, cached=True),
    )
    assert set(saved(tuned)) <= {"warm-replica", "eager", "fp8", "bigger-network"}


def test_a_lever_saves_what_planning_with_it_saves() -> None:
    before = scenario(engine=EngineCase(compile_cache="miss"))
    after = replace(before, engine=EngineCase(compile_cache="hit"))
    difference = budget_of(before).total.expected_s - budget_of(after).total.expected_s
    assert saved(before)["compile-cache"] == pytest.approx(difference)


def test_untuned_soci_is_offered_its_tuning() -> None:
    offered = saved(scenario(pull=PullCase(downloads=3, unpacks=1, chunk_bytes=None, discard=False)))
    assert "soci" not in offered
    assert offered["soci-tuning"] > 30


def test_rebalancing_pays_for_a_fat_layer_only() -> None:
    even = tuple(LayerCase(bytes=9_612_695_005 / 12) for _ in range(12))
    assert "rebalance-layers" not in saved(scenario(image=replace(IMAGE, layers=even)))
    assert saved(scenario(image=IMAGE))["rebalance-layers"] > 0


def test_a_warm_node_costs_its_hour() -> None:
    plan = plan_of(scenario())
    effect = next(effect for effect in plan.levers if effect.lever == "warm-node")
    assert effect.saves_s == pytest.approx(plan.budget.phases["node"].expected_s)
    assert effect.usd_per_hour == pytest.approx(3.00424)
    assert effect.phase == "node"


def test_distributed_is_a_lever_of_several_ranks() -> None:
    facts = model("meta-llama/Llama-3.3-70B-Instruct")
    four = deployed(facts, Wish(image=IMAGE), instance("g6e.12xlarge"), 4)
    full = replace(four, weights=replace(four.weights, distributed=False))
    assert saved(full)["distributed"] > 10
    assert "distributed" not in saved(four)


def test_fp8_only_where_the_gpu_can_and_the_weights_are_not_quantized() -> None:
    assert "fp8" in saved(scenario("g6e.4xlarge"))
    assert "fp8" not in saved(scenario("g4dn.12xlarge"))
    facts = model("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8")
    assert "fp8" not in saved(deployed(facts, Wish(image=IMAGE), instance("g6e.4xlarge"), 1))


def test_no_snapshot_brings_an_image_onto_nvme() -> None:
    assert "image-on-node" not in saved(scenario(disk=Disk(kind="nvme")))


@pytest.mark.parametrize("kind", ["gp3", "io2"])
def test_a_snapshot_is_offered_on_ebs_at_no_price_that_no_table_has(kind: Literal["gp3", "io2"]) -> None:
    before = scenario(disk=Disk(kind=kind, throughput_mib_s=1_000, iops=4_000))
    effect = next(effect for effect in plan_of(before).levers if effect.lever == "image-on-node")
    after = replace(before, image=replace(IMAGE, cached=True, hydration_mib_s=300.0))
    assert effect.saves_s == pytest.approx(budget_of(before).total.expected_s - budget_of(after).total.expected_s)
    assert effect.usd_per_hour is None
    assert effect.billed


def test_a_node_that_is_kept_costs_the_price_that_was_given() -> None:
    levers = {effect.lever: effect for effect in plan_of(scenario(), terms=Terms(usd_per_hour=1.5)).levers}
    assert levers["warm-node"].usd_per_hour == pytest.approx(1.5)
    assert levers["warm-replica"].usd_per_hour == pytest.approx(1.5)


def test_the_first_start_compiles_and_may_take_longer() -> None:
    kept = scenario(engine=EngineCase(compile_cache="hit"))
    miss = budget_of(replace(kept, engine=EngineCase(compile_cache="miss")))
    plan = plan_of(kept)
    assert plan.first_high_s is not None
    assert plan.first_high_s == pytest.approx(miss.total.high_s)
    assert plan.first_high_s > plan.budget.total.high_s
    assert plan_of(scenario(engine=EngineCase(compile_cache="miss"))).first_high_s is None
    assert plan_of(scenario(engine=EngineCase(compile_cache="hit", eager=True))).first_high_s is None


@settings(max_examples=20, deadline=None)
@given(context=st.integers(1_024, 131_072))
def test_as_many_sequences_fit_as_are_said_and_not_one_more(context: int) -> None:
    case = scenario(model=replace(scenario().model, context_tokens=context))
    most = sequences_that_fit(case)
    assert most is not None

    def fit(concurrency: int) -> bool:
        return gpu_memory_of(replace(case, model=replace(case.model, concurrency=concurrency))).fits

    assert most == 0 or fit(most)
    assert not fit(most + 1)


def test_bigger_network_keeps_the_gpus() -> None:
    effect = next(e for e in plan_of(scenario("g6e.xlarge")).levers if e.lever == "bigger-network")
    assert effect.usd_per_hour is not None
    assert effect.usd_per_hour > 0


# --- when not to
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"disk": Disk(kind="gp3")}, "soci-slow-disk"),
        ({"pull": PullCase(unpacks=1)}, "soci-untuned"),
        ({"weights": WeightsCase(path="baked", source="disk")}, "baked-weights"),
        ({"weights": WeightsCase(source="disk", concurrency=1)}, "streaming-local"),
        ({"engine": EngineCase(eager=True)}, "eager"),
        ({"image": replace(IMAGE, registry="docker-hub")}, "pull-through-nat"),
        ({"pull": PullCase(snapshotter="overlayfs", unpacks=12, downloads=20)}, "containerd-parallel"),
        ({"instance": instance("g6e.24xlarge")}, "one-network-card"),
        ({"instance": instance("g6e.2xlarge")}, "burst-network"),
        (
            {"instance": instance("g6e.2xlarge"), "disk": Disk(kind="gp3", throughput_mib_s=1000, iops=4000)},
            "ebs-above-instance",
        ),
        ({"instance": instance("p5e.48xlarge")}, "no-price"),
    ],
)
def test_advice(changes: dict[str, object], code: str) -> None:
    plan = plan_of(scenario(**changes))
    assert code in codes(plan)


def test_a_good_plan_says_little() -> None:
    layers = tuple(LayerCase(bytes=IMAGE.bytes / 12) for _ in range(12))
    plan = plan_of(scenario("p5.4xlarge", image=replace(IMAGE, layers=layers), host=HostCase(disk_mb_s=2000)))
    assert plan.findings == []
    assert plan.fits


def test_slow_soci_says_both_times() -> None:
    plan = plan_of(scenario(disk=Disk(kind="gp3")))
    message = next(finding.message for finding in plan.findings if finding.code == "soci-slow-disk")
    assert " s against " in message


def test_an_objective_names_the_phase_to_blame() -> None:
    plan = plan_of(scenario(), slo_s=30)
    finding = next(finding for finding in plan.findings if finding.code == "slo")
    assert f"`{plan.budget.longest}`" in finding.message
    assert plan.within_slo is False
    assert plan_of(scenario(), slo_s=10_000).within_slo is True
    assert plan_of(scenario()).within_slo is None


def test_a_contradiction_is_no_plan() -> None:
    with pytest.raises(BadInput, match=r"model\.tensor_parallel"):
        plan_of(scenario(model=ModelCase(weights_bytes=1e9, layers=8, parameters=5e8, tensor_parallel=2)))


def test_today_is_slower_than_the_blueprint() -> None:
    tuned = scenario("g6e.4xlarge", engine=EngineCase(compile_cache="hit"))
    assert budget_of(today(tuned)).total.expected_s > 1.8 * budget_of(tuned).total.expected_s


# --- cost
# ------------------------------------------------------------------------------------------------------------------


def test_a_start_costs_node_time_tail_and_metered_bytes() -> None:
    case = scenario(image=replace(IMAGE, registry="docker-hub"), disk=Disk(kind="nvme"))
    budget = budget_of(case)
    cost = cost_of(case, budget)
    billed = budget.total.expected_s - UNBILLED_S
    assert cost.node_usd == pytest.approx(3.00424 * billed / 3600)
    assert cost.idle_tail_usd == pytest.approx(3.00424 / 6)
    assert cost.metered_usd == pytest.approx(0.4326, abs=1e-4)  # 9.6 GB through NAT
    assert cost.usd_per_start == pytest.approx(
        cost.node_usd + cost.idle_tail_usd + cost.metered_usd + cost.requests_usd
    )
    assert cost.usd_per_hour == pytest.approx(sum(item.usd_per_hour or 0 for item in cost.items))


def test_a_private_registry_meters_nothing() -> None:
    case = scenario()
    assert cost_of(case, budget_of(case)).metered_bytes == 0


def test_no_price_means_no_cost_rather_than_none() -> None:
    case = scenario("p5e.48xlarge")
    cost = cost_of(case, budget_of(case))
    assert cost.usd_per_hour is None
    assert cost.usd_per_start is None
    assert cost.break_even_gap_s is None
    priced = cost_of(case, budget_of(case), Terms(usd_per_hour=60))
    assert priced.usd_per_hour is not None
    assert priced.usd_per_start is not None


def test_break_even_is_all_that_a_start_costs_at_the_price_of_a_node() -> None:
    assert break_even_gap_s(3.6, 0.8, Terms(breach_usd=1.0)) == pytest.approx(1_800)
    # $0.951 a start and $2.24208 an hour: 25 min 27 s.
    assert break_even_gap_s(2.24208, 0.95128, Terms()) == pytest.approx(25 * 60 + 27, abs=1)


@settings(max_examples=40, deadline=None)
@given(
    price=st.floats(0.1, 200),
    tail=st.floats(0, 7_200),
    breach=st.floats(0, 100),
    registry=st.sampled_from(["ecr", "docker-hub"]),
    egress=st.booleans(),
)
def test_a_pause_of_break_even_length_costs_what_it_saves(
    price: float, tail: float, breach: float, registry: Literal["ecr", "docker-hub"], *, egress: bool
) -> None:
    """Whatever a start is billed for, the sentence about pauses counts it too."""
    case = scenario(image=replace(IMAGE, registry=registry))
    terms = Terms(usd_per_hour=price, idle_tail_s=tail, breach_usd=breach, private_egress=egress)
    cost = cost_of(case, STARTED, terms)
    assert cost.usd_per_start is not None
    assert cost.break_even_gap_s is not None
    saved_usd = cost.break_even_gap_s * price / 3600
    assert saved_usd == pytest.approx(cost.usd_per_start + breach)
    assert cost.break_even_gap_s >= tail


def test_on_a_node_that_stays_a_pause_saves_nothing() -> None:
    case = scenario(node=NodeCase(warm=True))
    cost = cost_of(case, budget_of(case))
    assert cost.idle_tail_usd == 0
    assert cost.break_even_gap_s is None


def test_the_month_follows_the_schedule() -> None:
    case = scenario()
    budget = budget_of(case)
    cost = cost_of(case, budget, Terms(hours_per_month=200, starts_per_month=20))
    assert cost.usd_per_hour is not None
    assert cost.usd_per_start is not None
    assert cost.usd_per_month == pytest.approx(200 * cost.usd_per_hour + 20 * cost.usd_per_start)


@settings(max_examples=30, deadline=None)
@given(price=st.floats(0.1, 200), breach=st.floats(0, 100))
def test_a_dearer_breach_never_shortens_the_gap(price: float, breach: float) -> None:
    calm, angry = Terms(), Terms(breach_usd=breach)
    assert break_even_gap_s(price, 100, angry) >= break_even_gap_s(price, 100, calm)


# --- search
# ----------------------------------------------------------------------------------------------------------------


def test_every_gpu_type_is_tried_and_the_fitting_ones_come_first() -> None:
    found = candidates(LLAMA, Wish(image=IMAGE))
    assert len(found) == sum(1 for kind in instances().values() if kind.gpus)
    flags = [each.fits for each in found]
    assert flags == sorted(flags, reverse=True)
    assert all(any(f.level == "error" for f in each.findings) for each in found if not each.fits)


def test_sorted_by_what_is_asked() -> None:
    by_cost = [each for each in candidates(LLAMA, Wish(image=IMAGE)) if each.fits]
    prices = [math.inf if each.cost.usd_per_hour is None else each.cost.usd_per_hour for each in by_cost]
    assert prices == sorted(prices)
    by_start = [each for each in candidates(LLAMA, Wish(image=IMAGE), order="cold-start") if each.fits]
    starts = [each.budget.total.expected_s for each in by_start]
    assert starts == sorted(starts)


def test_the_cheapest_within_the_objective() -> None:
    found = candidates(LLAMA, Wish(image=IMAGE))
    assert cheapest_within(found, None) is not None
    tight = cheapest_within(found, 250)
    loose = cheapest_within(found, 2_000)
    assert tight is not None
    assert loose is not None
    assert tight.budget.total.expected_s <= 250
    assert (loose.instance.usd_per_hour or 0) <= (tight.instance.usd_per_hour or 0)
    assert cheapest_within(found, 1) is None


def test_the_smallest_parallel_size_that_fits_is_taken() -> None:
    found = {
        each.instance.name: each for each in candidates(model("meta-llama/Llama-3.3-70B-Instruct"), Wish(image=IMAGE))
    }
    assert found["g6e.12xlarge"].scenario.ranks == 4
    assert found["p5en.48xlarge"].scenario.ranks == 2
    assert found["p5en.48xlarge"].replicas_per_node == 4
    assert not found["g6e.4xlarge"].fits


@pytest.mark.parametrize("name", sorted(known_models()))
def test_every_shipped_model_fits_somewhere(name: str) -> None:
    assert any(each.fits for each in candidates(model(name), Wish(image=IMAGE)))
