"""The two kinds of stack file: one that sets `coldstart:environment`, and one that sets `coldstart:model` on it.

Their trees are every key a person may write. Nothing else in the project knows these keys.
"""

from __future__ import annotations

from infra.environment_settings import Environment
from infra.model_settings import Model
from infra.setting import Tree

KINDS: dict[str, type[Tree]] = {"environment": Environment, "model": Model}
"""Top-level key of a stack file under `coldstart:` → its tree."""
