"""Which instances could serve a model: every type tried, with the reason where it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from budget.coefficients import Coefficients, coefficients
from budget.cost import DEFAULT_TERMS, Cost, Terms, cost_of
from budget.disk import SOCI_FLOOR_MIB_S, Disk, disk_rate
from budget.feasibility import feasibility, fits, gpu_memory_of, parallel_sizes, scenario_with_facts
from budget.findings import Finding
from budget.instances import MIB_S_TO_MB_S, Instance, instances
from budget.memory import streamer_limit_bytes
from budget.models import ModelFacts
from budget.phases import Budget, budget_of
from budget.scenario import EngineCase, ImageCase, ModelCase, PullCase, Scenario, WeightsCase
from budget.streamer import rank_connections, streamer_clients


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What the model shall do.

    Attributes:
        context: tokens of the longest sequence; None takes 8,192 or the model's own, if shorter.
        concurrency: sequences of that length at once.
        slo_s: what a cold start may take.
        image: the engine image.
    """

    image: ImageCase
    context: int | None = None
    concurrency: int = 1
    slo_s: float | None = None
    engine: EngineCase = field(default_factory=EngineCase)


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One instance type for one model.

    Attributes:
        scenario: the start that was planned.
        replicas_per_node: how many fit by GPUs.
    """

    instance: Instance
    scenario: Scenario
    budget: Budget
    cost: Cost
    findings: Sequence[Finding]
    replicas_per_node: int

    @property
    def fits(self) -> bool:
        """Nothing refuses."""
        return fits(self.findings)


Order = Literal["cost", "cold-start"]


def candidates(
    facts: ModelFacts,
    wish: Wish,
    *,
    order: Order = "cost",
    terms: Terms = DEFAULT_TERMS,
    factors: Coefficients | None = None,
) -> list[Candidate]:
    """Every GPU instance type for a model: those that fit first, then by what is asked for.

    Each is planned as this project would deploy it: SOCI tuned, weights streamed, the faster of NVMe and a tuned gp3,
    and the smallest tensor parallel size that fits.
    """
    used = factors or coefficients()
    found = [_candidate(facts, wish, kind, terms, used) for kind in instances().values() if kind.gpus]
    return sorted(found, key=lambda each: (not each.fits, *_rank(each, order), each.instance.name))


def cheapest_within(found: Sequence[Candidate], slo_s: float | None) -> Candidate | None:
    """The cheapest one that fits and keeps the objective."""
    priced = [
        each
        for each in found
        if each.fits
        and each.instance.usd_per_hour is not None
        and (slo_s is None or each.budget.total.expected_s <= slo_s)
    ]
    return min(priced, key=lambda each: each.instance.usd_per_hour or 0.0, default=None)


def _rank(candidate: Candidate, order: Order) -> tuple[float, float]:
    hourly = candidate.cost.usd_per_hour
    price = hourly if hourly is not None else float("inf")
    start = candidate.budget.total.expected_s
    return (price, start) if order == "cost" else (start, price)


def _candidate(facts: ModelFacts, wish: Wish, kind: Instance, terms: Terms, factors: Coefficients) -> Candidate:
    scenario = _smallest_fitting(facts, wish, kind, factors)
    budget = budget_of(scenario, factors)
    return Candidate(
        instance=kind,
        scenario=scenario,
        budget=budget,
        cost=cost_of(scenario, budget, terms),
        findings=feasibility(scenario, factors),
        replicas_per_node=max(1, kind.kubernetes_gpus // scenario.ranks),
    )


def _smallest_fitting(facts: ModelFacts, wish: Wish, kind: Instance, factors: Coefficients) -> Scenario:
    base = deployed(facts, wish, kind, 1)
    sizes = parallel_sizes(base, kind) or [1]
    for ranks in sizes:
        tried = deployed(facts, wish, kind, ranks)
        if gpu_memory_of(tried).fits and fits(feasibility(tried, factors)):
            return tried
    return deployed(facts, wish, kind, sizes[-1])


def deployed(facts: ModelFacts, wish: Wish, kind: Instance, ranks: int) -> Scenario:
    """The scenario of this model on this instance as this project deploys it."""
    clients, distributed = streamer_clients(kind.plan_network_gbps, ranks), ranks > 1
    scenario = Scenario(
        instance=kind,
        image=wish.image,
        model=ModelCase(
            weights_bytes=facts.weights_bytes,
            layers=facts.layers,
            parameters=facts.parameters,
            tensor_parallel=ranks,
            context_tokens=wish.context,
            concurrency=wish.concurrency,
        ),
        pull=PullCase(unpacks=min(12, max(2, kind.vcpu // 2))),
        disk=faster_disk(kind),
        weights=WeightsCase(
            concurrency=rank_connections(kind, clients=clients, ranks=ranks, distributed=distributed),
            clients=clients,
            distributed=distributed,
            files=facts.files,
            memory_limit_bytes=streamer_limit_bytes(facts, kind, ranks),
        ),
        engine=wish.engine,
    )
    return scenario_with_facts(scenario, facts)


def faster_disk(kind: Instance) -> Disk:
    """NVMe, unless a tuned gp3 behind this instance writes faster."""
    ceiling = kind.ebs_max_mb_s / MIB_S_TO_MB_S
    throughput = float(min(1_000, max(SOCI_FLOOR_MIB_S, int(ceiling))))
    tuned = Disk(kind="gp3", throughput_mib_s=throughput, iops=max(3_000.0, 4 * throughput))
    if not kind.nvme_disks:
        return tuned
    local = Disk(kind="nvme")
    faster = disk_rate(local, kind).sustained_mb_s >= disk_rate(tuned, kind).sustained_mb_s
    return local if faster else tuned
