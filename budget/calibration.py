"""Fitting machine factors to measured starts, and how well they then predict starts they have not seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from budget.coefficients import Coefficients
from budget.estimate import Estimate
from budget.phases import estimate_of
from budget.scenario import Scenario

GOLDEN = (math.sqrt(5) - 1) / 2
SWEEPS = 2
STEPS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One measured start, or a part of one.

    Attributes:
        group: cases of a group share the factors that are fitted on them.
        fit: the fit sees it; otherwise it is only compared.
        phases: those that `measured_s` covers.
        source: where the measurement was published.
    """

    name: str
    group: str
    fit: bool
    phases: tuple[str, ...]
    measured_s: float
    source: str
    scenario: Scenario


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A case and its prediction.

    Attributes:
        left_out_s: expected when the factors were fitted without this case; None for one that no fit ever sees.
    """

    case: Case
    estimate: Estimate
    left_out_s: float | None

    @property
    def error(self) -> float:
        """Relative error of the expected value."""
        return self.estimate.expected_s / self.case.measured_s - 1

    @property
    def left_out_error(self) -> float:
        """Relative error without having seen the case; of one never seen, the plain error."""
        return self.error if self.left_out_s is None else self.left_out_s / self.case.measured_s - 1

    @property
    def inside(self) -> bool:
        """The measured value lies between low and high."""
        return self.estimate.low_s <= self.case.measured_s <= self.estimate.high_s

    @property
    def width(self) -> float:
        """How far low and high are from expected, as one factor: the geometric middle of both sides."""
        return math.sqrt(self.estimate.high_s / max(self.estimate.low_s, 1e-9))


def predicted(case: Case, factors: Coefficients) -> Estimate:
    """The phases that the case measured."""
    return estimate_of(case.scenario, factors, *case.phases)


def fitted(cases: Sequence[Case], names: Sequence[str], factors: Coefficients) -> Coefficients:
    """Factors that minimise the squared logarithm of predicted over measured, one factor after another.

    Coordinate descent with a golden-section search per factor, between a third and three times its value and within
    its bounds. Deterministic; a factor that no case depends on stays where it is.
    """
    current = factors
    for _ in range(SWEEPS):
        for name in names:
            current = _fit_one(cases, name, current)
    return current


def _fit_one(cases: Sequence[Case], name: str, factors: Coefficients) -> Coefficients:
    known = factors.by_name[name]
    low, high = max(known.minimum, known.value / 3), min(known.maximum, known.value * 3)

    def loss(value: float) -> float:
        return _loss(cases, factors.replaced({name: value}))

    best = _golden(loss, low, high)
    return factors.replaced({name: best}) if loss(best) < _loss(cases, factors) - 1e-12 else factors


def _loss(cases: Sequence[Case], factors: Coefficients) -> float:
    return sum(math.log(predicted(case, factors).expected_s / case.measured_s) ** 2 for case in cases)


def _golden(loss: Callable[[float], float], low: float, high: float) -> float:
    """Golden-section search of a minimum."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = loss(left), loss(right)
    for _ in range(STEPS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = loss(right)
    return (low + high) / 2


def outcomes(
    cases: Sequence[Case],
    factors: Coefficients,
    refit: Callable[[Sequence[Case]], Coefficients],
) -> list[Outcome]:
    """Every case with its prediction, and for those of the fit the prediction of a fit that left it out."""
    found: list[Outcome] = []
    for case in cases:
        left_out = None
        if case.fit:
            others = [other for other in cases if other.fit and other is not case]
            left_out = predicted(case, refit(others)).expected_s
        found.append(Outcome(case=case, estimate=predicted(case, factors), left_out_s=left_out))
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Accuracy:
    """How good the predictions of a set of cases are."""

    cases: int
    mean_error: float
    mean_left_out_error: float
    inside: float
    mean_width: float


def accuracy(found: Sequence[Outcome]) -> Accuracy:
    """Mean absolute errors, share inside the band, mean width of the band."""
    count = len(found)
    return Accuracy(
        cases=count,
        mean_error=sum(abs(each.error) for each in found) / count,
        mean_left_out_error=sum(abs(each.left_out_error) for each in found) / count,
        inside=sum(each.inside for each in found) / count,
        mean_width=sum(each.width for each in found) / count,
    )


# --- straight lines ---------------------------------------------------------------------------------------------------


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Intercept and slope of the least-squares line through (x, y)."""
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    square = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / square if square else 0.0
    return mean_y - slope * mean_x, slope


def slope_through_zero(points: Sequence[tuple[float, float]]) -> float:
    """Slope of the least-squares line through the origin."""
    return sum(x * y for x, y in points) / sum(x * x for x, _ in points)


@dataclass(frozen=True, kw_only=True, slots=True)
class Steps:
    """The start-up steps of one model as a profiler measured them, seconds, on the reference host."""

    model: str
    layers: int
    weights_gb: float
    load_s: float
    dynamo_s: float
    graph_s: float
    profile_s: float
    capture_s: float
    capture_sizes: int
    init_engine_s: float
    actual_s: float


def engine_factors(steps: Sequence[Steps]) -> dict[str, float]:
    """The reference engine's factors: each step a line in layers or gigabytes.

    What is left of process start to ready (`actual_s`) after load and engine is nearly the same for every model: the
    start phase.
    """
    load = line([(step.weights_gb, step.load_s) for step in steps])
    trace = line([(step.layers, step.dynamo_s) for step in steps])
    graph = line([(step.layers, step.graph_s) for step in steps])
    profile = line([(step.weights_gb, step.profile_s) for step in steps])
    capture = slope_through_zero([(step.layers * step.capture_sizes, step.capture_s) for step in steps])
    rest = [step.actual_s - step.load_s - step.init_engine_s for step in steps]
    return {
        "load_s": max(0.0, load[0]),
        "load_s_per_gb": load[1],
        "trace_s": trace[0],
        "trace_s_per_layer": trace[1],
        "graph_s": graph[0],
        "graph_s_per_layer": graph[1],
        "profile_s": profile[0],
        "profile_s_per_gb": profile[1],
        "capture_s_per_size_and_layer": capture,
        "start_s": sum(rest) / len(rest),
    }


# --- a user's own ledgers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Seconds per phase of one real start; a phase that nobody saw is absent."""

    phases_s: Mapping[str, float]
    cache_hit: bool | None = None


KNOBS: Mapping[str, tuple[str, ...]] = {
    "node": ("node_s",),
    "pull": (
        "unpack_speed",
        "ecr_ranged_connection_mb_s",
        "ecr_connection_mb_s",
        "docker_hub_connection_mb_s",
        "network_efficiency",
    ),
    "weights": ("s3_network_share", "s3_connection_mb_s", "hub_file_mb_s", "load_s_per_gb", "disk_stream_mb_s"),
    "warmup": ("first_request_s",),
}
"""Phase → factors that can explain a difference, the likeliest first. Start and engine share the CPU factor."""


def refitted(scenario: Scenario, starts: Sequence[Measured], factors: Coefficients) -> dict[str, float]:
    """Machine factors that make a scenario's budget match the median of measured starts.

    Each phase gets one factor: the first of its list that moves the prediction far enough. Phases that no ledger has
    keep theirs.
    """
    found: dict[str, float] = {}
    current = factors
    cpu = f"cpu_factor_{scenario.instance.family}"
    for names, knobs in ((("start", "engine"), (cpu,)), *(((phase,), knobs) for phase, knobs in KNOBS.items())):
        target = _median_of(starts, names)
        if target is None or target <= 0:
            continue
        for knob in knobs:
            value = _matching(scenario, names, knob, target, current)
            if value is not None:
                current = current.replaced({knob: value})
                found[knob] = value
                break
    return found | _node_band(found, factors)


def _node_band(found: Mapping[str, float], factors: Coefficients) -> dict[str, float]:
    """The node's band moves with its middle."""
    if "node_s" not in found:
        return {}
    ratio = found["node_s"] / factors["node_s"]
    return {name: factors[name] * ratio for name in ("node_low_s", "node_high_s")}


def _median_of(starts: Sequence[Measured], names: Sequence[str]) -> float | None:
    sums = sorted(
        sum(start.phases_s[name] for name in names) for start in starts if all(name in start.phases_s for name in names)
    )
    if not sums:
        return None
    middle = len(sums) // 2
    return sums[middle] if len(sums) % 2 else (sums[middle - 1] + sums[middle]) / 2


MATCH = 0.02
"""A factor explains a phase when the prediction comes this near to the measurement."""


def _matching(
    scenario: Scenario, names: Sequence[str], knob: str, target: float, factors: Coefficients
) -> float | None:
    """The factor's value at which the named phases take `target` seconds; None when it cannot get there."""
    if knob not in factors.by_name:
        return None
    bounds = factors.by_name[knob]
    low, high = max(bounds.minimum, bounds.value / 20, 1e-6), min(bounds.maximum, bounds.value * 20)

    def off(value: float) -> float:
        changed = _with_band(factors.replaced({knob: value}))
        return math.log(estimate_of(scenario, changed, *names).expected_s / target)

    at_low, at_high = off(low), off(high)
    if at_low * at_high > 0:
        return None
    rising = at_high > at_low
    for _ in range(40):
        middle = math.sqrt(low * high)
        if (off(middle) > 0) == rising:
            high = middle
        else:
            low = middle
    value = math.sqrt(low * high)
    return value if abs(off(value)) < MATCH else None


def _with_band(factors: Coefficients) -> Coefficients:
    """Keeps the node's low and high around its middle while it moves."""
    middle = factors["node_s"]
    low, high = min(factors["node_low_s"], middle), max(factors["node_high_s"], middle)
    return factors.replaced({"node_low_s": low, "node_high_s": high})
