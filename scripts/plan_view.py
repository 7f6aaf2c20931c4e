"""A plan for a terminal and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from budget.counted import counted
from budget.estimate import Estimate
from budget.feasibility import sequences_that_fit, serving_of
from budget.levers import Effect
from budget.models import ModelFacts
from budget.plan import Plan
from budget.search import Candidate
from scripts.figures import seconds
from scripts.plan_words import (
    LEVEL_WORDS,
    cost_lines,
    first_start,
    hourly_change,
    list_prices,
    price_source,
    room,
    signed_seconds,
    verdict,
)
from scripts.scenario_document import document_of

BAR_CELLS, SHORTEST_BAR = 28, 6
GAP = 2
"""Cells between the columns of a table without a box."""
LEVELS = {"error": "bold red", "warning": "yellow", "info": "dim"}
SHOWN_LEVERS = 8


# --- machines ---------------------------------------------------------------------------------------------------------


def document(plan: Plan) -> dict[str, Any]:
    """The plan as `--json` prints it. Seconds and dollars are not rounded."""
    return {
        "name": plan.name,
        "phases": [{"phase": name, **_estimate(phase)} for name, phase in plan.budget.phases.items()],
        "total": _estimate(plan.budget.total),
        "first_start_high_s": plan.first_high_s,
        "fits": plan.fits,
        "sequences_at_once": sequences_that_fit(plan.scenario),
        "within_slo": plan.within_slo,
        "slo_s": plan.slo_s,
        "findings": [asdict(finding) for finding in plan.findings],
        "cost": {
            **asdict(plan.cost),
            "items": [asdict(item) for item in plan.cost.items],
            "prices": price_source(plan),
        },
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
                "sequences_at_once": sequences_that_fit(each.scenario),
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
    for line in first_start(plan):
        console.print(Text(line))
    console.print(_phases(plan, console.width))
    for line in _bindings(plan):
        console.print(line)
    console.print(Text.assemble((verdict(plan), "bold green" if plan.fits else "bold red"), f" {room(plan)}".rstrip()))
    for line in cost_lines(plan):
        console.print(Text(line))
    for finding in plan.findings:
        fix = f" {finding.fix}" if finding.fix else ""
        words = f"{LEVEL_WORDS[finding.level]}: "
        console.print(Text.assemble((words, LEVELS[finding.level]), f"{finding.message}.{fix}"))
    if plan.levers:
        shown = plan.levers if all_levers else plan.levers[:SHOWN_LEVERS]
        console.print(_levers(shown))
        if more := len(plan.levers) - len(shown):
            console.print(Text(f"{more} more with --levers", style="dim"))


def _phases(plan: Plan, width: int) -> Table:
    """One row for each phase; what is left of the width is the bar's, and too little of it is none."""
    rows = [
        (
            name,
            seconds(phase.expected_s) if phase.expected_s else "none",
            f"{seconds(phase.low_s)} - {seconds(phase.high_s)}" if phase.expected_s else "",
        )
        for name, phase in plan.budget.phases.items()
    ]
    heads = ("phase", "expected", "low - high")
    cells = min(BAR_CELLS, width - _width(heads, rows) - GAP)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head, right in zip(heads, (False, True, True), strict=True):
        table.add_column(head, justify="right" if right else "left", no_wrap=True)
    if cells >= SHORTEST_BAR:
        table.add_column("", no_wrap=True)
    longest, begin = max(1e-9, plan.budget.total.expected_s), 0.0
    for (name, *figures), phase in zip(rows, plan.budget.phases.values(), strict=True):
        bar = [_bar(begin / longest, phase.expected_s / longest, cells)] if cells >= SHORTEST_BAR else []
        table.add_row(Text(name, style="bold"), *figures, *bar)
        begin += phase.expected_s
    return table


def _width(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Cells that a table takes."""
    widest = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    return sum(widest) + GAP * (len(widest) - 1)


def _bindings(plan: Plan) -> Iterator[Text]:
    for name, phase in plan.budget.phases.items():
        if phase.expected_s:
            yield Text.assemble((f"  {name:8}", "bold"), (f"bound by {phase.bound_by}", "dim"))


def _bar(begin: float, share: float, room: int) -> str:
    start, cells = round(begin * room), round(share * room)
    cells = max(cells, 1 if share > 0 else 0)
    start = min(start, room - cells)
    return " " * start + "\u2588" * cells + " " * (room - start - cells)


def _levers(levers: Sequence[Effect]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", title="Levers not pulled yet", title_justify="left")
    table.add_column("saves", justify="right", no_wrap=True)
    table.add_column("per hour", justify="right", no_wrap=True)
    table.add_column("phase", no_wrap=True)
    table.add_column("lever")
    for effect in levers:
        table.add_row(signed_seconds(effect.saves_s), hourly_change(effect), effect.phase, effect.what)
    return table


HEADS = ("", "instance", "GPUs", "TP", "start s", "low-high", "$/h", "$/start")
LEFT = {"", "instance", "GPUs"}
LEFT_OUT = ((), ("TP",), ("GPUs",), ("GPUs", "TP"), ("GPUs", "TP", "low-high"))
"""Columns that go where the terminal is too narrow for all, the best choice first: a figure is whole or not there."""


def show_candidates(
    facts: ModelFacts, found: Sequence[Candidate], cheapest: Candidate | None, console: Console
) -> None:
    """Prints which instances could serve the model, and why the others cannot."""
    size = f"{facts.parameters / 1e9:.1f} B parameters, {facts.weights_bytes / 1e9:.1f} GB"
    console.print(Text.assemble((facts.name, "bold"), f": {size}, {facts.quantization or '16 bit'}"))
    rows = [_candidate_row(each, cheapest) for each in found if each.fits]
    shown = _columns_that_fit(rows, console.width)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in shown:
        table.add_column(head, justify="left" if head in LEFT else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(cell for head, cell in zip(HEADS, row, strict=True) if head in shown))
    console.print(table)
    for line in _legend(found, shown):
        console.print(Text(line, style="dim"))
    unfit = [each for each in found if not each.fits]
    if unfit:
        console.print(Text(f"{len(unfit)} types do not fit:", style="dim"))
    for each in unfit:
        first = next(finding for finding in each.findings if finding.level == "error")
        console.print(Text(f"  {each.instance.name}: {first.message}. {first.fix}", style="dim"))


def _columns_that_fit(rows: Sequence[Sequence[str]], width: int) -> Sequence[str]:
    shown: Sequence[str] = HEADS
    for gone in LEFT_OUT:
        shown = [head for head in HEADS if head not in gone]
        kept = [[cell for head, cell in zip(HEADS, row, strict=True) if head in shown] for row in rows]
        if _width(shown, kept) <= width:
            break
    return shown


def _legend(found: Sequence[Candidate], shown: Sequence[str]) -> Iterator[str]:
    ranks = "; TP: GPUs one replica spreads over" if "TP" in shown else ""
    yield f"* the cheapest that fits within the objective{ranks}"
    if found:
        model = found[0].scenario.model
        asked = serving_of(found[0].scenario)
        yield f"fits: {counted(model.concurrency, 'sequence')} of {asked.context:,} tokens at once; {list_prices()}"
    if gone := [head for head in HEADS if head not in shown]:
        yield f"too narrow for: {', '.join(gone)}"


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
