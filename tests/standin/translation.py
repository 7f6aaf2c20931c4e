"""From the properties of a resource to requests of the AWS API, and everything that's wrong with them on the way.

Each property has a member in the input of an operation (the type's table, else the same name in another case). The
value is converted to what botocore's model of that member says, and checked against it: type, enum, pattern, length,
range, required members, members that do not exist. A value that is not known yet is taken for right.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import botocore.session
import regex
from botocore.model import OperationModel, ServiceModel, Shape

from tests.standin.kinds import Kind
from tests.standin.wire import UNKNOWN, Properties, dig, holds_unknown, is_unknown, place

EVERYWHERE = ("region", "tagsAll", "__defaults")
"""Properties that are the provider's own business, with any resource."""

_LOADING = threading.RLock()
NUMBERS = {"integer": int, "long": int, "float": float, "double": float}


@dataclass(frozen=True)
class Problem:
    """One thing wrong with the properties of a resource: the property's path, and what is wrong."""

    property: str
    reason: str


@dataclass
class Translation:
    """The requests that some properties amount to, by operation, and what is wrong with the properties."""

    requests: dict[str, Properties] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


@cache
def operation(name: str) -> OperationModel:
    """Botocore's model of `service.Operation`."""
    service, _, name_in_service = name.partition(".")
    with _LOADING:
        return _service(service).operation_model(name_in_service)


@cache
def _service(name: str) -> ServiceModel:
    return botocore.session.get_session().get_service_model(name)


def member_of(kind: Kind, name: str) -> tuple[str, str] | None:
    """The operation and the dotted member path of a top-level property; None if there is no such member."""
    given = kind.members.get(name)
    if given is not None:
        named, colon, path = given.partition(":")
        return (named, path) if colon else (kind.create, given)
    found = find_member(operation(kind.create).input_shape, name)
    return (kind.create, found) if found else None


def find_member(shape: Shape, name: str) -> str | None:
    """The member of a structure with that name, in whatever case."""
    lowered = name.lower()
    return next((member for member in shape.members if member.lower() == lowered), None)


def shape_at(shape: Shape, path: str) -> Shape:
    """The shape of a dotted member path; numbers step into lists."""
    for step in path.split("."):
        shape = shape.member if step.isdigit() else shape.members[step]
    return shape


def translate(kind: Kind, properties: Mapping[str, Any]) -> Translation:
    """Builds and checks the requests of a resource's creation."""
    result = Translation(requests={kind.create: {}})
    for name, value in properties.items():
        if name in kind.own or name in EVERYWHERE:
            continue
        nested = _nested_members(kind, name)
        if nested and isinstance(value, dict):
            for inner, target in nested.items():
                if inner in value:
                    _translate_one(kind, result, f"{name}.{inner}", target, value[inner])
            continue
        target = member_of(kind, name)
        if target is None:
            reason = f"{kind.create} has no such member, and the stand-in's table gives it no other meaning"
            result.problems.append(Problem(name, reason))
            continue
        _translate_one(kind, result, name, target, value)
    for name, request in result.requests.items():
        fixed = set(kind.also.get(name, ()))
        if name == kind.create or not kind.disk:
            result.problems += _missing(kind, operation(name).input_shape, request, fixed)
    return result


def translate_change(kind: Kind, target: str, name: str, value: Any) -> Properties:
    """The request that changes one property in place: `target` is `service.Operation:Member`."""
    named, _, path = target.partition(":")
    request: Properties = {}
    converted = _Converter(kind, named, []).convert(shape_at(operation(named).input_shape, path), value, name)
    place(request, path, converted)
    return request


def _nested_members(kind: Kind, name: str) -> dict[str, tuple[str, str]]:
    """Members given one by one for what is inside a property (`tag.key`), when it has no member as a whole."""
    if name in kind.members or find_member(operation(kind.create).input_shape, name):
        return {}
    prefix = f"{name}."
    return {
        path.removeprefix(prefix): (kind.create, member)
        for path, member in kind.members.items()
        if path.startswith(prefix)
    }


def _translate_one(kind: Kind, result: Translation, name: str, target: tuple[str, str], value: Any) -> None:
    named, path = target
    converter = _Converter(kind, named, result.problems)
    converted = converter.convert(shape_at(operation(named).input_shape, path), value, name)
    place(result.requests.setdefault(named, {}), path, converted)


def _missing(kind: Kind, shape: Shape, request: Any, fixed: set[str], path: str = "") -> Iterator[Problem]:
    """Required members that the request lacks, each under the property that would give it."""
    if is_unknown(request):
        return
    if shape.type_name == "structure" and isinstance(request, dict):
        for member in shape.required_members:
            name = _property_of(kind, f"{path}.{member}" if path else member)
            if member not in request and name not in kind.defaults and not (member in fixed and not path):
                yield Problem(name, "is missing, and required")
        for member, value in request.items():
            if member in shape.members:
                inner = f"{path}.{member}" if path else member
                yield from _missing(kind, shape.members[member], value, fixed, inner)
    elif shape.type_name == "list" and isinstance(request, list):
        for position, value in enumerate(request):
            yield from _missing(kind, shape.member, value, fixed, f"{path}.{position}")


def _property_of(kind: Kind, member_path: str) -> str:
    """The property path that a member path comes from; the member's own name where no table entry leads to it."""
    by_length = sorted(kind.members.items(), key=lambda entry: -len(entry[1]))
    for name, target in by_length:
        path = target.rpartition(":")[2]
        if member_path == path:
            return name
        if member_path.startswith(f"{path}."):
            return name + _as_property(member_path.removeprefix(path))
    return _as_property(member_path).lstrip(".")


