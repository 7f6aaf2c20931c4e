"""Saved folders: secrets out, everything else back; what is broken is an absence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budget.problems import BadInput
from scripts.ledger.bundle import Bundle
from scripts.ledger.folder import load, save, starts_in
from scripts.ledger.merge import ledger_of
from scripts.ledger.redaction import REMOVED, clean, clean_text

SECRETS = ("hf_abcdefghijklmnopqrstuv", "AKIAABCDEFGHIJKLMNOP", "s3cr3t-value-of-a-key", "sk-live-4242424242")


def test_nothing_secret_is_saved(tmp_path: Path) -> None:
    container = {
        "name": "engine",
        "image": "vllm",
        "args": ["--api-key", "sk-live-4242424242", "--api-key=sk-live-4242424242", "--max-num-batched-tokens", "8192"],
        "env": [
            {"name": "VLLM_API_KEY", "value": "s3cr3t-value-of-a-key"},
            {"name": "AWS_SECRET_ACCESS_KEY", "value": "s3cr3t-value-of-a-key"},
            {"name": "AWS_CONTAINER_CREDENTIALS_FULL_URI", "value": "http://169.254.170.23/v1/credentials"},
            {"name": "NO_COLOR", "value": "1"},
        ],
    }
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": "s3cr3t-value-of-a-key", "kept": "yes"}
    pod = {"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": [container]}}
    log = (
        "non-default args: {'api_key': ['sk-live-4242424242']}\ntoken hf_abcdefghijklmnopqrstuv AKIAABCDEFGHIJKLMNOP\n"
    )
    files = save(Bundle(pod=pod, log=log, collected_s=1.0), tmp_path / "saved")
    written = "".join(path.read_text() for path in files)
    assert not [secret for secret in SECRETS if secret in written]
    kept = load(tmp_path / "saved").pod["spec"]["containers"][0]
    assert kept["args"] == ["--api-key", REMOVED, f"--api-key={REMOVED}", "--max-num-batched-tokens", "8192"]
    assert [entry["value"] for entry in kept["env"]] == [REMOVED, REMOVED, "http://169.254.170.23/v1/credentials", "1"]


def test_what_is_saved_measures_the_same(tmp_path: Path) -> None:
    case = Path(__file__).resolve().parents[3] / "cases" / "starts" / "clock-skew"
    bundle = load(case)
    save(bundle, tmp_path)
    assert ledger_of(load(tmp_path)) == ledger_of(bundle)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("pod.json", "{not json", "pod.json is not JSON"),
        ("pod.json", "[1, 2]", "pod.json holds no JSON object"),
        ("events.json", '"none"', "events.json holds no list of events"),
        ("launcher.json", '{"started_at": "yesterday"}', "the document is not a ledger of the launcher"),
        ("engine.log", "2026-11-30 INFO text_generation_launcher: Args {...}\n", "no line is vLLM's"),
    ],
)
def test_a_broken_file_is_an_absence_and_the_rest_is_measured(
    tmp_path: Path, name: str, content: str, why: str
) -> None:
    case = Path(__file__).resolve().parents[3] / "cases" / "starts" / "image-present"
    for path in case.iterdir():
        if path.name != "right.json":
            (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / name).write_text(content)
    ledger = ledger_of(load(tmp_path))
    assert ledger.measured
    assert any(why in absence.why for absence in ledger.absences)
    seen = sum(phase.seconds for phase in ledger.phases.values() if phase.seconds is not None)
    assert seen + ledger.unaccounted_s == pytest.approx(ledger.wall_clock_s)


def test_bytes_that_are_no_text_are_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_bytes(b"\xff\xfe\x00 Starting to load model /x...\n")
    assert load(tmp_path).log


def test_no_folder_and_an_empty_one_are_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a folder"):
        starts_in(tmp_path / "none")
    with pytest.raises(BadInput, match="holds no start"):
        starts_in(tmp_path)


def test_a_folder_of_folders_is_several_starts() -> None:
    cases = Path(__file__).resolve().parents[3] / "cases" / "starts"
    assert len(starts_in(cases)) >= 10


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(json_values)
def test_cleaning_keeps_json_json_and_is_done_once(value: object) -> None:
    cleaned = clean(value)
    assert json.loads(json.dumps(cleaned)) == cleaned
    assert clean(cleaned) == cleaned


@settings(deadline=None)
@given(st.text(max_size=200))
def test_cleaning_text_is_done_once(text: str) -> None:
    assert clean_text(clean_text(text)) == clean_text(text)
