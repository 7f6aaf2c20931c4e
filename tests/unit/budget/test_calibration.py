"""Calibration: the fit, the accuracy asked for, and refitting from a user's own ledgers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budget.calibration import Case, Measured, accuracy, fitted, line, outcomes, predicted, refitted, slope_through_zero
from budget.coefficients import coefficients
from budget.instances import instance
from budget.phases import budget_of
from budget.problems import BadInput
from budget.scenario import EngineCase, ImageCase, ModelCase, NodeCase, Scenario, WeightsCase

C = coefficients()
START = Scenario(
    instance=instance("g6e.4xlarge"),
    image=ImageCase(bytes=9e9),
    model=ModelCase(weights_bytes=16e9, layers=32, parameters=8e9),
    engine=EngineCase(compile_cache="hit"),
)


def case(measured_s: float, *, phases: tuple[str, ...] = ("engine",), fit: bool = True) -> Case:
    return Case(name="c", group="g", fit=fit, phases=phases, measured_s=measured_s, source="made up", scenario=START)


def test_every_factor_has_a_source_and_bounds_that_hold_it() -> None:
    for factor in C.by_name.values():
        assert factor.source
        assert factor.minimum <= factor.value <= factor.maximum, factor.name


def test_unknown_and_absurd_factors_are_refused_together() -> None:
    with pytest.raises(BadInput) as caught:
        C.replaced({"unpack_sped": 1, "typical_fat_share": 7})
    first, second = caught.value.problems
    assert "unpack_speed" in first.fix
    assert "0.2 to 0.8" in second.fix


def test_a_line_through_points_on_it() -> None:
    intercept, slope = line([(1, 5), (2, 7), (4, 11)])
    assert (intercept, slope) == (pytest.approx(3), pytest.approx(2))
    assert slope_through_zero([(1, 2), (3, 6)]) == pytest.approx(2)


@settings(max_examples=20, deadline=None)
@given(true=st.floats(0.4, 2.5))
def test_a_fit_finds_the_factor_that_made_the_data(true: float) -> None:
    made = C.replaced({"compile_s_per_layer": true})
    cold = replace(START, engine=EngineCase(compile_cache="miss"))
    seen = replace(case(1), scenario=cold)
    data = [replace(seen, measured_s=predicted(seen, made).expected_s)]
    found = fitted(data, ["compile_s_per_layer"], C)["compile_s_per_layer"]
    assert found == pytest.approx(true, rel=0.01)


def test_left_out_errors_do_not_see_the_case() -> None:
    good = predicted(case(1), C).expected_s
    cases = [case(good), case(good * 1.1), case(good * 3, fit=False)]
    found = outcomes(cases, C, lambda kept: fitted(kept, ["trace_s_per_layer"], C))
    assert found[0].left_out_s == pytest.approx(good * 1.1, rel=0.01)
    assert found[1].left_out_s == pytest.approx(good, rel=0.01)
    assert found[2].left_out_s is None
    assert found[2].left_out_error == found[2].error


def test_accuracy_of_known_outcomes() -> None:
    good = predicted(case(1), C).expected_s
    found = outcomes([case(good, fit=False), case(good * 10, fit=False)], C, lambda _: C)
    result = accuracy(found)
    assert result.mean_error == pytest.approx((0 + 0.9) / 2)
    assert result.inside == 0.5
    assert result.mean_width == pytest.approx(found[0].width)


# --- ledgers
# --------------------------------------------------------------------------------------------------------------


def measured(ratio: float, *phases: str) -> Measured:
    predicted_s = budget_of(START).phases
    return Measured(phases_s={name: predicted_s[name].expected_s * ratio for name in phases})


@pytest.mark.parametrize("phase", ["node", "pull", "weights", "warmup"])
def test_one_phase_is_matched_and_the_others_stay(phase: str) -> None:
    found = refitted(START, [measured(1.2, phase)], C)
    before, after = budget_of(START).phases, budget_of(START, C.replaced(found)).phases
    for name, estimate in before.items():
        wanted = 1.2 if name == phase else 1.0
        assert after[name].expected_s == pytest.approx(wanted * estimate.expected_s, rel=0.03)


def test_start_and_engine_share_the_cpu_factor_of_the_family() -> None:
    found = refitted(START, [measured(1.5, "start", "engine")], C)
    assert set(found) == {"cpu_factor_g6e"}
    assert found["cpu_factor_g6e"] == pytest.approx(1.5 * C["cpu_factor_g6e"], rel=0.05)


def test_the_median_of_the_starts_counts() -> None:
    found = refitted(START, [measured(ratio, "node") for ratio in (0.9, 1.1, 9.0)], C)
    assert found["node_s"] == pytest.approx(1.1 * C["node_s"], rel=0.03)
    assert found["node_low_s"] < found["node_s"] < found["node_high_s"]


def test_nothing_measured_changes_nothing() -> None:
    assert refitted(START, [Measured(phases_s={})], C) == {}


def test_a_phase_of_no_seconds_is_no_measurement() -> None:
    assert refitted(replace(START, node=NodeCase(warm=True)), [Measured(phases_s={"node": 0.0})], C) == {}


def test_what_no_factor_can_explain_keeps_its_factor() -> None:
    impossible = replace(START, weights=WeightsCase(path="shared-fs", source="disk", shared_mb_s=10))
    found = refitted(impossible, [Measured(phases_s={"weights": 1.0})], C)
    assert "s3_network_share" not in found


def test_errors_are_relative() -> None:
    good = predicted(case(1), C).expected_s
    (found,) = outcomes([case(good * 2, fit=False)], C, lambda _: C)
    assert found.error == pytest.approx(-0.5)
    assert math.isfinite(found.width)
