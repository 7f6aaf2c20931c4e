"""What changed between the inputs of a resource then and now, and whether that replaces it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tests.standin.kinds import Kind, covers
from tests.standin.wire import is_unknown

ABSENT = object()
GENERATED = "__defaults"
"""Input in which the provider notes which values are its own, as the real one does."""


@dataclass(frozen=True)
class Change:
    """One change: the property path (`taints[0].key`), how it changed, whether it forces a new resource."""

    path: str
    how: Literal["add", "delete", "update"]
    replaces: bool

    @property
    def top(self) -> str:
        """The top-level property."""
        return re.split(r"[.\[]", self.path, maxsplit=1)[0]


def differences(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Every change, in the order of the properties' names."""
    changes: list[Change] = []
    for name in sorted({*old, *new} - {GENERATED}):
        default = kind.defaults.get(name, ABSENT)
        for path, how in _compare(kind, old.get(name, default), new.get(name, default), name):
            plain = re.sub(r"\[\d+\]", "", path)
            changes.append(Change(path, how, covers(kind.replace, plain)))
    return changes


def inside(paths: Iterable[str], path: str) -> bool:
    """Whether a property path is one of `paths` or lies inside one, as `ignoreChanges` means it."""
    return any(re.match(re.escape(each.replace('["', ".").replace('"]', "")) + r"($|[.\[])", path) for each in paths)


def same(kind: Kind, path: str, old: Any, new: Any) -> bool:
    """Whether two values of a property mean the same."""
    return not any(_compare(kind, old, new, path))


def _compare(kind: Kind, old: Any, new: Any, path: str) -> Iterator[tuple[str, Literal["add", "delete", "update"]]]:
    if old is ABSENT and new is ABSENT:
        return
    if is_unknown(new):
        yield path, "add" if old is ABSENT else "update"
    elif isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from _compare(kind, old.get(name, ABSENT), new.get(name, ABSENT), f"{path}.{name}")
    elif isinstance(old, list) and isinstance(new, list):
        yield from _compare_lists(kind, old, new, path)
    elif old is ABSENT:
        yield path, "add"
    elif new is ABSENT:
        yield path, "delete"
    elif old != new and not _same_text(kind, old, new, path):
        yield path, "update"


def _compare_lists(
    kind: Kind, old: list[Any], new: list[Any], path: str
) -> Iterator[tuple[str, Literal["add", "delete", "update"]]]:
    if re.sub(r"\[\d+\]", "", path) in kind.unordered:
        left = [json.dumps(value, sort_keys=True) for value in old]
        right = [json.dumps(value, sort_keys=True) for value in new]
        if sorted(left) == sorted(right):
            return
    for position in range(max(len(old), len(new))):
        before = old[position] if position < len(old) else ABSENT
        after = new[position] if position < len(new) else ABSENT
        yield from _compare(kind, before, after, f"{path}[{position}]")


def _same_text(kind: Kind, old: Any, new: Any, path: str) -> bool:
    """JSON documents are compared by what they say; a number and its digits are the same."""
    if path in kind.json and isinstance(old, str) and isinstance(new, str):
        try:
            return json.loads(old) == json.loads(new)
        except ValueError:
            return False
    return _scalar(old) == _scalar(new)


def _scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
