"""A wrong stack file ends `pulumi preview` with the words that were meant for it, and no traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from budget.counted import counted
from tests.pulumi.workspace import Workspace, copy_of_this_project
from tests.standin.processes import Moto
from tests.toolchain.engines import ROOT
from tests.unit.infra.changed_stacks import change

CASES: list[dict[str, Any]] = yaml.safe_load((ROOT / "tests/unit/infra/bad_stacks.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, moto: Moto) -> Workspace:
    """One workspace for all cases; each starts from the shipped stack files again."""
    folder = tmp_path_factory.mktemp("bad-stacks")
    return Workspace(folder, copy_of_this_project(folder / "project"), moto=moto)


@pytest.fixture
def workspace(original: Workspace) -> Workspace:
    stacks = original.project / "infra" / "stacks"
    for file in stacks.glob("*.yaml"):
        file.unlink()
    for file in (ROOT / "infra" / "stacks").glob("*.yaml"):
        (stacks / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    return original


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_wrong_stack_file_ends_the_preview_with_its_problems(workspace: Workspace, case: dict[str, Any]) -> None:
    stacks: Path = workspace.project / "infra" / "stacks"
    name = change(stacks, case["stack"], case["set"], rename=case.get("rename"))
    ended = workspace.stack(name).preview(fails=True)
    assert ended.changes == {}
    assert "Traceback" not in ended.text
    (message,) = [error for error in ended.errors if f" in stack {name}:" in error]
    heading, *problems = message.splitlines()
    assert heading == f"{counted(len(case['says']), 'problem')} in stack {name}:"
    assert problems == case["says"]
