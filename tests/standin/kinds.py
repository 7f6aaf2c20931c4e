"""The table of resource types that the stand-in knows (types/*.toml; types/README.md explains the keys)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from tests.standin import sdk

TABLES = Path(__file__).resolve().parent / "types"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One resource type. The fields are the keys of its table."""

    token: str
    sdk: str
    create: str
    disk: bool = False
    put: bool = False
    tag_type: str = ""
    id: str = ""
    id_format: str = ""
    describe: Mapping[str, Any] = field(default_factory=dict)
    at: str = ""
    delete: Mapping[str, Any] = field(default_factory=dict)
    also: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    members: Mapping[str, str] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    updates: Mapping[str, str] = field(default_factory=dict)
    recorded: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    recomputed: tuple[str, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    autoname: Mapping[str, Any] = field(default_factory=dict)
    unordered: tuple[str, ...] = ()
    json: tuple[str, ...] = ()
    used_by: tuple[tuple[str, str], ...] = ()
    in_use: str = ""

    @property
    def has_tags(self) -> bool:
        """Whether the provider's default tags reach it."""
        return "tags" in sdk.inputs_of(self.sdk)

    @property
    def pure_outputs(self) -> frozenset[str]:
        """What only the service can say: unknown before the resource exists."""
        return sdk.outputs_of(self.sdk) - set(sdk.inputs_of(self.sdk)) - {"tagsAll"}

    @property
    def name_property(self) -> str:
        """The property that holds the name which has to be unique, if there is one."""
        return self.autoname.get("property", "")


class UnknownTypeError(LookupError):
    """A resource type that no table describes."""

    def __init__(self, token: str) -> None:
        super().__init__(
            f"the stand-in does not know the resource type {token}. "
            f"If the program needs it, describe it in {TABLES.name}/. Known: {', '.join(sorted(kinds()))}"
        )


def kind_of(token: str) -> Kind:
    """The table of a type.

    Raises:
        UnknownTypeError: there is none.
    """
    try:
        return kinds()[token]
    except KeyError:
        raise UnknownTypeError(token) from None


@cache
def kinds() -> Mapping[str, Kind]:
    """Every type, by its token."""
    return {
        token: _kind(token, table)
        for file in sorted(TABLES.glob("*.toml"))
        for token, table in tomllib.loads(file.read_text()).items()
    }


def _kind(token: str, table: Mapping[str, Any]) -> Kind:
    stray = set(table) - {each.name for each in fields(Kind)}
    if stray:
        raise ValueError(f"{token}: no key of a table: {', '.join(sorted(stray))}")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    values["used_by"] = tuple(_pair(entry) for entry in table.get("used_by", ()))
    return Kind(token=token, **values)


def _pair(entry: str) -> tuple[str, str]:
    token, _, name = entry.partition(" ")
    return token, name


def covers(paths: Iterable[str], path: str) -> bool:
    """Whether a property path (list positions left out) is one of `paths`, lies inside one or holds one."""
    return any(path == each or path.startswith(f"{each}.") or each.startswith(f"{path}.") for each in paths)
