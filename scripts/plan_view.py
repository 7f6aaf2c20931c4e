"""A plan for a terminal and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from budget.estimate import Estimate
from budget.levers import Effect
from budget.models import ModelFacts
from budget.plan import Plan
from budget.search import Candidate
from scripts.scenario_document import document_of
from scripts.waterfall import dollars, seconds, signed_dollars, signed_seconds

BAR_CELLS = 28
LEVELS = {"error": "bold red", "warning": "yellow", "info": "dim"}
SHOWN_LEVERS = 8


# --- machines ---------------------------------------------------------------------------------------------------------


def document(plan: Plan) -> dict[str, Any]:
    """The plan as `--json` prints it. Seconds and dollars are not rounded."""
    return {
        "name": plan.name,
        "phases": [{"phase": name, **_estimate(phase)} for name, phase in plan.budget.phases.items()],
        "total": _estimate(plan.budget.total),
        "fits": plan.fits,
        "within_slo": plan.within_slo,
        "slo_s": plan.slo_s,
        "findings": [asdict(finding) for finding in plan.findings],
        "cost": {**asdict(plan.cost), "items": [asdict(item) for item in plan.cost.items]},
        "levers": [asdict(effect) for effect in plan.levers],
        "scenario": document_of(plan.scenario),
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "low_s": estimate.low_s,
        "expected_s": estimate.expected_s,
        "high_s": estimate.high_s,
        "bound_by": estimate.bound_by,
        "detail": dict(estimate.detail),
    }


def candidates_document(
    facts: ModelFacts, found: Sequence[Candidate], cheapest: Candidate | None, slo_s: float | None
) -> dict[str, Any]:
    """The search as `--json` prints it: every GPU instance type, those that fit first."""
    return {
        "model": {
            "name": facts.name,
            "revision": facts.revision,
            "weights_bytes": facts.weights_bytes,
            "parameters": facts.parameters,
            "quantization": facts.quantization,
            "kv_bytes_per_token": facts.kv_bytes_per_token(),
            "source": facts.source,
        },
        "slo_s": slo_s,
        "cheapest_within_slo": None if cheapest is None else cheapest.instance.name,
        "candidates": [
            {
                "instance": each.instance.name,
                "fits": each.fits,
                "tensor_parallel": each.scenario.ranks,
                "replicas_per_node": each.replicas_per_node,
                "total": _estimate(each.budget.total),
                "usd_per_hour": each.cost.usd_per_hour,
                "usd_per_start": each.cost.usd_per_start,
                "within_slo": None if slo_s is None else each.budget.total.expected_s <= slo_s,
                "findings": [asdict(finding) for finding in each.findings],
            }
            for each in found
        ],
    }


# --- people -----------------------------------------------------------------------------------------------------------


def show(plan: Plan, console: Console, *, all_levers: bool = False) -> None:
    """Prints the plan: phases, verdict, cost, findings, and the levers that save most, or all of them."""
    total = plan.budget.total
    console.print(
        Text.assemble(
            (f"{plan.name}: ", "bold"),
            (seconds(total.expected_s), "bold"),
            f"  (between {seconds(total.low_s)} and {seconds(total.high_s)}) on {plan.scenario.instance.name}",
        )
    )
    console.print(_phases(plan))
    for line in _bindings(plan):
        console.print(line)
    verdict = "fits" if plan.fits else "does not fit"
    console.print(
        Text.assemble(
            (f"It {verdict}. ", "bold green" if plan.fits else "bold red"),
            f"{dollars(plan.cost.usd_per_hour)} per hour, {dollars(plan.cost.usd_per_start)} per cold start",
            _warm_words(plan),
        )
    )
    for finding in plan.findings:
        fix = f" {finding.fix}" if finding.fix else ""
        console.print(Text.assemble((f"{finding.level}: ", LEVELS[finding.level]), f"{finding.message}.{fix}"))
    if plan.levers:
        shown = plan.levers if all_levers else plan.levers[:SHOWN_LEVERS]
        console.print(_levers(shown))
        if more := len(plan.levers) - len(shown):
            console.print(Text(f"{more} more with --levers", style="dim"))


def _warm_words(plan: Plan) -> str:
    gap = plan.cost.break_even_gap_s
    return "" if gap is None else f"; scaling to zero pays for pauses longer than {seconds(gap)}"


def _phases(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head, right in (("phase", False), ("expected", True), ("low - high", True), ("", False)):
        table.add_column(head, justify="right" if right else "left", no_wrap=True)
    longest = max(1e-9, plan.budget.total.expected_s)
    begin = 0.0
    for name, phase in plan.budget.phases.items():
        band = f"{seconds(phase.low_s)} - {seconds(phase.high_s)}" if phase.expected_s else ""
        value = seconds(phase.expected_s) if phase.expected_s else "none"
        table.add_row(Text(name, style="bold"), value, band, _bar(begin / longest, phase.expected_s / longest))
        begin += phase.expected_s
    return table


def _bindings(plan: Plan) -> Iterator[Text]:
    for name, phase in plan.budget.phases.items():
        if phase.expected_s:
            yield Text.assemble((f"  {name:8}", "bold"), (f"bound by {phase.bound_by}", "dim"))


def _bar(begin: float, share: float) -> str:
    start, cells = round(begin * BAR_CELLS), round(share * BAR_CELLS)
    cells = max(cells, 1 if share > 0 else 0)
    start = min(start, BAR_CELLS - cells)
    return " " * start + "\u2588" * cells + " " * (BAR_CELLS - start - cells)


def _levers(levers: Sequence[Effect]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", title="Levers not pulled yet", title_justify="left")
    table.add_column("saves", justify="right", no_wrap=True)
    table.add_column("per hour", justify="right", no_wrap=True)
    table.add_column("phase", no_wrap=True)
    table.add_column("lever")
    for effect in levers:
        table.add_row(signed_seconds(effect.saves_s), signed_dollars(effect.usd_per_hour), effect.phase, effect.what)
    return table


def show_candidates(
    facts: ModelFacts, found: Sequence[Candidate], cheapest: Candidate | None, console: Console
) -> None:
    """Prints which instances could serve the model, and why the others cannot."""
    size = f"{facts.parameters / 1e9:.1f} B parameters, {facts.weights_bytes / 1e9:.1f} GB"
    console.print(Text.assemble((facts.name, "bold"), f": {size}, {facts.quantization or '16 bit'}"))
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in ("", "instance", "GPUs", "TP", "start s", "low-high", "$/h", "$/start"):
        right = head in {"TP", "start s", "low-high", "$/h", "$/start"}
        table.add_column(head, justify="right" if right else "left", no_wrap=True)
    for each in (candidate for candidate in found if candidate.fits):
        table.add_row(*_candidate_row(each, cheapest))
    console.print(table)
    console.print(Text("* the cheapest that fits within the objective; TP: GPUs one replica spreads over", style="dim"))
    unfit = [each for each in found if not each.fits]
    if unfit:
        console.print(Text(f"{len(unfit)} types do not fit:", style="dim"))
    for each in unfit:
        first = next(finding for finding in each.findings if finding.level == "error")
        console.print(Text(f"  {each.instance.name}: {first.message}. {first.fix}", style="dim"))


def _candidate_row(each: Candidate, cheapest: Candidate | None) -> tuple[str, ...]:
    total, instance = each.budget.total, each.instance
    return (
        "*" if each is cheapest else "",
        instance.name,
        f"{instance.gpus:g} {instance.gpu}",
        str(each.scenario.ranks),
        f"{total.expected_s:.0f}",
        f"{total.low_s:.0f}-{total.high_s:.0f}",
        "-" if each.cost.usd_per_hour is None else f"{each.cost.usd_per_hour:.2f}",
        "-" if each.cost.usd_per_start is None else f"{each.cost.usd_per_start:.2f}",
    )
