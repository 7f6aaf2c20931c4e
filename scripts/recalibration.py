"""`coldstart plan STACK --calibrate LEDGER…`: machine factors learnt from a user's own starts, kept per environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from budget.calibration import Measured, refitted
from budget.coefficients import Coefficients, coefficients
from budget.counted import counted
from budget.phases import PHASES, budget_of
from budget.problems import BadInput, Problem, bad_input
from budget.scenario import Scenario
from infra.forecast import factors_path, scenario
from infra.specs import model_specs
from infra.stack_file import STACKS, read


def recalibrate(stack_name: str, ledgers: Sequence[Path], directory: Path = STACKS) -> dict[str, Any]:
    """Refits the factors of a stack's environment and stores them beside its stack file.

    Returns:
        `environment`, `path`, `factors` (name → before, after), `phases` (name → predicted before and after), `lines`
        for people.

    Raises:
        BadInput: no model stack, or ledgers that are none, every one named.
    """
    stack = read(stack_name, directory)
    if stack.model is None:
        raise bad_input(
            stack_name, "is an environment: it has no starts", "Give the model stack the ledgers come from."
        )
    starts = _starts(ledgers)
    case = _as_measured(scenario(stack, stack.model, model_specs(stack, stack.model).node), starts)
    shipped = coefficients()
    found = refitted(case, starts, shipped)
    path = factors_path(stack)
    source = f"{counted(len(starts), 'ledger')} of {stack_name}"
    kept = _stored(path)
    document = {"source": source, "factors": {**kept, **{name: float(f"{value:.5g}") for name, value in found.items()}}}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return _answer(stack.environment_name, path, case, shipped, found)


def _as_measured(case: Scenario, starts: Sequence[Measured]) -> Scenario:
    """The scenario that those starts were: a compile cache hit is only one where most ledgers say so."""
    known = [start.cache_hit for start in starts if start.cache_hit is not None]
    if not known:
        return case
    hit = sum(known) * 2 > len(known)
    return replace(case, engine=replace(case.engine, compile_cache="hit" if hit else "miss"))


def _stored(path: Path) -> dict[str, float]:
    if not path.exists():
        return {}
    return cast("dict[str, float]", json.loads(path.read_text(encoding="utf-8"))["factors"])


def _answer(
    environment: str, path: Path, case: Scenario, before: Coefficients, found: Mapping[str, float]
) -> dict[str, Any]:
    after = before.replaced(found)
    old, new = budget_of(case, before).phases, budget_of(case, after).phases
    lines = [f"environment {environment}: {counted(len(found), 'machine factor')} written to {path}"]
    lines += [
        f"  {name}: {before[name]:.4g} -> {value:.4g} {before.by_name[name].unit}" for name, value in found.items()
    ]
    lines += [f"  {name}: {old[name].expected_s:.1f} s -> {new[name].expected_s:.1f} s" for name in PHASES]
    return {
        "environment": environment,
        "path": str(path),
        "factors": {name: {"before": before[name], "after": value} for name, value in found.items()},
        "phases": {name: {"before_s": old[name].expected_s, "after_s": new[name].expected_s} for name in PHASES},
        "lines": lines,
    }


# --- ledgers ----------------------------------------------------------------------------------------------------------


def _starts(paths: Sequence[Path]) -> list[Measured]:
    problems: list[Problem] = []
    found: list[Measured] = []
    for path in paths:
        try:
            found.append(ledger_of(path))
        except BadInput as error:
            problems.extend(error.problems)
    if problems:
        raise BadInput(problems)
    return found


def ledger_of(path: Path) -> Measured:
    """One ledger file: an object with `phases_s`, phase → seconds, null for a phase nobody saw.

    Raises:
        BadInput: unreadable, no ledger, unknown phases, seconds that are none.
    """
    try:
        document: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise bad_input(str(path), f"cannot be read: {error.strerror}", "Give a ledger as JSON.") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise bad_input(str(path), f"is no JSON: {error}", "Give a ledger as JSON.") from error
    fields = cast("dict[str, object]", document) if isinstance(document, dict) else dict[str, object]()
    phases = fields.get("phases_s")
    if not isinstance(phases, dict):
        raise bad_input(
            str(path), "has no `phases_s`", "Give a ledger of `coldstart measure --json` or of the launcher."
        )
    seconds = cast("Mapping[str, object]", phases)
    problems = [_bad_phase(path, name, value) for name, value in seconds.items() if not _good(name, value)]
    if problems:
        raise BadInput(problems)
    seen = {name: float(cast("float", value)) for name, value in seconds.items() if value is not None}
    return Measured(phases_s=seen, cache_hit=_cache_hit(fields))


def _good(name: str, value: object) -> bool:
    number = value is None or (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e6)  # noqa: PLR2004 - eleven days
    return name in PHASES and number


def _bad_phase(path: Path, name: str, value: object) -> Problem:
    if name not in PHASES:
        return Problem(f"{path}: phases_s.{name}", "is not a phase", f"Phases: {', '.join(PHASES)}.")
    return Problem(f"{path}: phases_s.{name}", f"found {value!r}", "Give seconds, or null for a phase nobody saw.")


def _cache_hit(fields: Mapping[str, object]) -> bool | None:
    cache = fields.get("compile_cache")
    hit = cast("Mapping[str, object]", cache).get("hit") if isinstance(cache, dict) else None
    return hit if isinstance(hit, bool) else None
