"""Folders and baselines of nonsense: a partial ledger or one message, the right exit code, never a traceback."""

from __future__ import annotations

import json
import os
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.cli import run
from scripts.ledger import picture
from scripts.ledger.bundle import Bundle
from scripts.ledger.folder import load, starts_in
from scripts.ledger.merge import ledger_of
from scripts.ledger.record import document, from_document

CASES = Path(__file__).resolve().parents[3] / "cases" / "starts"
LONG = 3_000_000
"""Characters of a line that nothing quadratic would ever finish."""


def copied(folder: Path, case: str) -> Path:
    """A recorded start that may be spoilt."""
    for path in (CASES / case).iterdir():
        if path.name != "right.json":
            (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("pod.json", b"[1]", "pod.json holds no JSON object"),
        ("pod.json", b"[" * 100_000, "pod.json is not JSON: nested too deeply"),
        ("pod.json", b'{"kind": "Deployment"}', "pod.json holds a Deployment, not a Pod: save it by `kubectl get pod"),
        ("pod.json", b'{"kind": "List", "items": []}', "pod.json holds a List, not a Pod"),
        ("node.json", b'{"kind": "Pod"}', "node.json holds a Pod, not a Node"),
        ("engine.log", bytes(range(256)) * 100, "no line is vLLM's"),
        ("engine.log", b"9" * LONG, "no line is vLLM's"),
        ("engine.log", b'{"message":' * 50_000, "no line is vLLM's"),
        ("engine.log", b"2026-11-30T12:00:00.1Z stdout P " + b"x" * LONG, "no line is vLLM's"),
        ("collected.json", b'{"collected_s": 1e300}', "collected_s is 1e+300, which is not a Unix time of the years"),
    ],
)
def test_nothing_but_nonsense_is_measured_as_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, why: str
) -> None:
    (tmp_path / "launcher.json").write_text("{}")
    (tmp_path / name).write_bytes(content)
    assert run(["measure", "--from", str(tmp_path)]) == 1
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", [b"Starting to load model ", b"[RunAI Streamer] Rank 0: CPU ring ", b"Capturing CUDA graph "]
)
def test_a_long_line_is_known_by_its_head(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "engine.log").write_bytes(line * (LONG // len(line)))
    assert not ledger_of(load(tmp_path)).measured


def test_a_launcher_that_counts_backwards_measures_nothing_of_the_pod(tmp_path: Path) -> None:
    path = copied(tmp_path, "fresh-node") / "launcher.json"
    found = json.loads(path.read_text())
    for segment in found["segments"]:
        segment["begin_s"], segment["end_s"] = -segment["begin_s"], -segment["end_s"]
    path.write_text(json.dumps(found))
    ledger = ledger_of(load(tmp_path))
    assert ledger.phases["pull"].seconds is not None
    assert {ledger.phases[name].seconds for name in ("start", "weights", "engine", "warmup")} == {None}
    assert "the document is not a ledger of the launcher" in [absence.why for absence in ledger.absences]


@pytest.mark.parametrize("year", ["9999-12-31", "0001-01-01"])
def test_a_year_that_no_start_had_is_said_and_not_counted(tmp_path: Path, year: str) -> None:
    path = copied(tmp_path, "fresh-node") / "pod.json"
    path.write_text(path.read_text().replace("2026-11-30", year))
    ledger = ledger_of(load(tmp_path))
    assert ledger.measured
    assert ledger.wall_clock_s < 600
    assert any("pod, creationTimestamp" in note and "the years 1970 to 2200" in note for note in ledger.notes)


@pytest.mark.parametrize("spoil", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_is_not_read(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    spoil(copied(tmp_path, "fresh-node") / "engine.log")
    ledger = ledger_of(load(tmp_path))
    assert ledger.measured
    assert any(absence.why.startswith("engine.log") for absence in ledger.absences)


def test_a_folder_that_may_not_be_read_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def denied(path: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", denied)
    assert run(["measure", "--from", str(tmp_path)]) == 2
    assert f"error: {tmp_path}: can't be read: Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "\x00", "\ud800", "[/x]", "<&>"])
def test_odd_names_leave_documents_well_formed(tmp_path: Path, name: str) -> None:
    path = copied(tmp_path, "fresh-node") / "pod.json"
    pod = json.loads(path.read_text())
    pod["metadata"]["name"] = pod["metadata"]["labels"]["coldstart/model"] = name
    path.write_text(json.dumps(pod))
    svg, page = tmp_path / "a.svg", tmp_path / "a.html"
    assert run(["measure", "--from", str(tmp_path), "--svg", str(svg), "--html", str(page)]) == 0
    ET.fromstring(svg.read_text())  # noqa: S314 - our own text


@pytest.mark.parametrize("hours", [13, 240, 24 * 365])
def test_a_pod_that_waited_for_long_is_drawn(hours: int) -> None:
    bundle = load(CASES / "never-scheduled")
    ledger = ledger_of(Bundle(pod=bundle.pod, collected_s=(bundle.collected_s or 0.0) + 3600 * hours))
    root = ET.fromstring(picture.svg([ledger]))  # noqa: S314 - our own text
    assert len(list(root)) < 200


def members(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every object and list with each of its keys."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from members(value[key])


NONSENSE: list[Any] = [
    *(None, True, -1, 1e308, float("nan"), float("inf"), 10**400, "", "x", [], {}, [[]], {"a": 1}, "9" * 30, "²"),
    *("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:00", "\ud800", "[/a]", "1.2.3"),
]


@settings(deadline=None, max_examples=150)
@given(data=st.data(), case=st.sampled_from(["fresh-node", "control-plane", "stranger-tp2", "restarted-container"]))
def test_any_value_anywhere_leaves_a_ledger(data: st.DataObject, case: str) -> None:
    names = sorted(path.name for path in (CASES / case).glob("*.json") if path.name != "right.json")
    name = data.draw(st.sampled_from(names))
    found = json.loads((CASES / case / name).read_text())
    holder, key = data.draw(st.sampled_from(list(members(found))))
    holder[key] = deepcopy(data.draw(st.sampled_from(NONSENSE)))
    with tempfile.TemporaryDirectory() as folder:
        (copied(Path(folder), case) / name).write_text(json.dumps(found))
        ledger = ledger_of(load(Path(folder)))
    written = json.dumps(document(ledger), allow_nan=False)
    assert document(from_document(json.loads(written))) == json.loads(written)
    ET.fromstring(picture.svg([ledger]))  # noqa: S314 - our own text


GOOD = {"format": 1, "model": "llama", "phases": {"pull": [1.0, 2.0]}}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON: nested too deeply"),
        ("[1]", "is not a baseline of format 1"),
        ({"model": "mistral"}, "is a baseline of mistral, and these starts are of llama. Name the baseline of llama"),
        ({"model": None}, "model: does not say whose starts these are"),
        ({"phases": "x"}, "phases: holds no phase"),
        ({"phases": {}}, "phases: holds no phase"),
        *(
            ({"phases": {"pull": samples}}, "phases.pull: is not a list of a phase's seconds, none")
            for samples in ([float("nan")], [float("inf")], [-1.0], [True], ["1"], [10**400], [], 3, None)
        ),
    ],
)
def test_a_baseline_of_nonsense_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | dict[str, Any], why: str
) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(content if isinstance(content, str) else json.dumps(GOOD | content))
    assert run(["regress", "--baseline", str(path), "--from", str(CASES / "fresh-node")]) == 2
    assert why in capsys.readouterr().err


def test_starts_of_several_models_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(starts_in(CASES)) > 1
    assert run(["regress", "--baseline", str(tmp_path / "b.json"), "--write", "--from", str(CASES)]) == 2
    assert "holds starts of several models" in capsys.readouterr().err
    assert not (tmp_path / "b.json").exists()
