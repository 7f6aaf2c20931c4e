"""Which start's answer may be recorded, and for which model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.cli import run
from scripts.failure import Failure
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
        ({}, "has checked no answer"),
        ({"answer": None}, "has checked no answer"),
        ({"answer": CHECKED | {"right": False, "reason": "wrong answer: the answer is empty"}}, "the answer is empty"),
        ({"answer": CHECKED | {"token_ids": []}}, "no token ids"),
    ],
)
def test_no_other_start_may_be_recorded(launcher: dict[str, Any], words: str) -> None:
    with pytest.raises(Failure, match=words):
        answer_of(launcher)


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
