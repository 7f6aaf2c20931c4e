"""A ledger on a terminal: phases beside the budget, proofs, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scripts.figures import seconds
from scripts.ledger.advice import next_step
from scripts.ledger.baseline import Regression
from scripts.ledger.comparison import Difference, Spread
from scripts.ledger.facts import PHASES
from scripts.ledger.record import Ledger
from scripts.ledger.times import shown

BAR, LEAST_BAR = 30, 6
"""Widths of the picture of a start beside its phases; where there is less room, there is none."""
THOUSAND_S = 1000.0
"""From here a tenth of a second says nothing, and takes the room of a digit."""
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
    _heading(f"{ledger.model}: {seconds(ledger.wall_clock_s)} to {ledger.state}", console)
    where = ", ".join(
        part for part in (ledger.pod, ledger.labels.get("instance", ""), shown(ledger.asked_at_s)) if part
    )
    console.print(Text(where, style="bright_black"))
    if ledger.reason:
        console.print(Text(ledger.reason, style="red"))
    console.print(_phases(ledger, console))
    console.print(_evidence(ledger))
    console.print(_proofs(ledger))
    for line in _notes(ledger):
        console.print(Text(line, style="bright_black"))
    if step := next_step(ledger):
        console.print(Text.assemble(("next  ", "bold"), step))


def _heading(words: str, console: Console) -> None:
    """A title with a line after it; without the line where the title needs more than one of its own."""
    title = Text(words, style="bold")
    if title.cell_len + LEAST_BAR > console.width:
        console.print(title)
    else:
        console.rule(title, align="left")


def _wanted(table: Table, console: Console) -> int:
    """Columns of the terminal that a table takes without a cut or a break in any of its cells."""
    return console.measure(table, options=console.options.update(max_width=UNBOUNDED)).maximum


UNBOUNDED = 10_000
"""Columns that no table needs: what it is measured in to know what it would take."""


def show_many(ledgers: Sequence[Ledger], console: Console) -> None:
    """Several starts, one line each, and the newest whole."""
    if len(ledgers) > 1:
        table = _starts(ledgers)
        if _wanted(table, console) <= console.width:
            console.print(table)
        else:
            _starts_in_two_lines(ledgers, console)
    if ledgers:
        show(ledgers[0], console)


FIGURES = (*PHASES, "unac-\ncounted", "wall\nclock")
TITLE = "seconds; - is missing"


def _words_of(ledger: Ledger) -> tuple[str, ...]:
    """Asked at, pod, state, how cold."""
    return (shown(ledger.asked_at_s)[5:16].replace("T", " "), ledger.pod, ledger.state, ledger.cold)


def _figures_of(ledger: Ledger) -> list[str]:
    """Seconds of each column of `FIGURES`."""
    cells = [*(ledger.phases[phase].seconds for phase in PHASES), ledger.unaccounted_s, ledger.wall_clock_s]
    return ["-" if cell is None else f"{cell:.1f}" if cell < THOUSAND_S else f"{cell:.0f}" for cell in cells]


def _starts(ledgers: Sequence[Ledger]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), title=TITLE, title_justify="left")
    for column in ("asked", "pod", "state", "cold"):
        table.add_column(column, no_wrap=True)
    for column in FIGURES:
        table.add_column(column, justify="right", no_wrap=True)
    for ledger in ledgers:
        table.add_row(*(Text(cell) for cell in (*_words_of(ledger), *_figures_of(ledger))))
    return table


def _starts_in_two_lines(ledgers: Sequence[Ledger], console: Console) -> None:
    """For a narrow terminal: which start it was, and its figures under it."""
    rows = [_figures_of(ledger) for ledger in ledgers]
    heads = [column.rpartition("\n") for column in FIGURES]
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, (*head, *column))) for head, column in zip(heads, columns, strict=True)]

    def line(cells: Sequence[str], style: str = "") -> Text:
        return Text(" ".join(map(str.rjust, cells, widths)).rstrip(), style=style)

    console.print(Text(TITLE, style="italic"))
    console.print(line([above for above, _, _ in heads], "bold"))
    console.print(line([below for _, _, below in heads], "bold"))
    for ledger, row in zip(ledgers, rows, strict=True):
        console.print(Text(", ".join(word for word in _words_of(ledger) if word), style="bright_black"))
        console.print(line(row))


def _phases(ledger: Ledger, console: Console) -> Table:
    """The phases beside the budget; and where they lay in the start, as wide as there is room."""
    bare = _phase_table(ledger, 0)
    room = console.width - _wanted(bare, console) - 2
    return _phase_table(ledger, min(BAR, room)) if room >= LEAST_BAR else bare


def _phase_table(ledger: Ledger, bar: int) -> Table:
    table = _columns("", ("phase", "measured", "budget", *([""] if bar else [])), ("phase", ""))

    def row(name: Text, measured: Text, budget: str, phase: str | None) -> None:
        table.add_row(name, measured, budget, *([_bar(ledger, phase, bar)] if bar else []))

    over = dict(ledger.over_budget())
    for name in PHASES:
        measured, expected = ledger.phases[name].seconds, ledger.budget.get(name)
        row(
            Text(name, style=COLOURS[name]),
            Text("missing" if measured is None else seconds(measured), style="red" if name in over else ""),
            f"{seconds(expected.low_s)} to {seconds(expected.high_s)}" if expected else "unknown",
            name,
        )
    row(Text("unaccounted"), Text(seconds(ledger.unaccounted_s)), "", None)
    total_s = sum(expected.expected_s for expected in ledger.budget.values())
    whole, budget = Text("wall clock", style="bold"), seconds(total_s) if ledger.budget else "unknown"
    row(whole, Text(seconds(ledger.wall_clock_s)), budget, "")
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
        table.add_row(Text("unaccounted"), Text(f"most of it: {largest.detail}", style="bright_black"))
    return table


def _bar(ledger: Ledger, phase: str | None, width: int) -> Text:
    """Where a phase lay in the start; its parts are drawn at their own places."""
    cells = [" "] * width
    for segment in ledger.segments:
        if segment.phase != phase or not ledger.wall_clock_s:
            continue
        begin = int(segment.begin_s / ledger.wall_clock_s * width)
        end = max(begin + 1, round(segment.end_s / ledger.wall_clock_s * width))
        for index in range(min(begin, width - 1), min(end, width)):
            cells[index] = "█" if phase else "░"
    return Text("".join(cells), style=COLOURS.get(phase or "", "bright_black"))


def _proofs(ledger: Ledger) -> Table:
    table = Table(box=None, pad_edge=False, title="levers", title_justify="left")
    for column in ("lever", "state", "evidence"):
        table.add_column(column, overflow="fold", no_wrap=column != "evidence")
    for proof in ledger.proofs:
        table.add_row(
            Text(proof.lever), Text(proof.state, style=STATES[proof.state]), Text(proof.evidence, style="bright_black")
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
    """An A/B: a line per phase, or a line per side where there is less room."""
    table = _side_by_side(lever, differences)
    console.print(table if _wanted(table, console) <= console.width else _side_under_side(lever, differences))


def _columns(title: str, names: Sequence[str], left: Sequence[str]) -> Table:
    """A table whose cells are never broken; the named columns and the last are words."""
    table = Table(box=None, pad_edge=False, title=title or None, title_justify="left")
    for name in names:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    return table


def _range(spread: Spread) -> str:
    return f"{spread.low_s:.2f} to {spread.high_s:.2f}"


def _verdict(difference: Difference) -> str:
    return "beyond noise" if difference.beyond_noise else "within noise"


def _side_by_side(lever: str, differences: Mapping[str, Difference]) -> Table:
    names = ("phase", "off, median", "off, range", "on, median", "on, range", "saves", "")
    table = _columns(f"{lever}, off against on", names, ("phase", ""))
    for name, difference in differences.items():
        off, on = difference.off, difference.on
        medians, ranges = [f"{side.median_s:.2f} s" for side in (off, on)], [_range(side) for side in (off, on)]
        sides = (medians[0], ranges[0], medians[1], ranges[1])
        table.add_row(name, *sides, f"{difference.saves_s:+.2f} s", _verdict(difference))
    return table


def _side_under_side(lever: str, differences: Mapping[str, Difference]) -> Table:
    table = _columns(f"{lever}, off against on", ("phase", "", "median", "range", "saves"), ("phase", ""))
    for name, difference in differences.items():
        off, on = difference.off, difference.on
        table.add_row(name, "off", f"{off.median_s:.2f} s", _range(off), f"{difference.saves_s:+.2f} s")
        table.add_row("", "on", f"{on.median_s:.2f} s", _range(on), _verdict(difference))
    return table


def show_regressions(found: Sequence[Regression], console: Console) -> None:
    """Phases against a baseline."""
    table = _columns("", ("phase", "baseline", "now", "noise", ""), ("phase", ""))
    for entry in found:
        table.add_row(
            entry.phase,
            f"{entry.baseline_s:.2f} s",
            f"{entry.now_s:.2f} s",
            f"{entry.noise_s:.2f} s",
            Text("SLOWER", style="red") if entry.slower else Text("as before", style="green"),
        )
    console.print(table)
