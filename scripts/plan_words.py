"""What a plan says in sentences, the same on a terminal and on a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from budget.cost import DEFAULT_TERMS
from budget.feasibility import sequences_that_fit, serving_of
from budget.findings import Level
from budget.instances import instances
from budget.levers import Effect
from budget.plan import Plan
from budget.price import prices
from scripts.figures import dollars, seconds

LEVEL_WORDS: Mapping[Level, str] = {"error": "does not fit", "warning": "warning", "info": "info"}
"""Level of a finding → how it is told. `error:` is what the command itself says when it cannot answer."""
SHOWN_USD = 0.0005
"""A tenth of a cent is shown; less is nothing."""


def verdict(plan: Plan) -> str:
    """Whether it fits."""
    return "It fits." if plan.fits else "It does not fit."


def room(plan: Plan) -> str:
    """How many sequences of full length the GPUs hold at once; empty when it does not fit or nobody knows."""
    sequences = sequences_that_fit(plan.scenario)
    if not plan.fits or sequences is None:
        return ""
    tokens = serving_of(plan.scenario).context
    return f"Room for {sequences:,} sequence{'' if sequences == 1 else 's'} of {tokens:,} tokens at once."


def first_start(plan: Plan) -> Iterator[str]:
    """That the first start has a higher high, if it has."""
    high = plan.first_high_s
    if high is not None and high > plan.budget.total.high_s:
        yield f"The first start on a new image or model compiles: up to {seconds(high)}."


# --- money ------------------------------------------------------------------------------------------------------------


def cost_lines(plan: Plan) -> Iterator[str]:
    """What an hour costs, what a start costs, each with its parts, and when scaling to zero pays."""
    yield _hour(plan)
    yield _start(plan)
    yield from _month(plan)
    if plan.cost.break_even_gap_s is not None:
        yield f"Scaling to zero pays for pauses longer than {seconds(plan.cost.break_even_gap_s)}."


def _hour(plan: Plan) -> str:
    cost, nodes = plan.cost, plan.terms.nodes
    total, node, around = cost.usd_per_hour, cost.node_usd_per_hour, cost.around_usd_per_hour
    if total is None or node is None or around is None:
        return f"No list price per hour ({price_source(plan)})."
    parts = [(node, "for the node" if nodes == 1 else f"for {nodes} nodes")]
    parts += [(total - node - around, "for volumes and storage"), (around, "for the environment")]
    return f"{dollars(total)} per hour: {_joined(parts)} ({price_source(plan)})."


def _start(plan: Plan) -> str:
    cost, terms = plan.cost, plan.terms
    if cost.usd_per_start is None or cost.node_usd is None or cost.idle_tail_usd is None:
        return "No list price per cold start."
    parts = [(cost.node_usd, "node time"), (cost.idle_tail_usd, f"idle tail of {seconds(terms.idle_tail_s)}")]
    parts += [(cost.metered_usd, f"for {cost.metered_bytes / 1e9:.1f} GB through NAT")]
    parts += [(cost.requests_usd, "S3 requests")]
    late = f"; a late one costs {dollars(terms.breach_usd)} more" if terms.breach_usd else ""
    return f"{dollars(cost.usd_per_start)} per cold start: {_joined(parts)}{late}."


def _month(plan: Plan) -> Iterator[str]:
    cost, terms = plan.cost, plan.terms
    asked = (terms.hours_per_month, terms.starts_per_month)
    if cost.usd_per_month is not None and asked != (DEFAULT_TERMS.hours_per_month, DEFAULT_TERMS.starts_per_month):
        yield (
            f"{dollars(cost.usd_per_month)} per month of {terms.hours_per_month:g} h and"
            f" {terms.starts_per_month:g} cold starts."
        )


def _joined(parts: list[tuple[float, str]]) -> str:
    shown = [f"{dollars(usd)} {words}" for usd, words in parts if usd >= SHOWN_USD]
    return ", ".join(shown) or "nothing that shows"


def list_prices() -> str:
    """Region and days of the shipped lists."""
    table = prices()
    days = sorted({each.priced_on for each in instances().values() if each.priced_on} - {table.priced_on})
    nodes = f"; nodes {days[0]} to {days[-1]}" if len(days) > 1 else f"; nodes {days[0]}" if days else ""
    return f"list prices of {table.region}, {table.priced_on}{nodes}"


def price_source(plan: Plan) -> str:
    """Region and day of the prices that were counted with."""
    table, node = prices(), plan.scenario.instance
    if plan.terms.usd_per_hour is not None:
        return f"the node's price as given, list prices of {table.region}, {table.priced_on}, for the rest"
    if not node.priced_on or node.priced_on == table.priced_on:
        return f"list prices of {table.region}, {table.priced_on}"
    return f"list prices of {table.region}, {node.priced_on}; all but the node {table.priced_on}"


def signed_seconds(saves_s: float) -> str:
    """Seconds saved; a lever that costs time says so."""
    return f"{seconds(-saves_s)} more" if saves_s < -0.05 else seconds(max(0.0, saves_s))  # noqa: PLR2004 - a tenth is shown


def signed_dollars(value: float | None) -> str:
    """A change of the hourly bill."""
    if value is None:
        return "unknown"
    return "no change" if abs(value) < SHOWN_USD else f"{'+' if value > 0 else '-'}${abs(value):,.3f}"


def hourly_change(effect: Effect) -> str:
    """What a lever does to the hourly bill; where no table has its price, how it is billed."""
    return f"billed {effect.billed}" if effect.billed else signed_dollars(effect.usd_per_hour)
