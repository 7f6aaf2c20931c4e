"""Every wrong stack file gets the words that were meant for it, all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from budget.problems import BadInput
from infra.rules import check
from infra.stack_file import read
from tests.unit.infra.changed_stacks import change

HERE = Path(__file__).parent
CASES: list[dict[str, Any]] = yaml.safe_load((HERE / "bad_stacks.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_wrong_stack_file_gets_exactly_these_words(case: dict[str, Any], stacks: Path) -> None:
    name = change(stacks, case["stack"], case["set"], rename=case.get("rename"))
    with pytest.raises(BadInput) as caught:
        check(read(name, stacks))
    assert str(caught.value).splitlines() == case["says"]


def test_there_are_at_least_twenty() -> None:
    assert len({case["name"] for case in CASES}) == len(CASES) >= 20


@pytest.mark.parametrize("name", ["dev", "dev-llama-3-1-8b", "dev-qwen2-5-0-5b", "dev-qwen3-32b"])
def test_the_shipped_stacks_are_right(name: str, stacks: Path) -> None:
    check(read(name, stacks))


def test_a_file_that_is_no_yaml(stacks: Path) -> None:
    (stacks / "Pulumi.dev.yaml").write_text("config:\n  - a: [\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"Pulumi\.dev\.yaml line \d: not YAML"):
        read("dev", stacks)


def test_a_file_without_config(stacks: Path) -> None:
    (stacks / "Pulumi.dev.yaml").write_text("settings: {}\n", encoding="utf-8")
    with pytest.raises(BadInput, match="has no `config:` section"):
        read("dev", stacks)
