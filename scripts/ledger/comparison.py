"""The same start with a lever off and on, interleaved, and what of the difference is more than noise."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from scripts.ledger.facts import PHASES
from scripts.ledger.record import Ledger

Side = Literal["off", "on"]
TOTAL = "total"
"""Beside the phases: all of the start that was seen, without what no phase explains."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Seconds of one phase over several starts."""

    median_s: float
    low_s: float
    high_s: float
    samples: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One phase with the lever off and on.

    Attributes:
        saves_s: median off less median on; negative when the lever costs time.
        beyond_noise: the two ranges do not meet.
    """

    off: Spread
    on: Spread
    saves_s: float
    beyond_noise: bool


def interleaved(run: Callable[[Side], Ledger], times: int) -> Mapping[Side, Sequence[Ledger]]:
    """Runs both sides by turns, the order changing each time, so that a drift of the machine meets both alike."""
    found: dict[Side, list[Ledger]] = {"off": [], "on": []}
    for index in range(times):
        sides: tuple[Side, Side] = ("off", "on") if index % 2 == 0 else ("on", "off")
        for side in sides:
            found[side].append(run(side))
    return found


def compare(found: Mapping[Side, Sequence[Ledger]]) -> Mapping[str, Difference]:
    """The differences, by phase and in total; a phase that one side never saw is left out."""
    differences: dict[str, Difference] = {}
    for name in (*PHASES, TOTAL):
        off, on = (_samples(found[side], name) for side in ("off", "on"))
        if off and on:
            a, b = _spread(off), _spread(on)
            apart = a.low_s > b.high_s or b.low_s > a.high_s
            differences[name] = Difference(off=a, on=b, saves_s=a.median_s - b.median_s, beyond_noise=apart)
    return differences


def document(lever: str, found: Mapping[Side, Sequence[Ledger]]) -> dict[str, Any]:
    """The comparison for JSON."""
    return {
        "format": 1,
        "lever": lever,
        "starts": {side: len(ledgers) for side, ledgers in found.items()},
        "phases": {name: asdict(difference) for name, difference in compare(found).items()},
    }


def _samples(ledgers: Sequence[Ledger], name: str) -> list[float]:
    if name == TOTAL:
        return [ledger.wall_clock_s - ledger.unaccounted_s for ledger in ledgers if ledger.measured]
    return [seconds for ledger in ledgers if (seconds := ledger.phases[name].seconds) is not None]


def _spread(samples: Sequence[float]) -> Spread:
    return Spread(median_s=statistics.median(samples), low_s=min(samples), high_s=max(samples), samples=tuple(samples))
