"""A JSON object read strictly: every problem noted with its key path, nothing unknown passed over."""

from __future__ import annotations

import json
import math
from pathlib import PurePosixPath
from typing import Any, cast


class Fields:
    """A JSON object being read: fields are taken by name, what is wrong is noted, what nobody took is refused."""

    def __init__(self, where: str, value: object, problems: list[str]) -> None:
        self.where = where
        self.problems = problems
        self._fields: dict[str, object] = {}
        if isinstance(value, dict):
            self._fields = dict(cast("dict[str, object]", value))
        else:
            self.wrong("", f"must be an object, not {value!r}")

    def wrong(self, key: str, message: str) -> None:
        """Notes a problem of one field."""
        self.problems.append(f"{'.'.join(part for part in (self.where, key) if part) or 'launcher.json'}: {message}")

    def _take(self, key: str, default: object) -> object:
        if key in self._fields:
            return self._fields.pop(key)
        if default is ...:
            self.wrong(key, "is missing")
        return default

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self._fields.get(key) is not None

    def text(self, key: str, default: object = ...) -> str:
        """A string with something in it."""
        value = self._take(key, default)
        if isinstance(value, str) and (value or value == default):
            return value
        if value is not ...:
            self.wrong(key, f"must be a non-empty string, not {value!r}")
        return ""

    def number(self, key: str, *, low: float = 0.0, default: object = ...) -> float:
        """A finite number of at least `low`."""
        value = self._take(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= low:
            return float(value)
        if value is not ...:
            self.wrong(key, f"must be a number of at least {low:g}, not {value!r}")
        return low

    def whole(self, key: str, *, low: int = 0, high: int | None = None, default: object = ...) -> int:
        """A whole number in [low, high]."""
        value = self._take(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value and (high is None or value <= high):
            return value
        if value is not ...:
            span = f"of at least {low}" if high is None else f"from {low} to {high}"
            self.wrong(key, f"must be a whole number {span}, not {value!r}")
        return low

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self._take(key, ...)
        if value is not ... and not isinstance(value, bool):
            self.wrong(key, f"must be true or false, not {value!r}")
        return value is True

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        kept: list[str] = []
        for value in self._list(key):
            if isinstance(value, str):
                kept.append(value)
            else:
                self.wrong(key, f"holds {value!r}, not a string")
        return tuple(kept)

    def wholes(self, key: str, *, low: int) -> tuple[int, ...]:
        """A list of whole numbers of at least `low`."""
        kept: list[int] = []
        for value in self._list(key):
            if isinstance(value, int) and not isinstance(value, bool) and value >= low:
                kept.append(value)
            else:
                self.wrong(key, f"holds {value!r}, not a whole number of at least {low}")
        return tuple(kept)

    def _list(self, key: str) -> list[object]:
        value = self._take(key, ...)
        if isinstance(value, list):
            return cast("list[object]", value)
        if value is not ...:
            self.wrong(key, f"must be a list, not {value!r}")
        return []

    def section(self, key: str) -> Fields:
        """An object inside this one."""
        value = self._take(key, ...)
        return Fields(f"{self.where}.{key}".lstrip("."), {} if value is ... else value, self.problems)

    def sections(self, key: str) -> list[Fields]:
        """A list of objects."""
        where = f"{self.where}.{key}".lstrip(".")
        return [Fields(f"{where}[{index}]", value, self.problems) for index, value in enumerate(self._list(key))]

    def take_null(self, *keys: str) -> None:
        """Accepts null for fields that may be absent."""
        for key in keys:
            if key in self._fields and self._fields[key] is None:
                del self._fields[key]

    def rest(self) -> dict[str, str]:
        """All remaining fields, as strings."""
        found: dict[str, str] = {}
        for key in list(self._fields):
            found[key] = self.text(key)
        return found

    def close(self) -> None:
        """Refuses what nobody took."""
        self._fields.pop("format", None)
        for key in sorted(self._fields):
            self.wrong(key, "is unknown")


def is_inside(name: str) -> bool:
    """Whether a relative path stays where it is put: no root, no `..`, no backslash, nothing hidden in odd names."""
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\\" not in name and "\0" not in name


def json_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in some bytes; an empty one where there is none."""
    try:
        document = json.loads(raw)
    except ValueError:
        return {}
    return cast("dict[str, Any]", document) if isinstance(document, dict) else {}
