"""Machine factors: every number that a phase formula takes from measurements, with where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import cast

from budget.problems import BadInput, Problem, did_you_mean
from budget.tables import document


@dataclass(frozen=True, kw_only=True, slots=True)
class Coefficient:
    """One factor.

    Attributes:
        value: in `unit`.
        fitted: set by `make calibrate` from the calibration cases; otherwise stated by its source.
        minimum: what a fit may not go below.
    """

    name: str
    value: float
    unit: str
    source: str
    fitted: bool
    minimum: float
    maximum: float


@dataclass(frozen=True, slots=True)
class Coefficients:
    """All factors by name; `c["start_s"]` is the value."""

    by_name: Mapping[str, Coefficient]

    def __getitem__(self, name: str) -> float:
        return self.by_name[name].value

    def replaced(self, values: Mapping[str, float], *, source: str | None = None) -> Coefficients:
        """The same with some values replaced, as a fit or an environment's own ledgers have them.

        Raises:
            BadInput: a name no formula knows, or a value outside its bounds, all of them.
        """
        problems = list(_problems(self, values))
        if problems:
            raise BadInput(problems)
        changed = dict(self.by_name)
        for name, value in values.items():
            old = changed[name]
            changed[name] = Coefficient(
                name=name,
                value=value,
                unit=old.unit,
                source=source or old.source,
                fitted=old.fitted,
                minimum=old.minimum,
                maximum=old.maximum,
            )
        return Coefficients(MappingProxyType(changed))


def _problems(known: Coefficients, values: Mapping[str, float]) -> list[Problem]:
    found: list[Problem] = []
    for name, value in values.items():
        if name not in known.by_name:
            found.append(Problem(name, "no formula has this factor", did_you_mean(name, known.by_name)))
            continue
        bounds = known.by_name[name]
        if not bounds.minimum <= value <= bounds.maximum:
            allowed = f"Allowed: {bounds.minimum:g} to {bounds.maximum:g} {bounds.unit}."
            found.append(Problem(name, f"{value:g} is outside what can be", allowed))
    return found


def coefficients_of(entries: Mapping[str, Mapping[str, object]]) -> Coefficients:
    """Factors from the parsed data file."""
    return Coefficients(MappingProxyType({name: _coefficient(name, entry) for name, entry in entries.items()}))


def _coefficient(name: str, entry: Mapping[str, object]) -> Coefficient:
    value = float(cast("float", entry["value"]))
    return Coefficient(
        name=name,
        value=value,
        unit=str(entry["unit"]),
        source=str(entry["source"]),
        fitted=bool(entry.get("fitted", False)),
        minimum=float(cast("float", entry.get("minimum", 0.0))),
        maximum=float(cast("float", entry.get("maximum", 1e12))),
    )


@cache
def coefficients() -> Coefficients:
    """The shipped factors."""
    return coefficients_of(cast("Mapping[str, Mapping[str, object]]", document("coefficients.json")["factors"]))
