"""Which start's answer may be recorded, and for which model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts.cli import run
from scripts.failure import Failure
from scripts.ledger import recorded_answer
from scripts.ledger.known_answer import answer_of

CASES = Path(__file__).resolve().parents[3] / "cases" / "starts"
CHECKED = {
    "check": "sanity",
    "right": True,
    "reason": "",
    "prompt": "2 + 2 =",
    "token_ids": [4, 5],
    "text": " 4",
    "firm_tokens": 1,
    "unknown": "none is recorded in s3://b/m.json",
}


def test_what_the_launcher_reads_is_kept_and_its_verdict_is_not() -> None:
    assert answer_of({"answer": CHECKED}) == {
        "prompt": "2 + 2 =",
        "token_ids": [4, 5],
        "text": " 4",
        "firm_tokens": 1,
    }


@pytest.mark.parametrize(
    ("launcher", "words"),
    [
        ({}, "has not checked an answer"),
        ({"answer": None}, "has not checked an answer"),
        ({"answer": CHECKED | {"right": False, "reason": "wrong answer: the answer is empty"}}, "the answer is empty"),
        ({"answer": CHECKED | {"token_ids": []}}, "no token ids"),
    ],
)
def test_no_other_start_may_be_recorded(launcher: dict[str, Any], words: str) -> None:
    with pytest.raises(Failure, match=words):
        answer_of(launcher)


STACK = "dev-qwen2-5-0-5b"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "STACK: nothing says which start is meant"),
        (["dev"], "is an environment"),
        ([STACK, "--record-answer"], "cannot be combined with --record-answer. Use it with STACK alone."),
        ([STACK, "--pod", "a"], "cannot be combined with --pod"),
        ([STACK, "--last", "3", "--watch"], "cannot be combined with --watch --last"),
        (["--from", str(CASES / "rehearsed-cache-on")], "cannot be combined with --from"),
        ([STACK, "--save", "x"], "cannot be combined with --save"),
    ],
)
def test_forgetting_looks_at_no_start(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["measure", "--forget-answer", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.fixture
def manifest(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The manifest of the stack's model in a bucket that is asked as S3 is: conditionally."""
    held: dict[str, Any] = {"answer": {"prompt": "2 + 2 =", "text": " 4"}}

    def forget(bucket: Any, model: Any, *, agreed: Callable[[str], None]) -> object:
        del bucket
        if "answer" in held:
            agreed(f"{model} has a recorded answer")
        return held.pop("answer", None)

    monkeypatch.setattr(recorded_answer, "forget", forget)
    monkeypatch.setattr(recorded_answer, "connect", lambda *_, **__: None)
    return held


def test_what_is_forgotten_is_said(manifest: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["measure", STACK, "--forget-answer", "--yes"]) == 0
    assert "forgotten: '2 + 2 =' → ' 4'" in capsys.readouterr().out
    assert manifest == {}
    assert run(["measure", STACK, "--forget-answer"]) == 0
    assert "nothing to forget: no answer is recorded in s3://" in capsys.readouterr().out


def test_what_is_forgotten_is_one_document(manifest: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    removed = manifest["answer"]
    assert run(["measure", STACK, "--forget-answer", "--yes", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["format"], document["removed"]) == (1, removed)
    assert document["manifest"].startswith("s3://")


def test_nothing_is_forgotten_unasked(manifest: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["measure", STACK, "--forget-answer"]) == 2
    assert "a recorded answer is removed, and nobody can be asked here. Add --yes." in capsys.readouterr().err
    assert "answer" in manifest


@pytest.mark.parametrize(
    "arguments",
    [
        ["--from", str(CASES / "rehearsed-cache-on")],
        ["--from", str(CASES / "rehearsed-cache-on"), "--watch"],
        ["dev-qwen2-5-0-5b", "--trigger"],
    ],
)
def test_bad_input_is_exit_code_2(arguments: list[str]) -> None:
    assert run(["measure", "--record-answer", *arguments]) == 2
