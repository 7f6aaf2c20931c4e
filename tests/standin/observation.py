"""From what a service says about a resource back to properties: for refresh, for import, and for computed outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.standin import sdk
from tests.standin.differences import same
from tests.standin.kinds import Kind
from tests.standin.translation import described_value
from tests.standin.wire import Properties


def observed_inputs(kind: Kind, description: Mapping[str, Any]) -> Properties:
    """The properties that a description gives, tags left out."""
    found: Properties = {}
    for name, declared in sdk.inputs_of(kind.sdk).items():
        if name == "tags":
            continue
        value = described_value(kind, description, name)
        if value is not None:
            found[name] = _as_property(declared, value, is_json=name in kind.json)
    return found


def refreshed_inputs(kind: Kind, inputs: Mapping[str, Any], description: Mapping[str, Any]) -> Properties:
    """The recorded inputs, with what somebody has changed since then.

    Only what was asked for is looked at: the service fills in much more. A value that means the same stays as it was
    written. What moto can't change is never read from it.
    """
    observed = observed_inputs(kind, description)
    refreshed: Properties = {}
    for name, old in inputs.items():
        new = old if name in kind.recorded or name not in observed else _asked_part(observed[name], old)
        refreshed[name] = old if same(kind, name, old, new) else new
    return refreshed


def observed_tags(description: Mapping[str, Any]) -> dict[str, str] | None:
    """The tags in a description, whichever way the service writes them; None if it doesn't."""
    for name in ("Tags", "tags", "TagSet", "tagSet"):
        tags = description.get(name)
        if isinstance(tags, Mapping):
            return dict(tags)
        if isinstance(tags, list):
            return {tag["Key"]: tag["Value"] for tag in tags}
    return None


def _as_property(declared: Any, value: Any, *, is_json: bool = False) -> Any:
    if is_json and isinstance(value, dict):
        return json.dumps(value)
    if isinstance(value, list):
        if sdk.is_object(declared):  # a list of one that the SDK shows as its element
            return _as_property(declared, value[0]) if value else {}
        if value and isinstance(value[0], dict) and set(value[0]) == {"Key", "Value"}:
            return {tag["Key"]: tag["Value"] for tag in value}
        return [_as_property(declared, element) for element in value]
    if isinstance(value, dict):
        converted: Properties = {}
        for member, inner in value.items():
            found = sdk.property_named(declared, member)
            if found is not None:
                converted[found[0]] = _as_property(found[1], inner)
            elif not sdk.is_object(declared):
                converted[member] = inner
        return converted
    return value if isinstance(value, str | int | float | bool) else str(value)


def _asked_part(observed: Any, asked: Any) -> Any:
    """Of an observed value, the part that was asked for; an empty answer to a "no" is that "no"."""
    if isinstance(observed, dict) and isinstance(asked, dict):
        return {
            name: _asked_part(observed[name], wanted) if name in observed else wanted
            for name, wanted in asked.items()
            if name in observed or not wanted
        }
    if isinstance(observed, list) and isinstance(asked, list) and len(observed) == len(asked):
        return [_asked_part(one, other) for one, other in zip(observed, asked, strict=True)]
    return observed
