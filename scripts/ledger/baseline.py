"""What starts took when they were good, and whether they have become slower by more than they always vary."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from budget.problems import BadInput, Problem, bad_input
from scripts.ledger.facts import PHASES
from scripts.ledger.raw import dig, finite, mapping, parsed, text
from scripts.ledger.record import Ledger

FORMAT = 1
UNNAMED = "unknown"
"""Model of a start without a pod object or a label."""
MAD_TO_SIGMA = 1.4826
"""Median absolute deviation of a normal distribution → its standard deviation."""
SIGMAS = 3.0
RELATIVE = 0.10
"""A tenth is what a start varies by on an unchanged machine, even where few samples show it."""
ABSOLUTE_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """Seconds of each phase over some starts."""

    model: str
    phases: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Regression:
    """One phase against its baseline.

    Attributes:
        noise_s: what the median may be above the baseline's before it counts.
        slower: it counts.
    """

    phase: str
    baseline_s: float
    now_s: float
    noise_s: float
    slower: bool


def baseline_of(model: str, ledgers: Sequence[Ledger]) -> Baseline:
    """A baseline of some starts; a phase that none of them saw is left out."""
    found: dict[str, tuple[float, ...]] = {}
    for phase in PHASES:
        samples = tuple(seconds for ledger in ledgers if (seconds := ledger.phases[phase].seconds) is not None)
        if samples:
            found[phase] = samples
    return Baseline(model=model, phases=found)


def same_model(path: Path, baseline: Baseline | None, ledgers: Sequence[Ledger]) -> None:
    """Refuses starts of other models than the baseline's, or of several; a start that names none may be anybody's.

    Raises:
        BadInput: what would be compared is not alike.
    """
    models = sorted({ledger.model for ledger in ledgers} - {UNNAMED})
    if len(models) > 1:
        raise bad_input("--from", f"holds starts of several models: {', '.join(models)}", "Compare one model's.")
    if baseline and models and baseline.model not in {UNNAMED, models[0]}:
        found = f"is a baseline of {baseline.model}, and these starts are of {models[0]}"
        raise bad_input(str(path), found, f"Name the baseline of {models[0]}, or write one with --write.")


def regressions(baseline: Baseline, ledgers: Sequence[Ledger]) -> list[Regression]:
    """Every phase that both sides saw.

    The noise is the largest of three standard deviations of the baseline (from its median absolute deviation, so that
    one odd start does not hide a regression), a tenth of its median, what the stamps can't resolve, and half a second.
    """
    now = baseline_of(baseline.model, ledgers)
    found: list[Regression] = []
    for phase, before in baseline.phases.items():
        samples = now.phases.get(phase)
        if not samples:
            continue
        middle = statistics.median(before)
        deviation = statistics.median(abs(sample - middle) for sample in before) * MAD_TO_SIGMA
        resolution = max(ledger.phases[phase].resolution_s for ledger in ledgers)
        noise = max(SIGMAS * deviation, RELATIVE * middle, 2 * resolution, ABSOLUTE_S)
        current = statistics.median(samples)
        found.append(
            Regression(phase=phase, baseline_s=middle, now_s=current, noise_s=noise, slower=current > middle + noise)
        )
    return found


def read(path: Path) -> Baseline:
    """A baseline file.

    Raises:
        BadInput: no such file, not JSON, or not a baseline.
    """
    try:
        found = parsed(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise bad_input(str(path), f"can't be read: {error.strerror}", "Name one that --write wrote.") from error
    except ValueError as error:
        raise bad_input(str(path), f"is not JSON: {error}", "Write one with --write.") from error
    if dig(found, "format") != FORMAT:
        raise bad_input(str(path), f"is not a baseline of format {FORMAT}", "Write one with --write.")
    problems: list[Problem] = []
    phases: dict[str, tuple[float, ...]] = {}
    for phase, samples in mapping(found, "phases").items():
        numbers = _seconds(samples)
        if phase in PHASES and numbers:
            phases[phase] = numbers
        else:
            where, known = f"{path}: phases.{phase}", f"Phases: {', '.join(PHASES)}."
            problems.append(Problem(where, "is not a list of a phase's seconds, none of them negative", known))
    if not phases and not problems:
        problems.append(Problem(f"{path}: phases", "holds no phase", "Write one with --write."))
    if not text(found, "model"):
        problems.append(Problem(f"{path}: model", "does not say whose starts these are", "Write one with --write."))
    if problems:
        raise BadInput(problems)
    return Baseline(model=text(found, "model"), phases=phases)


def _seconds(found: object) -> tuple[float, ...]:
    """The numbers of a list; nothing when it holds anything else: a duration is neither negative nor NaN."""
    values = cast("list[object]", found) if isinstance(found, list) else []
    numbers = tuple(number for value in values if (number := finite(value)) is not None and number >= 0)
    return numbers if len(numbers) == len(values) else ()


def write(baseline: Baseline, path: Path) -> None:
    """Writes a baseline file."""
    content = {
        "format": FORMAT,
        "model": baseline.model,
        "phases": {phase: [round(sample, 3) for sample in samples] for phase, samples in baseline.phases.items()},
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
