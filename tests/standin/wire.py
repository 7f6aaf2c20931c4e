"""Property values as the engine sends them: plain Python values, with a marker for what isn't known yet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from google.protobuf import json_format, struct_pb2

Properties = dict[str, Any]

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What the engine reads as "computed, not known before the update"; for a value of any type."""

# During a preview the engine may send any of these for a value that another resource still has to produce.
_UNKNOWNS = frozenset(
    {
        UNKNOWN,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",  # bool
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",  # number
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",  # array
        "030794c1-ac77-496b-92df-f27374a8bd58",  # asset
        "e48ece36-62e2-4504-bad9-02848725956a",  # archive
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",  # object
    }
)


def is_unknown(value: Any) -> bool:
    """Whether a value, taken by itself, is not known yet."""
    return isinstance(value, str) and value in _UNKNOWNS


def holds_unknown(value: Any) -> bool:
    """Whether a value or anything inside it is not known yet."""
    if isinstance(value, dict):
        return any(holds_unknown(inner) for inner in value.values())
    if isinstance(value, list):
        return any(holds_unknown(inner) for inner in value)
    return is_unknown(value)


def from_struct(struct: struct_pb2.Struct) -> Properties:
    """The properties of a message; null is absent, and a whole number is an int."""
    return _tidy(json_format.MessageToDict(struct))


def to_struct(properties: Properties) -> struct_pb2.Struct:
    """The message of some properties."""
    struct = struct_pb2.Struct()
    struct.update(properties)
    return struct


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every scalar in a value with its property path (`taints[0].key`)."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{position}]")
    else:
        yield path, value


def dig(value: Any, path: str) -> Any:
    """What is at a dotted path (`NatGateways.0.State`), or None where the path ends early."""
    for step in filter(None, path.split(".")):
        if isinstance(value, list):
            value = value[int(step)] if int(step) < len(value) else None
        elif isinstance(value, dict):
            value = value.get(step)
        else:
            return None
    return value


def place(target: Properties, path: str, value: Any) -> None:
    """Puts a value at a dotted path, making the dicts and lists on the way."""
    steps: list[str | int] = [int(step) if step.isdigit() else step for step in path.split(".")]
    here: Any = target
    for step, following in pairwise(steps):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(step, int):
            while len(here) <= step:
                here.append(None)
            here[step] = empty if here[step] is None else here[step]
            here = here[step]
        else:
            here = here.setdefault(step, empty)
    last = steps[-1]
    if isinstance(last, int):
        while len(here) <= last:
            here.append(None)
    here[last] = value


def _tidy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _tidy(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_tidy(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
