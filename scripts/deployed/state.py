"""The state of a stack: what the engine made, under which ids, in which account; true even without a stack file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

SECRET_KEY = "4dabf18193072939515e22adb298388d"  # noqa: S105 - the engine's marker of a secret in a state, not a secret
PROVIDER = "pulumi:providers:"

Object = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """One resource of a state.

    Attributes:
        id: of the cloud; empty for components.
        inputs, outputs: properties, spelled as on the wire.
        protect: the engine refuses to delete it.
        retain: the engine forgets it instead of deleting it.
        parent: URN, or empty.
        dependencies: URNs.
    """

    urn: str
    type: str
    name: str
    id: str
    inputs: Object
    outputs: Object
    protect: bool
    retain: bool
    parent: str
    dependencies: frozenset[str]

    @property
    def is_kubernetes(self) -> bool:
        """An object inside the cluster."""
        return self.type.startswith("kubernetes:")


@dataclass(frozen=True, kw_only=True)
class State:
    """A stack's state.

    Attributes:
        stack: its name.
        resources: in the order of their creation; empty once it is destroyed.
        pending: operations that an interrupted command left open, as (operation, URN).
    """

    stack: str
    resources: Sequence[Resource]
    pending: Sequence[tuple[str, str]]

    @property
    def ids(self) -> frozenset[str]:
        """Ids of everything in the cloud that the engine made."""
        return frozenset(resource.id for resource in self.resources if resource.id)

    @property
    def live(self) -> bool:
        """There is something left of it in a cloud."""
        return any(each.id and not each.type.startswith(PROVIDER) for each in self.resources)

    @property
    def account(self) -> str | None:
        """The account that its provider is bound to."""
        allowed = _parsed(self._aws.get("allowedAccountIds"))
        accounts = cast("list[object]", allowed) if isinstance(allowed, list) else []
        return str(accounts[0]) if accounts else None

    @property
    def region(self) -> str | None:
        """The region of its provider."""
        region = self._aws.get("region")
        return region if isinstance(region, str) else None

    @property
    def tags(self) -> Mapping[str, str]:
        """Tags that its provider puts on everything."""
        default = _parsed(self._aws.get("defaultTags"))
        tags = cast("Object", default).get("tags") if isinstance(default, Mapping) else None
        return {key: str(value) for key, value in cast("Object", tags).items()} if isinstance(tags, Mapping) else {}

    @property
    def environment(self) -> str | None:
        """The environment it belongs to: its own name when it is one."""
        return self.tags.get("environment")

    @property
    def outputs(self) -> Object:
        """What it exports; secrets are left out."""
        stacks = self.of_type("pulumi:pulumi:Stack")
        exported: Object = stacks[0].outputs if stacks else {}
        return {key: value for key, value in exported.items() if not _is_secret(value)}

    def of_type(self, token: str) -> Sequence[Resource]:
        """Resources of one type."""
        return [resource for resource in self.resources if resource.type == token]

    @property
    def _aws(self) -> Object:
        providers = self.of_type(f"{PROVIDER}aws")
        return providers[0].inputs if providers else {}


def parse(stack: str, deployment: Mapping[str, Any]) -> State:
    """A state from the engine's export."""
    entries = cast("Sequence[Object]", deployment.get("resources") or ())
    pending = cast("Sequence[Object]", deployment.get("pending_operations") or ())
    return State(
        stack=stack,
        resources=[_resource(entry) for entry in entries if not entry.get("delete")],
        pending=[(str(each.get("type", "")), str(_of(each, "resource").get("urn", ""))) for each in pending],
    )


def _resource(entry: Object) -> Resource:
    urn = str(entry["urn"])
    by_property = cast("Mapping[str, Sequence[str]]", entry.get("propertyDependencies") or {})
    explicit = cast("Sequence[str]", entry.get("dependencies") or ())
    return Resource(
        urn=urn,
        type=str(entry["type"]),
        name=urn.rpartition("::")[2],
        id=str(entry.get("id") or ""),
        inputs=_of(entry, "inputs"),
        outputs=_of(entry, "outputs"),
        protect=bool(entry.get("protect")),
        retain=bool(entry.get("retainOnDelete")),
        parent=str(entry.get("parent") or ""),
        dependencies=frozenset(explicit).union(*(urns or () for urns in by_property.values())),
    )


def _of(entry: Object, key: str) -> Object:
    value = entry.get(key)
    return cast("Object", value) if isinstance(value, Mapping) else {}


def _is_secret(value: object) -> bool:
    return isinstance(value, Mapping) and SECRET_KEY in value


def _parsed(value: object) -> object:
    """The engine keeps a provider's lists and objects as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return None
