"""The stand-in's tables say nothing that the SDK or the service models contradict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.model import Shape

from tests.standin import sdk
from tests.standin.kinds import Kind, kind_of, kinds
from tests.standin.services import OWN_CLASSES
from tests.standin.translation import _compiled, find_member, member_of, operation, shape_at

EVERY_KIND = pytest.mark.parametrize("kind", kinds().values(), ids=lambda kind: kind.token)


@EVERY_KIND
def test_a_table_names_the_class_of_its_token(kind: Kind) -> None:
    assert sdk.resource_class(kind.sdk).pulumi_type == kind.token


@EVERY_KIND
def test_members_lead_to_members_of_their_operation(kind: Kind) -> None:
    for name, target in kind.members.items():
        named, colon, path = target.partition(":")
        if "." in name and not colon:
            continue  # inside another member; the requests of test_resources.py go through these
        shape = operation(named if colon else kind.create).input_shape
        assert shape_at(shape, path if colon else target), name


@EVERY_KIND
def test_properties_in_a_table_are_properties_of_the_sdk(kind: Kind) -> None:
    inputs, outputs = set(sdk.inputs_of(kind.sdk)), sdk.outputs_of(kind.sdk)
    tops = {path.partition(".")[0] for path in (*kind.replace, *kind.unordered, *kind.json, *kind.members)}
    assert tops <= inputs
    assert set(kind.own) | set(kind.recorded) | set(kind.updates) | set(kind.defaults) <= inputs
    assert {path.partition(".")[0] for path in kind.computed} <= outputs
    assert set(kind.outputs) | set(kind.formats) | set(kind.recomputed) <= outputs


@EVERY_KIND
def test_what_is_known_of_a_type_has_a_meaning(kind: Kind) -> None:
    known = {*kind.replace, *kind.recorded, *kind.unordered, *kind.json, *kind.defaults, *kind.updates}
    for name in known - set(kind.own):
        top = name.partition(".")[0]
        nested = any(path.startswith(f"{top}.") for path in kind.members)
        assert nested or top.endswith("Prefix") or member_of(kind, top) is not None, top


@EVERY_KIND
def test_operations_take_the_arguments_that_a_table_gives(kind: Kind) -> None:
    for table in (kind.describe, kind.delete):
        if table:
            shape = operation(table["call"]).input_shape
            assert set(table) - {"call"} <= set(shape.members)
            assert set(shape.required_members) <= set(table)
    for named, arguments in kind.also.items():
        assert set(arguments) <= set(operation(named).input_shape.members)


@EVERY_KIND
def test_an_id_comes_from_one_place(kind: Kind) -> None:
    invents = OWN_CLASSES.get(kind.token) is not None and "invented_id" in vars(OWN_CLASSES[kind.token])
    assert sum([bool(kind.id), bool(kind.id_format), invents]) == 1
    if kind.id:
        assert shape_at(operation(kind.create).output_shape, kind.id).type_name == "string"


@EVERY_KIND
def test_what_needs_a_resource_names_its_type_and_property(kind: Kind) -> None:
    for token, name in kind.used_by:
        assert name in sdk.inputs_of(kind_of(token).sdk)
    assert bool(kind.used_by) == bool(kind.in_use)


@EVERY_KIND
def test_every_pattern_of_its_operation_is_understood(kind: Kind) -> None:
    for pattern in _patterns(operation(kind.create).input_shape):
        assert _compiled(pattern)


def test_a_member_is_found_in_any_case() -> None:
    shape = operation("s3.PutBucketEncryption").input_shape.members["ServerSideEncryptionConfiguration"]
    rule = shape.members["Rules"].member.members["ApplyServerSideEncryptionByDefault"]
    assert find_member(rule, "sseAlgorithm") == "SSEAlgorithm"
    assert find_member(rule, "sseAlgorithms") is None


def test_every_class_of_its_own_has_a_table() -> None:
    assert set(OWN_CLASSES) <= set(kinds())


def test_an_unknown_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(LookupError, match=re.escape("does not know the resource type aws:sqs/queue:Queue")):
        kind_of("aws:sqs/queue:Queue")


def _patterns(shape: Shape, depth: int = 0) -> Iterator[str]:
    pattern: Any = shape.metadata.get("pattern")
    if pattern:
        yield pattern
    if depth > 6:  # some shapes contain themselves
        return
    inner = shape.members.values() if shape.type_name == "structure" else []
    for each in [shape.member] if shape.type_name == "list" else inner:
        yield from _patterns(each, depth + 1)
