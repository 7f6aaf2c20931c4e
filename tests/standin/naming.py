"""What the provider adds to the inputs before anything else: a name where there is none, and all tags."""

from __future__ import annotations

import re
from typing import Any

from pulumi.runtime.proto import provider_pb2

from tests.standin.differences import GENERATED
from tests.standin.kinds import Kind
from tests.standin.resources import Resource
from tests.standin.wire import UNKNOWN, Properties, holds_unknown

SUFFIX_HEX = 7


def with_all_tags(resource: Resource, inputs: Properties) -> Properties:
    """The inputs with `tagsAll`: their own tags and the provider's, so that a policy sees what there will be."""
    if not resource.kind.has_tags:
        return inputs
    unknown = holds_unknown(inputs.get("tags"))
    return inputs | {"tagsAll": UNKNOWN if unknown else resource.all_tags(inputs)}


def with_name(kind: Kind, news: Properties, olds: Properties, request: Any) -> Properties:
    """The inputs, with a generated name where there is none. The name is kept from then on.

    Args:
        kind: the type.
        news: what the program says.
        olds: the inputs of the last update; a generated name in there is kept.
        request: the engine's CheckRequest, which carries the logical name, a seed, and a proposal.
    """
    inputs = {name: value for name, value in news.items() if name != GENERATED}
    name_property = kind.name_property
    if not name_property or name_property in inputs or f"{name_property}Prefix" in inputs:
        return inputs
    kept = name_property in olds.get(GENERATED, [])
    name = olds[name_property] if kept else _proposed(kind, request)
    return inputs | {name_property: name, GENERATED: [name_property]}


def _proposed(kind: Kind, request: Any) -> str:
    logical = request.name or request.urn.rpartition("::")[2]
    options = request.autonaming
    if request.HasField("autonaming") and options.mode == provider_pb2.CheckRequest.AutonamingOptions.ENFORCE:
        return options.proposed_name
    suffix = request.randomSeed.hex()[:SUFFIX_HEX]
    longest = int(kind.autoname["longest"])
    name = f"{logical[: longest - SUFFIX_HEX - 1]}-{suffix}"
    return re.sub(r"[^a-z0-9.-]", "-", name.lower()) if kind.sdk == "s3.Bucket" else name
