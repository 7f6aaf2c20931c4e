"""A user's own ledgers: refitted, stored beside the stack, used by the next plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from budget.coefficients import coefficients
from budget.problems import BadInput
from infra.forecast import factors_of, factors_path
from scripts import recalibration
from scripts.recalibration import ledger_of, recalibrate


def ledger(path: Path, phases: dict[str, object], **more: object) -> Path:
    path.write_text(json.dumps({"phases_s": phases, **more}))
    return path


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Factors go to a folder of the test instead of the project's stack files."""
    monkeypatch.setattr(recalibration, "factors_path", lambda environment: factors_path(environment, tmp_path))
    return tmp_path


def test_factors_are_refitted_and_kept_per_environment(tmp_path: Path, stored: Path) -> None:
    ledgers = [ledger(tmp_path / f"{run}.json", {"node": 80 + run, "pull": None}) for run in range(3)]
    answer = recalibrate("dev-llama-3-1-8b", ledgers)
    assert answer["environment"] == "dev"
    assert answer["factors"]["node_s"]["after"] == pytest.approx(81, rel=0.03)
    assert answer["phases"]["node"]["after_s"] == pytest.approx(81, rel=0.03)
    kept = factors_of("dev", stored)
    assert kept["node_s"] == pytest.approx(81, rel=0.03)
    assert kept["unpack_speed"] == coefficients()["unpack_speed"]
    assert "3 ledgers" in kept.by_name["node_s"].source


def test_later_ledgers_keep_what_earlier_ones_taught(tmp_path: Path, stored: Path) -> None:
    recalibrate("dev-llama-3-1-8b", [ledger(tmp_path / "a.json", {"node": 80})])
    recalibrate("dev-llama-3-1-8b", [ledger(tmp_path / "b.json", {"start": 30, "engine": 70})])
    kept = factors_of("dev", stored)
    assert kept["node_s"] == pytest.approx(80, rel=0.03)
    assert kept["cpu_factor_g6e"] != coefficients()["cpu_factor_g6e"]


def test_without_a_file_the_shipped_factors_count(tmp_path: Path) -> None:
    assert factors_of("dev", tmp_path) is coefficients()


@pytest.mark.parametrize("text", ["{", "[]", '{"factors": {"node_s": "fast"}}', '{"source": "x", "factors": [1]}'])
def test_a_broken_factors_file_is_told(tmp_path: Path, text: str) -> None:
    factors_path("dev", tmp_path).write_text(text)
    with pytest.raises(BadInput, match=r"factors\.dev\.json"):
        factors_of("dev", tmp_path)


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
        ('{"phases_s": {"boot": 1}}', "is no phase"),
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