def _as_property(member_path: str) -> str:
    steps = [step for step in member_path.split(".") if step]
    return "".join(f"[{step}]" if step.isdigit() else f".{step[:1].lower()}{step[1:]}" for step in steps)


class _Converter:
    """Converts values to the shapes of one operation and notes what does not fit."""

    def __init__(self, kind: Kind, named: str, problems: list[Problem]) -> None:
        self._kind = kind
        self._operation = named
        self._problems = problems

    def convert(self, shape: Shape, value: Any, at: str) -> Any:  # noqa: PLR0911 - one for each kind of shape
        """The value as the API wants it; what is unknown stays so."""
        if is_unknown(value):
            return UNKNOWN
        match shape.type_name:
            case "structure":
                return self._structure(shape, value, at)
            case "list":
                return self._list(shape, value, at)
            case "map":
                return self._map(shape, value, at)
            case "boolean":
                return self._boolean(value, at)
            case name if name in NUMBERS:
                return self._number(shape, value, at)
            case "blob":
                return value.encode() if isinstance(value, str) else value
            case _:
                return self._string(shape, value, at)

    def _problem(self, at: str, reason: str) -> None:
        self._problems.append(Problem(at, reason))

    def _structure(self, shape: Shape, value: Any, at: str) -> Any:
        if not isinstance(value, dict):
            self._problem(at, f"is {_kind_of_value(value)}; an object is expected")
            return value
        converted: Properties = {}
        for name, inner in value.items():
            here = f"{at}.{name}"
            member = self._kind.members.get(_without_positions(here)) or find_member(shape, name)
            if member is None:
                self._problem(here, f"{self._operation} has no such member; it has {', '.join(shape.members)}")
                continue
            place(converted, member, self.convert(shape_at(shape, member), inner, here))
        return converted

    def _list(self, shape: Shape, value: Any, at: str) -> Any:
        element = shape.member
        if isinstance(value, dict) and element.type_name == "structure":
            # Tags: a map of ours, a list of theirs. Any other object: a list that the SDK shows as its only element.
            names = {find_member(element, "key"), find_member(element, "value")}
            if None not in names and not {"key", "value"} & set(value):
                return [
                    {find_member(element, "key"): name, find_member(element, "value"): self._tag(inner)}
                    for name, inner in value.items()
                ]
            value = [value]
        if not isinstance(value, list):
            self._problem(at, f"is {_kind_of_value(value)}; a list is expected")
            return value
        self._within(shape, len(value), at, "elements")
        return [self.convert(element, inner, f"{at}[{position}]") for position, inner in enumerate(value)]

    def _map(self, shape: Shape, value: Any, at: str) -> Any:
        if not isinstance(value, dict):
            self._problem(at, f"is {_kind_of_value(value)}; a map is expected")
            return value
        self._within(shape, len(value), at, "entries")
        return {
            self.convert(shape.key, name, f"{at}.{name}"): self.convert(shape.value, inner, f"{at}.{name}")
            for name, inner in value.items()
        }

    def _boolean(self, value: Any, at: str) -> Any:
        if value in ("true", "false"):
            return value == "true"
        if not isinstance(value, bool):
            self._problem(at, f"is {value!r}; true or false is expected")
        return value

    def _number(self, shape: Shape, value: Any, at: str) -> Any:
        number = NUMBERS[shape.type_name]
        if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
            value = number(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or number(value) != value:
            self._problem(at, f"is {value!r}; {'a whole number' if number is int else 'a number'} is expected")
            return value
        self._within(shape, value, at, "")
        return number(value)

    def _string(self, shape: Shape, value: Any, at: str) -> Any:
        if isinstance(value, bool):
            value = str(value).lower()
        if not isinstance(value, str | int | float):
            self._problem(at, f"is {_kind_of_value(value)}; text is expected")
            return value
        text = str(value)
        allowed = shape.metadata.get("enum")
        if allowed and text not in allowed:
            self._problem(at, f"is {text!r}; one of {', '.join(allowed)} is expected")
        pattern = shape.metadata.get("pattern")
        if pattern and not _compiled(pattern).fullmatch(text):
            self._problem(at, f"is {text!r}; it does not match {pattern}")
        self._within(shape, len(text), at, "characters")
        return text

    def _tag(self, value: Any) -> Any:
        return UNKNOWN if is_unknown(value) else str(value)

    def _within(self, shape: Shape, measured: float, at: str, unit: str) -> None:
        least, most = shape.metadata.get("min"), shape.metadata.get("max")
        what = f"has {measured} {unit}" if unit else f"is {measured}"
        if least is not None and measured < least:
            self._problem(at, f"{what}; at least {least} expected")
        if most is not None and measured > most:
            self._problem(at, f"{what}; at most {most} expected")


@cache
def _compiled(pattern: str) -> regex.Pattern[str]:
    r"""A pattern of a service model.

    It may name classes of characters (`\p{L}`), which `re` doesn't know, and it is written for UTF-16: a range of
    surrogate pairs is one of characters.
    """
    return regex.compile(pattern.replace(r"\uD800\uDC00-\uDBFF\uDFFF", r"\U00010000-\U0010FFFF"))


def _kind_of_value(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "text", bool: "a boolean"}.get(type(value), "a number")


def _without_positions(path: str) -> str:
    return re.sub(r"\[\d+\]", "", path)


def known(request: Properties) -> bool:
    """Whether a request could be sent."""
    return not holds_unknown(request)


def described_value(kind: Kind, description: Mapping[str, Any], name: str) -> Any:
    """What a description of the resource says about a property, at the member that the property was sent as."""
    target = member_of(kind, name)
    return None if target is None else dig(description, target[1])
