"""Looking into objects that came from somewhere else: whatever has another shape is not there."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, cast

Object: TypeAlias = Mapping[str, Any]

NOTHING: Object = MappingProxyType({})


def parsed(written: str) -> object:
    """The JSON value of a text that anybody may have written.

    Raises:
        ValueError: it is no JSON, or nested deeper than can be read.
    """
    try:
        return _speakable(json.loads(written))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _speakable(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The same without halves of surrogate pairs, which JSON can hold and no file or terminal takes."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_speakable(key): _speakable(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType] - any JSON object
    if isinstance(value, list):
        return [_speakable(item) for item in value]  # pyright: ignore[reportUnknownVariableType] - any JSON list
    return value


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
    """The number at a path, or None; NaN, infinity and what no float holds are no numbers."""
    return finite(dig(value, path))


def finite(found: object) -> float | None:
    """The value as a float when it is a number; None otherwise."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        return float(found) if math.isfinite(found) else None
    except OverflowError:
        return None


def count(written: object) -> int:
    """A number of things that may be written as text (`"8"`); 0 when it is none, or more than any machine has."""
    digits = str(written) if isinstance(written, int | str) and not isinstance(written, bool) else ""
    return int(digits) if digits.isdecimal() and len(digits) < MOST_DIGITS else 0


MOST_DIGITS = 16
"""Of a count: ten thousand million million are more than any."""


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
