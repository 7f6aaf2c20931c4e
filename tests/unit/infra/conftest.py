"""Stacks as the program declares them, evaluated once for all the tests that look at them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from infra.offline import Evaluation, evaluate
from infra.stack_file import STACKS
from tests.unit.infra.changed_stacks import change

Declared = Callable[..., Evaluation]


@pytest.fixture(scope="session")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Declared:
    """Evaluates a shipped stack with changed settings; the same question is answered from memory."""
    known: dict[str, Evaluation] = {}
    folders: dict[str, Path] = {}

    def folder(environment: Mapping[str, Any]) -> Path:
        """Stack files on one environment: models on the same one share its evaluation."""
        key = json.dumps(environment, sort_keys=True)
        if key not in folders:
            folders[key] = tmp_path_factory.mktemp("declared") / "stacks"
            shutil.copytree(STACKS, folders[key])
            change(folders[key], "dev", dict(environment))
        return folders[key]

    def evaluated(
        stack: str,
        changes: Mapping[str, Any] | None = None,
        *,
        environment: Mapping[str, Any] | None = None,
        secret: str | None = None,
        mode: Literal["preview", "up"] = "up",
        adopted: bool = False,
    ) -> Evaluation:
        question = json.dumps([stack, changes, environment, secret, mode, adopted], sort_keys=True)
        if question not in known:
            directory = folder(dict(environment or {}) | (dict(changes or {}) if stack == "dev" else {}))
            if stack != "dev":
                shutil.copy(STACKS / f"Pulumi.{stack}.yaml", directory)
                change(directory, stack, dict(changes or {}))
            if secret:
                _set_api_key(directory / f"Pulumi.{stack}.yaml", secret)
            known[question] = evaluate(stack, directory=directory, mode=mode, adopted=adopted)
        return known[question]

    return evaluated


def _set_api_key(path: Path, secret: str) -> None:
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("config:\n", f"config:\n  coldstart:apiKey: {secret}\n", 1), encoding="utf-8")
