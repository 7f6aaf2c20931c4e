"""The recorded starts: a folder each, with the right ledger beside it, written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.ledger.advice import next_step
from scripts.ledger.facts import PHASES
from scripts.ledger.folder import load
from scripts.ledger.merge import ledger_of
from scripts.ledger.record import Ledger, document, from_document

CASES = Path(__file__).resolve().parents[3] / "cases" / "starts"
NAMES = sorted(path.name for path in CASES.iterdir() if (path / "right.json").is_file())


def right(name: str) -> dict[str, Any]:
    return json.loads((CASES / name / "right.json").read_text())


def measured(name: str) -> Ledger:
    return ledger_of(load(CASES / name))


def test_there_are_at_least_ten() -> None:
    assert len(NAMES) >= 10


@pytest.mark.parametrize("name", NAMES)
def test_the_ledger_is_the_right_one(name: str) -> None:
    ledger, wanted = measured(name), right(name)
    assert ledger.state == wanted["state"]
    assert ledger.cold == wanted["cold"]
    assert {phase: ledger.phases[phase].seconds for phase in PHASES} == pytest.approx(wanted["phases"], abs=0.002)
    assert ledger.wall_clock_s == pytest.approx(wanted["wall_clock_s"], abs=0.002)
    assert ledger.unaccounted_s == pytest.approx(wanted["unaccounted_s"], abs=0.002)
    assert ledger.measured == wanted.get("measured", True)


@pytest.mark.parametrize("name", NAMES)
def test_what_it_says_beside_the_seconds(name: str) -> None:
    ledger, wanted = measured(name), right(name)
    for phase, why in wanted.get("missing", {}).items():
        assert why in ledger.phases[phase].missing
    for note in wanted.get("notes", []):
        assert any(note in said for said in ledger.notes)
    for lever, state in wanted.get("proofs", {}).items():
        assert {proof.lever: proof.state for proof in ledger.proofs}[lever] == state
    if "attempts" in wanted:
        assert [attempt.reason for attempt in ledger.attempts] == wanted["attempts"]
    if "skew_s" in wanted:
        assert ledger.skew is not None
        assert ledger.skew.estimate_s == wanted["skew_s"]
    else:
        assert ledger.skew is None or ledger.skew.estimate_s == 0
    assert wanted.get("next", "") in next_step(ledger)


@pytest.mark.parametrize("name", NAMES)
def test_phases_and_unaccounted_are_the_wall_clock(name: str) -> None:
    ledger = measured(name)
    seen = sum(phase.seconds for phase in ledger.phases.values() if phase.seconds is not None)
    assert seen + ledger.unaccounted_s == pytest.approx(ledger.wall_clock_s, abs=1e-6)
    at = 0.0
    for segment in ledger.segments:
        assert segment.begin_s == pytest.approx(at, abs=1e-6)
        assert segment.end_s >= segment.begin_s
        at = segment.end_s
    assert at == pytest.approx(ledger.wall_clock_s, abs=1e-6)
    gaps = sum(segment.end_s - segment.begin_s for segment in ledger.segments if segment.phase is None)
    assert gaps == pytest.approx(ledger.unaccounted_s, abs=1e-6)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("rehearsed")])
def test_a_rehearsed_start_is_explained_but_for_two_hundredths(name: str) -> None:
    ledger = measured(name)
    assert ledger.wall_clock_s > 10
    assert ledger.unaccounted_s <= 0.02 * ledger.wall_clock_s


@pytest.mark.parametrize("name", NAMES)
def test_every_missing_phase_says_why_and_none_is_zero_without_evidence(name: str) -> None:
    for phase in measured(name).phases.values():
        assert (phase.seconds is None) == bool(phase.missing)
        if phase.seconds == 0:
            assert phase.evidence


def test_a_pod_that_was_never_scheduled_proves_no_lever() -> None:
    proofs = {proof.lever: proof for proof in measured("never-scheduled").proofs}
    assert {proof.state for proof in proofs.values()} == {"unknown"}
    assert "has not run: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu." in proofs["identity"].evidence


@pytest.mark.parametrize("name", NAMES)
def test_it_survives_its_json(name: str) -> None:
    written = document(measured(name))
    assert document(from_document(json.loads(json.dumps(written)))) == written
