"""The accuracy that is promised, on the cases in tests/cases, with the factors that ship."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest

from budget.calibration import Outcome, accuracy, engine_factors, fitted, outcomes
from budget.coefficients import Coefficients, coefficients
from scripts.calibrate import (
    FITTED_ON,
    LAB,
    MARK,
    REPORT,
    TARGETS,
    engine_case,
    lab_cases,
    profiled_steps,
    summary,
    table,
    targets,
    yaml_cases,
)


def keep(_: object) -> Coefficients:
    return coefficients()


def seen(cases: list[object]) -> list[Outcome]:
    return outcomes([replace(case, fit=False) for case in cases], coefficients(), keep)  # type: ignore[type-var]


@cache
def published() -> tuple[Outcome, ...]:
    engine = [engine_case(step) for step in profiled_steps()]
    return tuple(seen([*engine, *yaml_cases("weights.yaml"), *yaml_cases("pulls.yaml"), *yaml_cases("starts.yaml")]))


@cache
def lab() -> tuple[Outcome, ...]:
    return tuple(seen(lab_cases(json.loads(LAB.read_text())["host"])))


def test_published_starts_are_within_ten_per_cent_on_average() -> None:
    result = accuracy(published())
    assert result.cases >= 35
    assert result.mean_error <= 0.10
    assert result.inside >= 0.90
    assert result.mean_width <= 1.6


def test_the_shipped_engine_factors_are_the_fitted_ones() -> None:
    for name, value in engine_factors(profiled_steps()).items():
        assert coefficients()[name] == pytest.approx(value, rel=1e-3), name


def test_engine_cases_left_out_stay_within_twelve_per_cent() -> None:
    steps = profiled_steps()
    for step in steps:
        case = engine_case(step)
        others = coefficients().replaced(engine_factors([other for other in steps if other is not step]))
        (outcome,) = outcomes([case], coefficients(), lambda _, kept=others: kept)
        assert abs(outcome.left_out_error) <= 0.07


def test_weights_cases_left_out() -> None:
    cases = yaml_cases("weights.yaml")
    names = FITTED_ON["weights"]
    found = outcomes(cases, coefficients(), lambda kept: fitted(kept, names, coefficients()))
    assert accuracy(found).mean_left_out_error <= 0.12


RACES = "x20 ctd-MCU12 s-b-even"
"""Default containerd's layers race: one and the same pull took 30 to 42 s, and this case's two runs both took 32."""


@pytest.mark.parametrize("outcome", lab(), ids=lambda outcome: outcome.case.name)
def test_measured_pulls(outcome: Outcome) -> None:
    """Within 10 % where one layer's rate, the network or the disk binds, within 20 % where two cores do."""
    cpu_bound = not outcome.case.name.startswith(("x20", "disk26"))
    if outcome.case.name == RACES:
        assert outcome.inside
        return
    assert abs(outcome.error) <= (0.20 if cpu_bound else 0.10)


def test_measured_pulls_on_average() -> None:
    result = accuracy(lab())
    assert result.mean_error <= 0.06
    assert result.inside >= 0.90
    assert result.mean_width <= 1.3


def test_the_targets_are_told_group_by_group_whether_met_or_not() -> None:
    rows = {row.split("|")[1].strip(): row for row in targets(list(published() + lab())).splitlines()[2:]}
    assert len(rows) == len(TARGETS)
    for words, group, error, left_out in TARGETS:
        cases = [each for each in published() + lab() if (each.case.group == group if group else each in published())]
        result = accuracy(cases)
        assert f"| {len(cases)} |" in rows[words]
        assert f" {result.mean_error:.1%} |" in rows[words]
        if result.mean_error > error:
            assert rows[words].endswith("NO |")
        elif result.mean_left_out_error <= left_out:
            assert rows[words].endswith("yes |")


def test_the_report_says_where_a_target_was_missed() -> None:
    written = REPORT.read_text()
    promise = written.partition("## What is promised")[2].partition("##")[0]
    missed = [row for row in written.splitlines() if row.endswith("| NO |") and row.count("|") == 8]
    assert {row.split("|")[1].strip() for row in missed} == {
        words for words, group, *_ in TARGETS if group in {"pulls", "starts"}
    }
    assert "no promise for a whole" in promise
    assert "published starts at most" not in written


def test_the_report_in_docs_is_the_current_one() -> None:
    written = REPORT.read_text().partition(MARK)[2]
    for outcome in published():
        row = next(line for line in written.splitlines() if line.startswith(f"| {outcome.case.name} |"))
        shown = float(row.split("|")[5])
        assert shown == pytest.approx(outcome.estimate.expected_s, rel=2e-3, abs=0.01)


def test_tables_hold_every_case() -> None:
    found = list(published())
    assert len(table(found).splitlines()) == len(found) + 2
    assert summary(found).splitlines()[-1].startswith("| all |")


def test_every_case_has_a_source_and_fit_is_apart_from_check() -> None:
    uses = {outcome.case.name: outcome.case.source for outcome in (*published(), *lab())}
    assert all(uses.values())
    fitted_on = sum(case.fit for case in lab_cases(json.loads(LAB.read_text())["host"]))
    assert fitted_on <= 6
