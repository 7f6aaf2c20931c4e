"""`coldstart measure` on saved folders: documents, files, exit codes, and options that contradict each other."""

from __future__ import annotations

import errno
import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from scripts.cli import cli, run
from scripts.ledger import picture
from scripts.ledger.folder import load, starts_in
from scripts.ledger.merge import ledger_of
from scripts.ledger.metric_table import table
from scripts.ledger.observability import files

CASES = Path(__file__).resolve().parents[3] / "cases" / "starts"
DOCS = Path(__file__).resolve().parents[4] / "docs"


def test_one_document_on_stdout() -> None:
    result = CliRunner().invoke(cli, ["measure", "--from", str(CASES / "fresh-node"), "--json"])
    document = json.loads(result.stdout)
    assert document["format"] == 1
    assert document["ledgers"][0]["next"].startswith("engine is furthest over its budget")


def test_a_table_ends_with_what_to_do_next() -> None:
    result = CliRunner().invoke(cli, ["measure", "--from", str(CASES / "stranger-tp2")])
    assert result.exit_code == 0
    assert "compile-cache was off. Keep the compile cache" in " ".join(result.stdout.split())


def test_nothing_measured_is_exit_code_1() -> None:
    assert run(["measure", "--from", str(CASES / "never-scheduled")]) == 1


def test_a_folder_that_cannot_be_read_is_named_and_the_rest_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(CASES / "fresh-node", tmp_path / "readable")
    closed = tmp_path / "closed"
    closed.mkdir()
    really = Path.is_file

    def is_file(path: Path) -> bool:
        if path.parent == closed:  # a mode of 0 would not keep root out
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return really(path)

    monkeypatch.setattr(Path, "is_file", is_file)
    assert run(["measure", "--from", str(tmp_path), "--json"]) == 1
    said = capsys.readouterr()
    assert len(json.loads(said.out)["ledgers"]) == 1
    assert f"failed: not measured: {closed}/pod.json: can't be read: Permission denied." in said.err
    assert run(["regress", "--baseline", str(tmp_path / "new.json"), "--write", "--from", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--from", "/nowhere"],
        ["--from", str(CASES), "--save", "x"],
        ["--watch", "--trigger"],
        ["--cold", "node", "--from", str(CASES)],
        ["--ab", "no-lever"],
        ["--rehearse", "dev-qwen2-5-0-5b"],
        [],
        ["--pod", "name-without-namespace"],
        ["dev-nothing"],
        ["dev"],
        ["--last", "0"],
        ["--pod", "a/b", "--aws"],
    ],
)
def test_bad_input_is_exit_code_2(arguments: list[str]) -> None:
    assert run(["measure", *arguments]) == 2


@pytest.mark.parametrize("folder", starts_in(CASES), ids=lambda path: path.name)
def test_the_picture_is_well_formed_and_shows_every_phase(folder: Path) -> None:
    ledger = ledger_of(load(folder))
    root = ET.fromstring(picture.svg([ledger]))  # noqa: S314 - our own text
    width = float(root.attrib["width"])
    words = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {*ledger.phases, "unaccounted"} <= set(words)
    for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(rect.attrib.get("x", 0)) + float(rect.attrib["width"]) <= width + 1
    assert "missing" in words or all(phase.seconds is not None for phase in ledger.phases.values())


def test_a_page_is_written(tmp_path: Path) -> None:
    page = tmp_path / "start.html"
    assert (
        run(["measure", "--from", str(CASES / "fresh-node"), "--html", str(page), "--svg", str(tmp_path / "s.svg")])
        == 0
    )
    assert "<h1>Cold start measured</h1>" in page.read_text()


@pytest.mark.parametrize("name", files())
def test_the_documents_are_those_of_the_table(name: str) -> None:
    assert (DOCS / name).read_text() == files()[name], "coldstart measure --metrics-docs docs"


def test_labels_are_bounded() -> None:
    known = {"model", "phase", "bound", "cold", "state", "result", "lever", "resource", "reason", "method"}
    assert {label for metric in table().metrics.values() for label in metric.labels} <= known


def test_alerts_and_panels_name_metrics_of_the_table() -> None:
    names = set(table().metrics)
    for text in (*(alert.expr for alert in table().alerts), *(panel.query for panel in table().panels)):
        assert any(name in text for name in names), text
