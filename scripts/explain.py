"""`coldstart explain KEY`: what a setting means, its unit, its default and why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, cast, get_args, get_origin

import click
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from budget.problems import bad_input, did_you_mean
from infra.settings import KINDS
from infra.shapes import EXAMPLES
from infra.stack_file import subtree


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """One setting.

    Attributes:
        key: path in a stack file, without the `coldstart:` namespace.
        allowed: accepted values in words.
        default: as written in YAML, or `required`.
        why: reason for the default; empty when it needs none.
    """

    key: str
    meaning: str
    allowed: str
    unit: str
    default: str
    why: str


def explanations() -> Sequence[Explanation]:
    """Every setting, in the order of the tree."""
    return [row for kind, tree in KINDS.items() for row in _walk(kind, tree)]


def markdown() -> str:
    """The settings reference, docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Every key of a stack file, below `coldstart:`. Made by `coldstart explain --markdown > docs/settings.md`; the",
        "source is infra/environment_settings.py and infra/model_settings.py.",
    ]
    for kind, tree in KINDS.items():
        lines += ["", f"## {kind}", "", _sentence(tree)]
        lines += ["", "| key | meaning | allowed | default | why |", "| --- | --- | --- | --- | --- |"]
        lines += [_row(explanation) for explanation in _walk(kind, tree)]
    return "\n".join(lines) + "\n"


@click.command()
@click.argument("key", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--markdown", "as_markdown", is_flag=True, help="All settings as docs/settings.md.")
def command(key: str | None, as_json: bool, as_markdown: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Explain the setting KEY (model.nodes.instance), or those below it; without KEY, all of them."""
    if as_markdown:
        click.echo(markdown(), nl=False)
        return
    rows = _matching(key) if key else explanations()
    if as_json:
        click.echo(json.dumps([row.__dict__ for row in rows], indent=2))
    elif len(rows) == 1:
        click.echo(_page(rows[0]))
    else:
        width = max(len(row.key) for row in rows)
        for row in rows:
            click.echo(f"{row.key:<{width}}  {row.meaning}")


def _sentence(tree: type[BaseModel]) -> str:
    """What a tree holds: its docstring, less the key it opens with."""
    text = (tree.__doc__ or "").split("`: ", maxsplit=1)[-1]
    return text[0].upper() + text[1:]


def _matching(key: str) -> Sequence[Explanation]:
    wanted = key.removeprefix("coldstart:")
    rows = explanations()
    exact = [row for row in rows if row.key == wanted]
    below = [row for row in rows if row.key.startswith((f"{wanted}.", f"{wanted}["))]
    if not exact and not below:
        raise bad_input(key, "no such setting", did_you_mean(wanted, [row.key for row in rows]))
    # A tree that may be left out is a row of its own, and what is below it is what was asked for.
    return [*exact, *below]


def _page(row: Explanation) -> str:
    unit = f" ({row.unit})" if row.unit else ""
    why = f"\n  why      {row.why}" if row.why else ""
    return f"{row.key}{unit}\n  {row.meaning}\n  allowed  {row.allowed}\n  default  {row.default}{why}"


def _row(row: Explanation) -> str:
    unit = f" ({row.unit})" if row.unit else ""
    cells = (f"`{row.key}`", f"{row.meaning}{unit}", row.allowed, f"`{row.default}`", row.why)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _walk(path: str, tree: type[BaseModel]) -> Iterator[Explanation]:
    for name, field in tree.model_fields.items():
        key = f"{path}.{name}"
        below = subtree(field.annotation)
        listed = below is not None and any(
            get_origin(part) is tuple for part in (field.annotation, *get_args(field.annotation))
        )
        optional = type(None) in get_args(field.annotation)
        if below is None or optional or listed:
            yield _explanation(key, field)
        if below is not None:
            yield from _walk(f"{key}[]" if listed else key, below)


def _explanation(key: str, field: FieldInfo) -> Explanation:
    extra = cast("Mapping[str, str]", field.json_schema_extra or {})
    return Explanation(
        key=key,
        meaning=field.description or "",
        allowed=_allowed(field.annotation, field.metadata),
        unit=extra.get("unit", ""),
        default=_default(field),
        why=extra.get("why", ""),
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is PydanticUndefined or value is None:
        return "unset"
    return _written(value)


def _written(value: Any) -> str:  # noqa: ANN401 - any default
    match value:
        case Enum():
            return str(value.value)
        case bool():
            return str(value).lower()
        case tuple():
            return "[" + ", ".join(_written(item) for item in cast("tuple[object, ...]", value)) + "]"
        case dict():
            return "{}"
        case _:
            return str(value)


def _allowed(annotation: object, metadata: Iterable[object]) -> str:
    """What may be written: a kind, the example of its pattern, its bounds."""
    rules = [inner for rule in metadata for inner in (rule.metadata if isinstance(rule, FieldInfo) else [rule])]
    pattern = next((found for rule in rules if (found := getattr(rule, "pattern", None))), None)
    kind = f"text such as {EXAMPLES.get(pattern, pattern)}" if pattern else _kind(annotation)
    return " ".join([kind, *_bounds(rules)])


def _bounds(rules: Sequence[object]) -> Iterator[str]:
    for rule in rules:
        match rule:
            case Ge():
                yield f"≥ {rule.ge}"
            case Gt():
                yield f"> {rule.gt}"
            case Le():
                yield f"≤ {rule.le}"
            case Lt():
                yield f"< {rule.lt}"
            case _:
                pass


def _kind(annotation: object) -> str:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return _kind_of_class(annotation)
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(str(part) for part in parts)
    if origin is tuple:
        return f"list of {_kind(parts[0])}"
    if origin is dict:
        return "mapping of text to text"
    if origin is Annotated:
        return _allowed(parts[0], parts[1:])
    return " or ".join(_kind(part) for part in parts if part is not type(None))


def _kind_of_class(kind: type) -> str:
    if issubclass(kind, Enum):
        return ", ".join(str(member.value) for member in kind)
    if issubclass(kind, BaseModel):
        return "see below"
    return {int: "whole number", float: "number", bool: "true, false", str: "text"}[kind]
