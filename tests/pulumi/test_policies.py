"""The policy pack under the CLI: the shipped stacks pass, and a change that breaks a guardrail is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pulumi.conftest import ready_to_use
from tests.pulumi.workspace import Workspace, copy_of_this_project
from tests.standin.processes import Moto

PACK = "infra/policies"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, moto: Moto) -> Workspace:
    """Previews only, so no cluster is needed."""
    folder = tmp_path_factory.mktemp("policies")
    return ready_to_use(Workspace(folder, copy_of_this_project(folder / "project"), moto=moto))


def replaced(file: Path, old: str, new: str) -> None:
    """Edits the program, as somebody would who does not know the guardrails."""
    text = file.read_text()
    assert text.count(old) == 1, f"{file.name} has {text.count(old)} times {old!r}"
    file.write_text(text.replace(old, new))


def test_a_shipped_stack_passes_and_a_violation_is_stopped(workspace: Workspace) -> None:
    stack = workspace.stack("dev")
    assert stack.preview("--policy-pack", PACK).errors == []
    nodes = workspace.project / "infra" / "nodes.py"
    replaced(nodes, '"http_put_response_hop_limit": 1,', '"http_put_response_hop_limit": 2,')
    stopped = stack.preview("--policy-pack", PACK, fails=True)
    violations = [error for error in stopped.errors if error.startswith("metadata-guarded")]
    assert violations
    assert all("instance metadata answers pods (hop limit is not 1)" in violation for violation in violations)
    stack.up("--policy-pack", PACK, fails=True, after_preview=True)
    assert workspace.records.all() == []
