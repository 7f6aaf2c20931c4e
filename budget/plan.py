"""A plan: the budget of a scenario, whether it fits, what it costs, and which lever to pull next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from budget.advice import advice
from budget.coefficients import Coefficients, coefficients
from budget.cost import DEFAULT_TERMS, Cost, Terms, cost_of
from budget.disk import Disk
from budget.feasibility import feasibility, fits
from budget.findings import Finding
from budget.levers import Effect, effects
from budget.phases import Budget, budget_of
from budget.price import CostItem
from budget.scenario import PullCase, Scenario, WeightsCase


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Everything `coldstart plan` has to say about one scenario.

    Attributes:
        name: how to call it beside another plan.
        slo_s: what a cold start may take; None when nobody said.
        terms: how it is bought and used.
        first_high_s: the most that the first start of a new image or model takes, which finds no compile cache; None
            when every start is alike.
    """

    name: str
    scenario: Scenario
    budget: Budget
    findings: Sequence[Finding]
    cost: Cost
    levers: Sequence[Effect]
    slo_s: float | None = None
    terms: Terms = DEFAULT_TERMS
    first_high_s: float | None = None

    @property
    def fits(self) -> bool:
        """Nothing keeps it from working."""
        return fits(self.findings)

    @property
    def within_slo(self) -> bool | None:
        """The expected total keeps the objective; None without one."""
        return None if self.slo_s is None else self.budget.total.expected_s <= self.slo_s


def plan_of(
    scenario: Scenario,
    *,
    name: str = "scenario",
    terms: Terms = DEFAULT_TERMS,
    factors: Coefficients | None = None,
    slo_s: float | None = None,
    extra_costs: Sequence[CostItem] = (),
) -> Plan:
    """Plans a scenario.

    Args:
        scenario: what starts.
        name: how to call it.
        terms: how it is bought and used.
        factors: machine factors; None takes the shipped ones.
        slo_s: what a start may take.
        extra_costs: hourly lines of the stack around it.

    Raises:
        BadInput: values that contradict each other.
    """
    used = factors or coefficients()
    checked = scenario.checked
    budget = budget_of(checked, used)
    return Plan(
        name=name,
        scenario=checked,
        budget=budget,
        findings=[*feasibility(checked, used), *_slo(budget, slo_s), *advice(checked, budget, used, terms)],
        cost=cost_of(checked, budget, terms, extra_costs),
        levers=effects(checked, budget, used, terms),
        slo_s=slo_s,
        terms=terms,
        first_high_s=_first_high_s(checked, budget, used),
    )


def _first_high_s(scenario: Scenario, budget: Budget, factors: Coefficients) -> float | None:
    """Phase by phase the higher of both: what probes and timeouts count with."""
    if scenario.engine.eager or scenario.engine.compile_cache != "hit":
        return None
    first = budget_of(replace(scenario, engine=replace(scenario.engine, compile_cache="miss")), factors)
    return sum(max(phase.high_s, first.phases[name].high_s) for name, phase in budget.phases.items())


def _slo(budget: Budget, slo_s: float | None) -> list[Finding]:
    total = budget.total
    if slo_s is None or total.expected_s <= slo_s:
        return []
    blamed = budget.longest
    phase = budget.phases[blamed]
    return [
        Finding(
            code="slo",
            level="warning",
            message=f"the expected start of {total.expected_s:.0f} s exceeds the objective of {slo_s:.0f} s;"
            f" `{blamed}` takes"
            f" {phase.expected_s:.0f} s of it: {phase.bound_by}",
            fix="Pull the first lever of the list, or raise the objective.",
        )
    ]


def today(scenario: Scenario) -> Scenario:
    """The same model and node the way most clusters start it: nothing tuned, nothing cached.

    Default containerd (3 downloads, one unpack), the default gp3 volume, weights downloaded from the hub before they
    are loaded, no compile cache.
    """
    return replace(
        scenario,
        pull=PullCase(
            snapshotter="overlayfs",
            downloads=3,
            unpacks=1,
            chunk_bytes=None,
            decompressor="unpigz",
            discard=False,
        ),
        disk=Disk(kind="gp3"),
        disk_gib=scenario.disk_gib,
        weights=WeightsCase(path="download", source="hub", files=scenario.weights.files),
        engine=replace(scenario.engine, compile_cache="miss", eager=False, capture_sizes=67, startup_plan=False),
        image=replace(scenario.image, registry="docker-hub", cached=False),
    )
