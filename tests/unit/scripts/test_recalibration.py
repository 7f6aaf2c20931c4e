"""A user's own ledgers: refitted, stored beside the stack, used by the next plan."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from budget.coefficients import coefficients
from budget.cost import DEFAULT_TERMS
from budget.problems import BadInput
from infra.forecast import factors_of, factors_path
from infra.stack_file import STACKS, read
from scripts.plan_stack import model_plan
from scripts.recalibration import ledger_of, recalibrate


def ledger(path: Path, phases: dict[str, object], **more: object) -> Path:
    path.write_text(json.dumps({"phases_s": phases, **more}))
    return path


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    """The shipped stack files in a folder of the test: factors are kept beside them."""
    return Path(shutil.copytree(STACKS, tmp_path / "stacks"))


def test_factors_are_refitted_and_kept_per_environment(tmp_path: Path, stacks: Path) -> None:
    ledgers = [ledger(tmp_path / f"{run}.json", {"node": 80 + run, "pull": None}) for run in range(3)]
    answer = recalibrate("dev-llama-3-1-8b", ledgers, stacks)
    assert answer["environment"] == "dev"
    assert answer["factors"]["node_s"]["after"] == pytest.approx(81, rel=0.03)
    assert answer["phases"]["node"]["after_s"] == pytest.approx(81, rel=0.03)
    kept = factors_of(read("dev", stacks))
    assert kept["node_s"] == pytest.approx(81, rel=0.03)
    assert kept["unpack_speed"] == coefficients()["unpack_speed"]
    assert "3 ledgers" in kept.by_name["node_s"].source


def test_later_ledgers_keep_what_earlier_ones_taught(tmp_path: Path, stacks: Path) -> None:
    recalibrate("dev-llama-3-1-8b", [ledger(tmp_path / "a.json", {"node": 80})], stacks)
    recalibrate("dev-llama-3-1-8b", [ledger(tmp_path / "b.json", {"start": 30, "engine": 70})], stacks)
    kept = factors_of(read("dev", stacks))
    assert kept["node_s"] == pytest.approx(80, rel=0.03)
    assert kept["cpu_factor_g6e"] != coefficients()["cpu_factor_g6e"]


def test_without_a_file_the_shipped_factors_count(stacks: Path) -> None:
    assert factors_of(read("dev", stacks)) is coefficients()


def test_a_plan_goes_by_the_factors_beside_its_own_stack_file(tmp_path: Path, stacks: Path) -> None:
    def node_s() -> float:
        stack = read("dev-llama-3-1-8b", stacks)
        assert stack.model is not None
        plan = model_plan(stack, stack.model, terms=DEFAULT_TERMS, slo_s=None)
        return plan.budget.phases["node"].expected_s

    before = node_s()
    recalibrate("dev-llama-3-1-8b", [ledger(tmp_path / "a.json", {"node": before + 60})], stacks)
    assert node_s() == pytest.approx(before + 60, rel=0.03)


@pytest.mark.parametrize("text", ["{", "[]", '{"factors": {"node_s": "fast"}}', '{"source": "x", "factors": [1]}'])
def test_a_broken_factors_file_is_told(stacks: Path, text: str) -> None:
    stack = read("dev", stacks)
    factors_path(stack).write_text(text)
    with pytest.raises(BadInput, match=r"factors\.dev\.json"):
        factors_of(stack)


def test_a_ledger_of_the_launcher(tmp_path: Path) -> None:
    path = ledger(tmp_path / "l.json", {"start": 9.5, "weights": None}, compile_cache={"hit": True})
    found = ledger_of(path)
    assert found.phases_s == {"start": 9.5}
    assert found.cache_hit is True


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is no JSON"),
        ("{}", "has no `phases_s`"),
        ('{"phases_s": {"boot": 1}}', "is not a phase"),
        ('{"phases_s": {"node": -1}}', "found -1"),
        ('{"phases_s": {"node": "long"}}', "found 'long'"),
    ],
)
def test_ledgers_that_are_none(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "ledger.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=words):
        ledger_of(path)


def test_every_bad_ledger_is_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    with pytest.raises(BadInput) as caught:
        recalibrate("dev-llama-3-1-8b", [bad, tmp_path / "missing.json"])
    assert len(caught.value.problems) == 2


def test_an_environment_has_no_starts(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is an environment"):
        recalibrate("dev", [ledger(tmp_path / "a.json", {"node": 80})])
