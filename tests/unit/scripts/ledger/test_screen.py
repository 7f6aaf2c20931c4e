"""Tables on narrow terminals: a figure is whole or on the next line, never cut."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from scripts.figures import seconds
from scripts.ledger import screen
from scripts.ledger.baseline import Regression
from scripts.ledger.comparison import Difference, Spread
from scripts.ledger.folder import load, starts_in
from scripts.ledger.merge import ledger_of
from scripts.ledger.record import Expected, Ledger

CASES = Path(__file__).resolve().parents[3] / "cases" / "starts"
WIDTHS = (60, 80, 120)
STARTS = [ledger_of(load(folder)) for folder in starts_in(CASES)]
DIGEST = re.compile(r"[0-9a-f]+…\"")
"""Of an image, shortened on purpose, wherever the line is broken."""


def printed(width: int, draw: Callable[[Console], None]) -> list[str]:
    """The lines of a terminal of that width."""
    console = Console(width=width, file=io.StringIO())
    draw(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def figures(ledger: Ledger) -> Iterator[str]:
    """Whatever a table of one start has to show whole."""
    yield f"unaccounted {seconds(ledger.unaccounted_s)}"
    yield f"wall clock {seconds(ledger.wall_clock_s)}"
    for name, phase in ledger.phases.items():
        measured = "missing" if phase.seconds is None else seconds(phase.seconds)
        expected = ledger.budget.get(name)
        budget = f"{seconds(expected.low_s)} to {seconds(expected.high_s)}" if expected else "unknown"
        yield f"{name} {measured} {budget}"
    for proof in ledger.proofs:
        yield f"{proof.lever} {proof.state}"


def slow(ledger: Ledger) -> Ledger:
    """The same start with the longest words and figures that are likely."""
    budget = {name: Expected(low_s=612.0, expected_s=1500.0, high_s=6612.0) for name in ledger.phases}
    phases = {name: replace(phase, seconds=6599.0) for name, phase in ledger.phases.items()}
    name = "prod-eu-deepseek-r1-distill-llama-70b"
    return replace(
        ledger,
        model=name,
        pod=f"{name}-658c75b8ff-ltfgv",
        state="unscheduled",
        wall_clock_s=46194.0,
        unaccounted_s=6600.0,
        phases=phases,
        budget=budget,
    )


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("ledger", [*STARTS, slow(STARTS[0])], ids=lambda ledger: ledger.model + ledger.cold)
def test_no_figure_of_a_start_is_cut(ledger: Ledger, width: int) -> None:
    lines = printed(width, lambda console: screen.show(ledger, console))
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if "…" in DIGEST.sub("", line)]
    told = [" ".join(line.split()) for line in lines]
    for figure in figures(ledger):
        assert any(line.startswith(figure) for line in told), figure
    assert seconds(ledger.wall_clock_s) in " ".join(told[:3])


@pytest.mark.parametrize("width", WIDTHS)
def test_no_figure_of_several_starts_is_cut(width: int) -> None:
    ledgers = [*STARTS, slow(STARTS[0])]
    lines = printed(width, lambda console: screen.show_many(ledgers, console))
    assert max(map(len, lines)) <= width
    table = [" ".join(line.split()) for line in lines[: lines.index("")]]
    for ledger in ledgers:
        cells = [*(phase.seconds for phase in ledger.phases.values()), ledger.unaccounted_s, ledger.wall_clock_s]
        row = " ".join("-" if cell is None else f"{cell:.1f}" if cell < 1000 else f"{cell:.0f}" for cell in cells)
        assert any(line.endswith(row) for line in table), row
        assert ledger.pod in "".join(table)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_figure_of_a_comparison_or_a_regression_is_cut(width: int) -> None:
    off = Spread(median_s=1234.56, low_s=1200.12, high_s=1300.34, samples=())
    on = Spread(median_s=4.5, low_s=1.1, high_s=10.2, samples=())
    difference = Difference(off=off, on=on, saves_s=1230.06, beyond_noise=True)
    slower = Regression(phase="weights", baseline_s=1234.5, now_s=2345.67, noise_s=1111.1, slower=True)

    def draw(console: Console) -> None:
        screen.show_comparison("distributed-streaming", {"weights": difference}, console)
        screen.show_regressions([slower], console)

    lines = printed(width, draw)
    assert max(map(len, lines)) <= width
    told = " ".join(" ".join(lines).split())
    for figure in ("1234.56 s", "1200.12 to 1300.34", "4.50 s", "1.10 to 10.20", "+1230.06 s", "beyond noise"):
        assert figure in told
    assert "weights 1234.50 s 2345.67 s 1111.10 s SLOWER" in told


def test_a_bar_is_drawn_where_there_is_room() -> None:
    ledger = next(ledger for ledger in STARTS if ledger.cold == "node")
    drawn = {width: "".join(printed(width, lambda console: screen.show(ledger, console))) for width in (40, 60, 120)}
    assert [drawn[width].count("█") > 0 for width in (40, 60, 120)] == [False, True, True]


def test_words_of_a_cluster_are_no_markup() -> None:
    odd = replace(STARTS[0], pod="[/x]", model="[red]", state="[/]")
    told = "\n".join(printed(80, lambda console: screen.show_many([odd, odd], console)))
    assert "[/x]" in told
    assert "[red]" in told
