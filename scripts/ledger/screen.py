"""A ledger on a terminal: phases beside the budget, proofs, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scripts.ledger.advice import next_step
from scripts.ledger.baseline import Regression
from scripts.ledger.comparison import Difference
from scripts.ledger.facts import PHASES
from scripts.ledger.record import Ledger
from scripts.ledger.times import shown
from scripts.waterfall import seconds

BAR = 30
COLOURS = {
    "node": "bright_black",
    "pull": "blue",
    "start": "magenta",
    "weights": "green",
    "engine": "yellow",
    "warmup": "red",
}
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")
STATES = {"on": "green", "off": "red", "unknown": "bright_black"}


def show(ledger: Ledger, console: Console) -> None:
    """One start, whole."""
    console.print()
    console.rule(Text(f"{ledger.model}: {seconds(ledger.wall_clock_s)} to {ledger.state}", style="bold"), align="left")
    where = ", ".join(
        part for part in (ledger.pod, ledger.labels.get("instance", ""), shown(ledger.asked_at_s)) if part
    )
    console.print(Text(where, style="bright_black"))
    if ledger.reason:
        console.print(Text(ledger.reason, style="red"))
    console.print(_phases(ledger))
    console.print(_evidence(ledger))
    console.print(_proofs(ledger))
    for line in _notes(ledger):
        console.print(Text(line, style="bright_black"))
    if step := next_step(ledger):
        console.print(Text.assemble(("next  ", "bold"), step))


def show_many(ledgers: Sequence[Ledger], console: Console) -> None:
    """Several starts, one line each, and the newest whole."""
    if len(ledgers) > 1:
        table = Table(
            box=None, pad_edge=False, padding=(0, 1, 0, 0), title="seconds; - is missing", title_justify="left"
        )
        for column in ("asked", "pod", "state", "cold"):
            table.add_column(column, no_wrap=column == "asked", overflow="fold")
        for column in (*PHASES, "unac-\ncounted", "wall\nclock"):
            table.add_column(column, justify="right", no_wrap=True, min_width=max(map(len, column.split("\n"))))
        for ledger in ledgers:
            cells = [ledger.phases[phase].seconds for phase in PHASES]
            table.add_row(
                shown(ledger.asked_at_s)[5:16].replace("T", " "),
                ledger.pod,
                ledger.state,
                ledger.cold,
                *("-" if cell is None else f"{cell:.1f}" for cell in (*cells, ledger.unaccounted_s)),
                f"{ledger.wall_clock_s:.1f}",
            )
        console.print(table)
    if ledgers:
        show(ledgers[0], console)


def _cell(value: float | None) -> str:
    return "missing" if value is None else seconds(value)


def _phases(ledger: Ledger) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("phase", "measured", "budget", ""):
        table.add_column(column, justify="right" if column in {"measured", "budget"} else "left", no_wrap=True)
    over = dict(ledger.over_budget())
    for name in PHASES:
        phase, expected = ledger.phases[name], ledger.budget.get(name)
        table.add_row(
            Text(name, style=COLOURS[name]),
            Text(_cell(phase.seconds), style="red" if name in over else ""),
            f"{seconds(expected.low_s)} to {seconds(expected.high_s)}" if expected else "unknown",
            _bar(ledger, name),
        )
    table.add_row("unaccounted", seconds(ledger.unaccounted_s), "", _bar(ledger, None))
    total = sum(expected.expected_s for expected in ledger.budget.values())
    table.add_row(
        Text("wall clock", style="bold"),
        seconds(ledger.wall_clock_s),
        seconds(total) if ledger.budget else "unknown",
        "",
    )
    return table


def _evidence(ledger: Ledger) -> Table:
    """Where each phase's seconds come from, or why it has none; and the largest gap between them."""
    table = Table(box=None, pad_edge=False, title="evidence", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name in PHASES:
        phase = ledger.phases[name]
        words = _DIGEST.sub(r"\1…", phase.missing or phase.evidence)
        table.add_row(Text(name, style=COLOURS[name]), Text(words, style="bright_black"))
    gaps = [segment for segment in ledger.segments if segment.phase is None]
    if gaps:
        largest = max(gaps, key=lambda segment: segment.end_s - segment.begin_s)
        table.add_row("unaccounted", Text(f"most of it: {largest.detail}", style="bright_black"))
    return table


def _bar(ledger: Ledger, phase: str | None) -> Text:
    """Where a phase lay in the start; its parts are drawn at their own places."""
    cells = [" "] * BAR
    for segment in ledger.segments:
        if segment.phase != phase or not ledger.wall_clock_s:
            continue
        begin = int(segment.begin_s / ledger.wall_clock_s * BAR)
        end = max(begin + 1, round(segment.end_s / ledger.wall_clock_s * BAR))
        for index in range(min(begin, BAR - 1), min(end, BAR)):
            cells[index] = "█" if phase else "░"
    return Text("".join(cells), style=COLOURS.get(phase or "", "bright_black"))


def _proofs(ledger: Ledger) -> Table:
    table = Table(box=None, pad_edge=False, title="levers", title_justify="left")
    for column in ("lever", "state", "evidence"):
        table.add_column(column, overflow="fold")
    for proof in ledger.proofs:
        table.add_row(
            proof.lever, Text(proof.state, style=STATES[proof.state]), Text(proof.evidence, style="bright_black")
        )
    return table


def _notes(ledger: Ledger) -> list[str]:
    lines: list[str] = []
    if ledger.skew:
        skew = ledger.skew
        lines.append(
            f"clocks  node against API {skew.estimate_s:+.1f} s, between {skew.low_s:+.1f} and {skew.high_s:+.1f}"
            f" ({skew.pairs} pairs)"
        )
    lines += [
        f"earlier attempt, {a.what}: {a.reason} (exit {'unknown' if a.exit_code is None else a.exit_code})"
        for a in ledger.attempts
    ]
    lines += [f"not read  {absence.what}: {absence.why}" for absence in ledger.absences]
    return [*lines, *(f"note  {note}" for note in ledger.notes)]


def show_comparison(lever: str, differences: Mapping[str, Difference], console: Console) -> None:
    """An A/B."""
    table = Table(box=None, pad_edge=False, title=f"{lever}, off against on", title_justify="left")
    for column in ("phase", "off, median", "off, range", "on, median", "on, range", "saves", ""):
        table.add_column(column, justify="left" if column in {"phase", ""} else "right")
    for name, difference in differences.items():
        off, on = difference.off, difference.on
        table.add_row(
            name,
            f"{off.median_s:.2f} s",
            f"{off.low_s:.2f} to {off.high_s:.2f}",
            f"{on.median_s:.2f} s",
            f"{on.low_s:.2f} to {on.high_s:.2f}",
            f"{difference.saves_s:+.2f} s",
            "beyond noise" if difference.beyond_noise else "within noise",
        )
    console.print(table)


def show_regressions(found: Sequence[Regression], console: Console) -> None:
    """Phases against a baseline."""
    table = Table(box=None, pad_edge=False)
    for column in ("phase", "baseline", "now", "noise", ""):
        table.add_column(column, justify="left" if column in {"phase", ""} else "right")
    for entry in found:
        table.add_row(
            entry.phase,
            f"{entry.baseline_s:.2f} s",
            f"{entry.now_s:.2f} s",
            f"{entry.noise_s:.2f} s",
            Text("SLOWER", style="red") if entry.slower else Text("as before", style="green"),
        )
    console.print(table)
