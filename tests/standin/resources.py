"""The life of a resource: created, read, changed and deleted as its type's table says.

A type that needs more than its table has a class of its own, a subclass of Resource (network.py, kubernetes.py, ...).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tests.standin.cloud import Cloud
from tests.standin.differences import GENERATED, Change
from tests.standin.faults import ServiceError
from tests.standin.kinds import Kind
from tests.standin.observation import observed_inputs, observed_tags, refreshed_inputs
from tests.standin.records import Record, Records
from tests.standin.tags import change_tags
from tests.standin.translation import Problem, described_value, translate, translate_change
from tests.standin.wire import UNKNOWN, Properties, dig, place
from tests.toolchain.kube_api import KubeApi

TAG_PROPERTIES = ("tags", "tagsAll")
ONE_ATTRIBUTE_A_CALL = ("ec2.ModifyVpcAttribute", "ec2.ModifySubnetAttribute")


@dataclass(frozen=True, kw_only=True)
class World:
    """Everything that a resource lives in.

    Attributes:
        cloud: the AWS APIs.
        records: what the stand-in remembers.
        kube: the control plane that plays every EKS cluster.
        default_tags: of the provider's configuration.
    """

    cloud: Cloud
    records: Records
    kube: KubeApi | None = None
    default_tags: Mapping[str, str] = field(default_factory=dict)


class Resource:
    """A type of resource in a world. `kind` is its table."""

    def __init__(self, kind: Kind, world: World) -> None:
        self.kind = kind
        self.world = world

    # What a subclass may add

    def rules(self, inputs: Properties) -> Iterator[Problem]:  # noqa: ARG002 - for subclasses
        """What the service refuses beyond the shapes of its API. Inputs may be unknown."""
        return iter(())

    def before_create(self, inputs: Properties) -> None:
        """Raises ServiceError if the world isn't ready for it."""

    def creation(self, request: Properties, inputs: Properties) -> Properties:  # noqa: ARG002 - for subclasses
        """The request that creates it, completed."""
        return request

    def invented_id(self) -> str:
        """The id, for a type that has neither an id in an answer nor one made of its properties."""
        return f"standin-{secrets.token_hex(6)}"

    def after_create(self, record: Record) -> None:
        """What the service does by itself, or what needs another call; may add to `record.facts`."""

    def describe(self, record: Record) -> dict[str, Any] | None:
        """What the service says about it now; None if it's gone."""
        if not self.kind.describe:
            return {}
        answer = self.world.cloud.find(self.kind.describe["call"], self.arguments(self.kind.describe, record))
        return None if answer is None else dig(answer, self.kind.at)

    def change(self, record: Record, inputs: Properties, top: str) -> bool:  # noqa: ARG002 - for subclasses
        """Changes one property in place in a way of its own; whether it did."""
        return False

    def after_change(self, record: Record) -> None:
        """What the service does by itself after a change."""

    def before_delete(self, record: Record) -> None:
        """What the provider does first, or a ServiceError."""

    def after_delete(self, record: Record) -> None:
        """What the service does by itself."""

    def more_outputs(self, record: Record, description: Mapping[str, Any]) -> Properties:  # noqa: ARG002 - for subclasses
        """Outputs that the table can't express: property path → value."""
        return {}

    # The life itself

    def problems(self, inputs: Properties) -> list[Problem]:
        """Everything wrong with the inputs."""
        found = translate(self.kind, inputs).problems
        return found + [problem for problem in self.rules(inputs) if problem not in found]

    def create(self, name: str, inputs: Properties) -> Record:
        """Creates it, and remembers it."""
        self.before_create(inputs)
        requests = translate(self.kind, self._with_all_tags(inputs)).requests
        record = Record(token=self.kind.token, id="", name=name, inputs=inputs)
        answer: dict[str, Any] = {}
        if not self.kind.disk:
            request = requests[self.kind.create]
            if "TagSpecifications" in request:
                request["TagSpecifications"][0]["ResourceType"] = self.kind.tag_type
            answer = self.world.cloud.call(self.kind.create, self.creation(request, inputs))
        record.id = self._id_of(answer, inputs)
        self.world.records.put(record)
        if not self.kind.disk:
            for named in self.kind.also:
                for request in _calls(named, requests.get(named, {})):
                    self.world.cloud.call(named, self.arguments(self.kind.also[named], record) | request)
        self.after_create(record)
        self.world.records.put(record)
        return record

    def read(self, record: Record) -> Record | None:
        """The resource as it is now; None if somebody deleted it."""
        if self.world.records.get(record.token, record.id) is None and self.kind.disk:
            return None
        description = self.describe(record)
        if description is None:
            self.world.records.remove(record.token, record.id)
            return None
        inputs = refreshed_inputs(self.kind, record.inputs, description)
        tags = observed_tags(description)
        if tags is not None and self.kind.has_tags:
            inputs = self._with_observed_tags(inputs, tags)
        return Record(token=record.token, id=record.id, name=record.name, inputs=inputs, facts=record.facts)

    def adopt(self, name: str, resource_id: str) -> Record | None:
        """Import: the inputs of something that exists already, by its id alone.

        Raises:
            ServiceError: the id of this type does not say where to look.
        """
        inputs = self.inputs_from_id(resource_id)
        record = Record(token=self.kind.token, id=resource_id, name=name, inputs=inputs)
        description = self.describe(record)
        if description is None:
            return None
        record.inputs = {**observed_inputs(self.kind, description), **inputs}
        for computed in self.kind.computed:
            record.inputs.pop(computed, None)
        tags = observed_tags(description)
        if tags is not None and self.kind.has_tags:
            record.inputs = self._with_observed_tags(record.inputs, tags)
        self.world.records.put(record)
        return record

    def inputs_from_id(self, resource_id: str) -> Properties:
        """The inputs that an id gives away: the whole of it is one property, or none."""
        whole = re.fullmatch(r"\{(\w+)\}", self.kind.id_format)
        if whole:
            return {whole[1]: resource_id}
        if self.kind.id_format:
            raise ServiceError(f"the stand-in can't import a {self.kind.token} by its id")
        return {}

    def update(self, record: Record, inputs: Properties, changes: Sequence[Change]) -> Record:
        """Changes it in place.

        Raises:
            ServiceError: a property can't be changed, or the service says no.
        """
        tops = list(dict.fromkeys(change.top for change in changes))
        if self.kind.put and any(top not in TAG_PROPERTIES for top in tops):
            request = translate(self.kind, inputs).requests[self.kind.create]
            self.world.cloud.call(self.kind.create, self.creation(request, inputs))
        for top in tops:
            if top in TAG_PROPERTIES or self.kind.put or self.change(record, inputs, top):
                continue
            if self._change_by_table(record, inputs, top):
                continue
            if top not in (*self.kind.recorded, *self.kind.own) and not self.kind.disk:
                raise ServiceError(f"the stand-in has no way to change {top} of {self.kind.token} in place")
        if any(top in TAG_PROPERTIES for top in tops) and not self.kind.disk:
            self._change_tags(record, inputs)
        record.inputs = inputs
        self.world.records.put(record)
        self.after_change(record)
        self.world.records.put(record)
        return record

    def delete(self, record: Record) -> None:
        """Deletes it, unless something still needs it."""
        self._refuse_if_used(record)
        self.before_delete(record)
        if self.kind.delete and not self.kind.disk:
            self.world.cloud.find(self.kind.delete["call"], self.arguments(self.kind.delete, record))
        self.world.records.remove(record.token, record.id)
        self.after_delete(record)

    def outputs(self, record: Record) -> Properties:
        """Every output of the resource as it is now."""
        description = self.describe(record) or {}
        outputs = deepcopy(record.inputs)
        outputs.pop(GENERATED, None)
        for path in self.kind.computed:
            if dig(outputs, path) is None:
                value = None if "." in path else described_value(self.kind, description, path)
                if isinstance(value, str | int | bool):
                    place(outputs, path, value)
        for name, path in self.kind.outputs.items():
            value = dig(description, path)
            if value is not None:
                outputs[name] = value
        for name, text in self.kind.formats.items():
            outputs[name] = self.format(text, record)
        for path, value in self.more_outputs(record, description).items():
            place(outputs, path, value)
        return outputs | self._everywhere(record.inputs)

    def outputs_before_creation(self, inputs: Properties) -> Properties:
        """The outputs as far as a preview knows them."""
        outputs = deepcopy(inputs)
        outputs.pop(GENERATED, None)
        for name in self.kind.pure_outputs:
            outputs[name] = UNKNOWN
        for path in self.kind.computed:
            parent = path.rpartition(".")[0]
            if dig(outputs, path) is None and (not parent or isinstance(dig(outputs, parent), dict)):
                place(outputs, path, UNKNOWN)
        return outputs | self._everywhere(inputs)

    def outputs_before_change(self, old: Properties, inputs: Properties, changes: Sequence[Change]) -> Properties:
        """The outputs that a preview of a change knows: the old ones stay, unless the change makes them anew."""
        outputs = {**deepcopy(old), **deepcopy(inputs)}
        outputs.pop(GENERATED, None)
        for path in self.kind.computed:
            parent = path.rpartition(".")[0]
            if dig(outputs, path) is None and dig(old, path) is not None and (not parent or dig(outputs, parent)):
                place(outputs, path, dig(old, path))
        if any(change.top not in TAG_PROPERTIES for change in changes):
            for name in self.kind.recomputed:
                if name not in inputs:
                    outputs[name] = UNKNOWN
        return outputs | self._everywhere(inputs)

    # Helpers for subclasses

    def format(self, text: str, record: Record) -> str:
        """Fills `{id}`, `{region}`, `{account}`, `{partition}` and property paths into a text."""
        cloud = self.world.cloud
        fixed = {"id": record.id, "region": cloud.region, "account": cloud.account, "partition": cloud.partition}

        def fill(match: re.Match[str]) -> str:
            value = fixed.get(match[1], dig(record.inputs, match[1]))
            return str(self.kind.defaults.get(match[1], "") if value is None else value)

        return re.sub(r"\{([\w.]+)\}", fill, text)

    def arguments(self, table: Mapping[str, Any], record: Record) -> Properties:
        """The arguments of an operation in a table, filled in."""

        def fill(value: Any) -> Any:
            if isinstance(value, str):
                return self.format(value, record)
            if isinstance(value, list):
                return [fill(inner) for inner in value]
            if isinstance(value, dict):
                return {name: fill(inner) for name, inner in value.items()}
            return value

        return {name: fill(value) for name, value in table.items() if name != "call"}

    def all_tags(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The provider's default tags and the resource's own."""
        return {**self.world.default_tags, **inputs.get("tags", {})}

    # The rest

    def _id_of(self, answer: Mapping[str, Any], inputs: Properties) -> str:
        if self.kind.id:
            return dig(answer, self.kind.id)
        if self.kind.id_format:
            return self.format(self.kind.id_format, Record(token="", id="", name="", inputs=inputs))
        return self.invented_id()

    def _everywhere(self, inputs: Properties) -> Properties:
        outputs: Properties = {}
        if self.kind.has_tags:
            outputs["tagsAll"] = self.all_tags(inputs)
        if "region" not in inputs and not self.kind.sdk.startswith("iam."):
            outputs["region"] = self.world.cloud.region
        return outputs

    def _with_all_tags(self, inputs: Properties) -> Properties:
        tags = self.all_tags(inputs) if self.kind.has_tags else {}
        return {**inputs, "tags": tags} if tags else {name: inputs[name] for name in inputs if name != "tags"}

    def _with_observed_tags(self, inputs: Properties, tags: Mapping[str, str]) -> Properties:
        """The inputs with the tags that there are: all of them, and the resource's own without the provider's."""
        everything = {name: value for name, value in tags.items() if not name.startswith("aws:")}
        own = {name: value for name, value in everything.items() if self.world.default_tags.get(name) != value}
        rest = {name: value for name, value in inputs.items() if name not in TAG_PROPERTIES}
        return rest | ({"tags": own} if own else {}) | {"tagsAll": everything}

    def _change_by_table(self, record: Record, inputs: Properties, top: str) -> bool:
        """A change for which the table names an operation; a property that is gone goes back to its default."""
        target = self.kind.updates.get(top)
        if target is None and ":" in self.kind.members.get(top, ""):
            target = self.kind.members[top]
        if target is None:
            return False
        value = inputs.get(top, self.kind.defaults.get(top))
        if value is None:
            return False
        named = target.partition(":")[0]
        request = translate_change(self.kind, target, top, value)
        self.world.cloud.call(named, self.arguments(self.kind.also.get(named, {}), record) | request)
        return True

    def _change_tags(self, record: Record, inputs: Properties) -> None:
        old, new = self.all_tags(record.inputs), self.all_tags(inputs)
        gone = [name for name in old if name not in new]
        service = self.kind.create.partition(".")[0]
        arn = str(self.outputs(record).get("arn", ""))
        change_tags(service, self.world.cloud, record.id, arn, new, gone)

    def _refuse_if_used(self, record: Record) -> None:
        for token, name in self.kind.used_by:
            for other in self.world.records.all(token):
                if record.id in _texts(other.inputs.get(name)):
                    raise ServiceError(self.format(self.kind.in_use, record) + f" ({token} {other.name} needs it)")


def _calls(named: str, request: Properties) -> list[Properties]:
    """A request to an additional operation; some take one attribute at a time."""
    if named in ONE_ATTRIBUTE_A_CALL:
        return [{name: value} for name, value in request.items()]
    return [request] if request else []


def _texts(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set().union(*(_texts(inner) for inner in value.values())) if value else set()
    if isinstance(value, list):
        return set().union(*(_texts(inner) for inner in value)) if value else set()
    return {str(value)}
