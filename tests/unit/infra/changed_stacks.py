"""Shipped stack files with a few keys changed: what the tests of settings and of the engine both start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

PROJECT = "coldstart"


def change(directory: Path, stack: str, changes: dict[str, Any], *, rename: str | None = None) -> str:
    """Changes keys (`model.nodes.instance`; None removes) of a stack file in `directory`; returns the stack's name."""
    path = directory / f"Pulumi.{stack}.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    for key, value in changes.items():
        kind, *parts = key.split(".")
        node, last = document["config"], f"{PROJECT}:{kind}"
        for part in parts:
            node = node.setdefault(last, {})
            last = part
        if value is None:
            del node[last]
        else:
            node[last] = value
    name = rename or stack
    path.unlink()
    (directory / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return name
