"""A predicted duration: low, expected, high, what binds it, and how it comes about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Detail = Mapping[str, float | str | bool | None]

NOTHING: Detail = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """Seconds with their uncertainty.

    Attributes:
        low_s: nine of ten starts take longer than this, or so the calibration cases say.
        bound_by: the binding constraint in words a person understands.
        detail: the parts and rates behind the number; keys carry units.
    """

    low_s: float
    expected_s: float
    high_s: float
    bound_by: str
    detail: Detail = field(default_factory=lambda: NOTHING)

    def __post_init__(self) -> None:
        if not 0 <= self.low_s <= self.expected_s <= self.high_s:
            raise ValueError(f"not low <= expected <= high: {self.low_s}, {self.expected_s}, {self.high_s}")


def spread(
    expected_s: float,
    factor: float,
    *,
    bound_by: str,
    detail: Detail = NOTHING,
    low_s: float | None = None,
    high_s: float | None = None,
) -> Estimate:
    """An estimate that may be off by `factor` either way.

    Args:
        expected_s: the middle.
        factor: 1.3 means between expected / 1.3 and expected x 1.3.
        bound_by: what binds.
        detail: the parts.
        low_s: a known best case; the factor applies below it.
        high_s: a known worst case; the factor applies above it.
    """
    best, worst = min(expected_s, low_s or expected_s), max(expected_s, high_s or expected_s)
    return Estimate(low_s=best / factor, expected_s=expected_s, high_s=worst * factor, bound_by=bound_by, detail=detail)


NONE = Estimate(low_s=0.0, expected_s=0.0, high_s=0.0, bound_by="nothing to do")


def total_of(parts: Iterable[Estimate]) -> Estimate:
    """The sum of phases that follow each other; bounded by the longest."""
    phases = list(parts)
    longest = max(phases, key=lambda phase: phase.expected_s)
    return Estimate(
        low_s=sum(phase.low_s for phase in phases),
        expected_s=sum(phase.expected_s for phase in phases),
        high_s=sum(phase.high_s for phase in phases),
        bound_by=longest.bound_by,
    )
