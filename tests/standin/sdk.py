"""What the installed pulumi_aws knows: the properties of its classes, nested ones included."""

from __future__ import annotations

import sys
import threading
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import pulumi_aws
from pulumi import _types as pulumi_types  # the SDK has no public way to ask for the wire names of its properties

VERSION = version("pulumi-aws")
_LOADING = threading.RLock()
"""The SDK loads its modules when they are first asked for, and shows half of one to another thread meanwhile."""


def resource_class(name: str) -> type:
    """The SDK's class of a name such as `ec2.Vpc`."""
    module, _, cls = name.rpartition(".")
    with _LOADING:
        return getattr(getattr(pulumi_aws, module), cls)


@cache
def inputs_of(name: str) -> Mapping[str, Any]:
    """The inputs of an SDK class: wire name → declared type."""
    cls = resource_class(name)
    module = sys.modules[cls.__module__]
    # The arguments class is called <Name>InitArgs where a nested type has taken <Name>Args.
    for candidate in (f"{cls.__name__}InitArgs", f"{cls.__name__}Args"):
        arguments = getattr(module, candidate, None)
        if arguments is not None and arguments.__module__ == cls.__module__:
            with _LOADING:
                return pulumi_types.input_type_types(arguments)
    raise LookupError(f"pulumi_aws.{name} has no arguments class")


@cache
def outputs_of(name: str) -> frozenset[str]:
    """The outputs of an SDK class, wire names."""
    return frozenset(pulumi_types.resource_types(resource_class(name)))


def stray_properties(name: str, properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Property paths that the SDK class has no place for, each with the names that it has there."""
    yield from _stray(inputs_of(name), properties, "")


def _stray(known: Mapping[str, Any], properties: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for name, value in properties.items():
        here = f"{path}.{name}" if path else name
        if name not in known:
            yield here, ", ".join(sorted(known))
            continue
        nested = _object_type(known[name])
        if nested is None:
            continue
        inner = pulumi_types.input_type_types(nested)
        if isinstance(value, dict):
            yield from _stray(inner, value, here)
        elif isinstance(value, list):
            for position, element in enumerate(value):
                if isinstance(element, dict):
                    yield from _stray(inner, element, f"{here}[{position}]")


def _object_type(declared: Any) -> type | None:
    """The arguments class inside a declared type: itself, or the element of a sequence; none in a plain map."""
    if isinstance(declared, type):
        return declared if pulumi_types.is_input_type(declared) else None
    if typing.get_origin(declared) is not None and issubclass(_origin(declared), Mapping):
        return None
    for argument in typing.get_args(declared):
        found = _object_type(argument)
        if found is not None:
            return found
    return None


def _origin(declared: Any) -> type:
    origin = typing.get_origin(declared)
    return origin if isinstance(origin, type) else object


def property_named(declared: Any, member: str) -> tuple[str, Any] | None:
    """The property of a nested type that an API member of that name stands for, with its declared type."""
    nested = _object_type(declared)
    if nested is None:
        return None
    lowered = member.lower()
    known = pulumi_types.input_type_types(nested)
    return next(((name, inner) for name, inner in known.items() if name.lower() == lowered), None)


def is_object(declared: Any) -> bool:
    """Whether a declared type is one object rather than a list of them."""
    return isinstance(declared, type) and pulumi_types.is_input_type(declared)
