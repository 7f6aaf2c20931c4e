"""Names that a stack can't have, and keys that are meant for this project but spelt otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from budget.problems import BadInput
from infra.settings import KINDS
from infra.shapes import EXAMPLES
from infra.stack_file import names, read


@pytest.mark.parametrize("name", ["dev-UPPER", "dev-x.y", "dev-ü", "dev-a b", "dev-", "-h", "../../../etc/passwd", ""])
def test_a_name_that_no_stack_can_have(name: str, stacks: Path) -> None:
    with pytest.raises(BadInput, match="is not a valid stack name"):
        read(name, stacks)


def test_a_file_that_no_stack_can_have_is_not_proposed(stacks: Path) -> None:
    (stacks / "Pulumi.dev-UPPER.yaml").write_text("config: {}\n", encoding="utf-8")
    assert "dev-UPPER" not in names(stacks)


def test_a_misspelt_namespace_is_not_ignored(stacks: Path) -> None:
    path = stacks / "Pulumi.dev.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["config"]["coldstrat:model"] = {}
    document["config"]["aws:region"] = "us-west-2"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        read("dev", stacks)
    (problem,) = caught.value.problems
    assert str(problem).startswith("coldstrat:model: unknown key. Did you mean coldstart:model")


def test_a_file_nested_a_thousand_times(stacks: Path) -> None:
    (stacks / "Pulumi.dev.yaml").write_text("config: " + "{a: " * 3000 + "1" + "}" * 3000, encoding="utf-8")
    with pytest.raises(BadInput, match="nested too deeply"):
        read("dev", stacks)


def test_a_number_without_an_end(stacks: Path) -> None:
    """In a file alone: Pulumi's engine refuses it itself."""
    path = stacks / "Pulumi.dev-llama-3-1-8b.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["config"]["coldstart:model"]["cost"] = {"max_usd_per_hour": float("inf")}
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises(BadInput, match=r"model\.cost\.max_usd_per_hour: found inf\. It should be a finite number"):
        read("dev-llama-3-1-8b", stacks)


def patterns(tree: object) -> Iterator[str]:
    match tree:
        case dict():
            if isinstance(tree.get("pattern"), str):
                yield tree["pattern"]
            for each in tree.values():
                yield from patterns(each)
        case list():
            for each in tree:
                yield from patterns(each)


@pytest.mark.parametrize("tree", KINDS.values(), ids=KINDS)
def test_every_pattern_has_an_example_that_matches(tree: type[BaseModel]) -> None:
    schema: dict[str, Any] = tree.model_json_schema()
    found = set(patterns(schema))
    assert found
    for pattern in found:
        assert all(re.search(pattern, example) for example in EXAMPLES[pattern].split(" or "))
