"""Python files that a pod gets from a ConfigMap, as plain text that can be read in the cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from budget.problems import bad_input

CODE_DIR = "/opt/coldstart"
MOST_CODE_BYTES = 1_000_000
"""A ConfigMap holds 1 MiB (Kubernetes documentation, ConfigMaps)."""


def digest(code: Mapping[str, str]) -> str:
    """Changes when the code does; part of the ConfigMap's name, so that new code is a new ConfigMap."""
    found = hashlib.sha256()
    for path, text in sorted(code.items()):
        found.update(f"{path}\0{text}\0".encode())
    return found.hexdigest()


def check_size(code: Mapping[str, str], *, what: str) -> None:
    """Refuses more code than a ConfigMap holds.

    Raises:
        BadInput: with the size; `what` names the code.
    """
    size = sum(len(text.encode()) for text in code.values())
    if size > MOST_CODE_BYTES:
        raise bad_input(what, f"{size:,} bytes", f"A ConfigMap holds {MOST_CODE_BYTES:,}.")
