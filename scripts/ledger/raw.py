"""Looking into objects that came from somewhere else: whatever has another shape is not there."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, cast

Object: TypeAlias = Mapping[str, Any]

NOTHING: Object = MappingProxyType({})


def dig(value: object, path: str) -> object:
    """What lies at a dotted path of an object, or None."""
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = cast("Object", value).get(key)
    return value


def text(value: object, path: str) -> str:
    """The text at a path; empty when there is none."""
    found = dig(value, path)
    return found if isinstance(found, str) else ""


def object_of(value: object) -> Object:
    """The value itself when it is an object; empty otherwise."""
    return cast("Object", value) if isinstance(value, Mapping) else NOTHING


def label(value: object, key: str, kind: str = "labels") -> str:
    """A label (or annotation) of a Kubernetes object; its key may hold dots. Empty when it is not there."""
    found = mapping(value, f"metadata.{kind}").get(key)
    return found if isinstance(found, str) else ""


def number(value: object, path: str) -> float | None:
    """The number at a path, or None."""
    found = dig(value, path)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def whole(value: object, path: str) -> int | None:
    """The integer at a path, or None."""
    found = number(value, path)
    return None if found is None else int(found)


def mapping(value: object, path: str) -> Object:
    """The object at a path; empty when there is none."""
    found = dig(value, path)
    return cast("Object", found) if isinstance(found, Mapping) else NOTHING


def objects(value: object, path: str) -> list[Object]:
    """The objects of the list at a path."""
    found = dig(value, path)
    return (
        [cast("Object", item) for item in cast("list[object]", found) if isinstance(item, Mapping)]
        if isinstance(found, list)
        else []
    )


def texts(value: object, path: str) -> list[str]:
    """The texts of the list at a path."""
    found = dig(value, path)
    return [item for item in cast("list[object]", found) if isinstance(item, str)] if isinstance(found, list) else []


def texts_of(found: Object) -> dict[str, str]:
    """The members of an object that are text."""
    return {key: value for key, value in found.items() if isinstance(value, str)}
