"""The stand-in AWS provider: the engine's protocol on one side, a world of resources on the other."""

from __future__ import annotations

import json
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf import any_pb2, empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2
from typing_extensions import override

from tests.standin import sdk
from tests.standin.cloud import Cloud
from tests.standin.configuration import Configuration, ConfigurationError
from tests.standin.differences import Change, differences, inside
from tests.standin.faults import RETRIES, Faults, NotReadyError, ServiceError
from tests.standin.invokes import UnknownFunctionError, invoke
from tests.standin.kinds import UnknownTypeError
from tests.standin.naming import GENERATED, with_all_tags, with_name
from tests.standin.records import Journal, Record, Records
from tests.standin.resources import Resource, World
from tests.standin.services import resource_of
from tests.standin.translation import Problem
from tests.standin.wire import Properties, from_struct, to_struct
from tests.toolchain.kube_api import KubeApi

FOLDER = "COLDSTART_STANDIN_DIR"
MOTO = "COLDSTART_STANDIN_MOTO"
KUBECONFIG = "COLDSTART_STANDIN_KUBECONFIG"
THROTTLE_PAUSE_S = 0.01

Answer = TypeVar("Answer")


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """One provider process. `environment` says where its world is."""

    def __init__(self, environment: dict[str, str] | os._Environ[str]) -> None:
        folder = Path(environment[FOLDER])
        self._moto = environment[MOTO]
        kubeconfig = environment.get(KUBECONFIG)
        self._kube = KubeApi(Path(kubeconfig)) if kubeconfig else None
        self._records = Records(folder)
        self._journal = Journal(folder)
        self._faults = Faults(folder)
        self._lock = threading.RLock()
        self._environment = environment
        self._world: World | None = None

    # The protocol, in the order in which the engine speaks it

    @override
    def Attach(self, request: Any, context: grpc.ServicerContext) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    @override
    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=sdk.VERSION)

    @override
    def CheckConfig(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.CheckResponse:
        failures = Configuration.problems(from_struct(request.news))
        return provider_pb2.CheckResponse(inputs=request.news, failures=_failures(failures))

    @override
    def DiffConfig(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        old, new = from_struct(request.old_inputs), from_struct(request.news)
        changed = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
        # Another region is another world: everything in it is replaced, as with the real provider.
        replaces = [name for name in changed if name == "region"]
        return _diff([Change(name, "update", name in replaces) for name in changed])

    @override
    def Configure(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.ConfigureResponse:
        with _told(context):
            given = from_struct(request.args)
            configuration = Configuration.of(given, self._environment)
            cloud = Cloud(self._moto, configuration.region)
            configuration.check_account(cloud)
            self._world = World(
                cloud=cloud, records=self._records, kube=self._kube, default_tags=configuration.default_tags
            )
        return provider_pb2.ConfigureResponse(supportsPreview=True, supports_autonaming_configuration=True)

    @override
    def Invoke(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.InvokeResponse:
        with _told(context):
            arguments = from_struct(request.args)
            answer = self._doing(
                "invoke", request.tok, json.dumps(arguments), lambda: invoke(request.tok, self.world, arguments)
            )
            return provider_pb2.InvokeResponse(**{"return": to_struct(answer)})

    @override
    def Check(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.CheckResponse:
        with _told(context):
            resource = self._resource(request.urn)
            # With ignoreChanges the engine sends back what the provider itself had added.
            news = {name: value for name, value in from_struct(request.news).items() if name != "tagsAll"}
            stray = [
                Problem(path, f"pulumi_aws.{resource.kind.sdk} has no such property; it has {names}")
                for path, names in sdk.stray_properties(resource.kind.sdk, news)
            ]
            if stray:
                return provider_pb2.CheckResponse(inputs=request.news, failures=_failures(stray))
            named = with_name(resource.kind, news, from_struct(request.olds), request)
            inputs = with_all_tags(resource, named)
            failures = _failures(resource.problems(inputs))
            return provider_pb2.CheckResponse(inputs=to_struct(inputs), failures=failures)

    @override
    def Diff(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        with _told(context):
            resource = self._resource(request.urn)
            old, new = from_struct(request.old_inputs), from_struct(request.news)
            return _diff(
                _changes(resource, old, new, request.ignoreChanges), delete_first=_occupies_name(resource, old, new)
            )

    @override
    def Create(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.CreateResponse:
        with _told(context):
            resource, inputs = self._resource(request.urn), from_struct(request.properties)
            if request.preview:
                return provider_pb2.CreateResponse(
                    id="", properties=to_struct(resource.outputs_before_creation(inputs))
                )
            record = self._doing(
                "create", resource.kind.token, _name(request.urn), lambda: resource.create(_name(request.urn), inputs)
            )
            return provider_pb2.CreateResponse(id=record.id, properties=to_struct(resource.outputs(record)))

    @override
    def Read(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.ReadResponse:
        with _told(context):
            resource, name = self._resource(request.urn), _name(request.urn)
            inputs = from_struct(request.inputs)
            record = self._doing(
                "read", resource.kind.token, name, lambda: self._read(resource, name, request.id, inputs)
            )
            if record is None:
                return provider_pb2.ReadResponse(id="")
            return provider_pb2.ReadResponse(
                id=record.id, properties=to_struct(resource.outputs(record)), inputs=to_struct(record.inputs)
            )

    @override
    def Update(self, request: Any, context: grpc.ServicerContext) -> provider_pb2.UpdateResponse:
        with _told(context):
            resource, name = self._resource(request.urn), _name(request.urn)
            old, new, olds = (from_struct(each) for each in (request.old_inputs, request.news, request.olds))
            changes = _changes(resource, old, new, request.ignoreChanges)
            if request.preview:
                return provider_pb2.UpdateResponse(
                    properties=to_struct(resource.outputs_before_change(olds, new, changes))
                )
            record = self._known(resource, name, request.id, old)
            record = self._doing(
                "update", resource.kind.token, name, lambda: resource.update(record, new, changes), changes=changes
            )
            return provider_pb2.UpdateResponse(properties=to_struct(resource.outputs(record)))

    @override
    def Delete(self, request: Any, context: grpc.ServicerContext) -> empty_pb2.Empty:
        with _told(context):
            resource, name = self._resource(request.urn), _name(request.urn)
            record = self._known(resource, name, request.id, from_struct(request.old_inputs))
            self._doing("delete", resource.kind.token, name, lambda: resource.delete(record))
            return empty_pb2.Empty()

    @override
    def Cancel(self, request: Any, context: grpc.ServicerContext) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    # The world

    @property
    def world(self) -> World:
        """The world of the configured account and region."""
        if self._world is None:
            raise ServiceError("the provider is not configured yet: its configuration holds unknown values")
        return self._world

    def _resource(self, urn: str) -> Resource:
        token = urn.split("::")[2].rpartition("$")[2]
        return resource_of(token, self.world)

    def _known(self, resource: Resource, name: str, resource_id: str, inputs: Properties) -> Record:
        """The record of a resource in the engine's state, or one made from that state if nothing remembers it."""
        found = self._records.get(resource.kind.token, resource_id)
        return found or Record(token=resource.kind.token, id=resource_id, name=name, inputs=inputs)

    def _read(self, resource: Resource, name: str, resource_id: str, inputs: Properties) -> Record | None:
        known = self._records.get(resource.kind.token, resource_id)
        if not inputs and known is None:
            return resource.adopt(name, resource_id)
        return resource.read(known or Record(token=resource.kind.token, id=resource_id, name=name, inputs=inputs))

    def _doing(
        self, operation: str, token: str, name: str, act: Callable[[], Answer], changes: list[Change] | None = None
    ) -> Answer:
        """Carries an operation out, or fails as planned; either way it is in the journal."""
        entry = {"operation": operation, "type": token, "name": name}
        if changes:
            entry["changes"] = [change.path for change in changes]
        self._journal.write(**entry, event="begin")
        try:
            answer = self._under_faults(operation, token, name, act)
        except Exception as error:
            self._journal.write(**entry, event="failed", error=str(error))
            raise
        self._journal.write(**entry, event="end")
        return answer

    def _under_faults(self, operation: str, token: str, name: str, act: Callable[[], Answer]) -> Answer:
        throttled = 0
        while fault := self._faults.strike(operation, token, name):
            if fault.kind == "half":
                with self._lock:
                    raise _HalfDoneError(act(), fault.error)
            if fault.kind != "throttling" or throttled == RETRIES:
                raise ServiceError(fault.error)
            throttled += 1
            self._journal.write(operation=operation, type=token, name=name, event="throttled", error=fault.error)
            time.sleep(THROTTLE_PAUSE_S)
        with self._lock:
            return act()


class _HalfDoneError(NotReadyError):
    """Carries the record of the resource that exists but isn't ready."""

    def __init__(self, record: Any, text: str) -> None:
        super().__init__(text)
        self.record: Record = record


@contextmanager
def _told(context: grpc.ServicerContext) -> Iterator[None]:
    """Turns what went wrong into the engine's kind of error: a message, and never a silent success."""
    try:
        yield
    except _HalfDoneError as error:
        _abort_half_done(context, error)
    except (ServiceError, UnknownTypeError, UnknownFunctionError, ConfigurationError) as error:
        context.abort(grpc.StatusCode.UNKNOWN, str(error))
    except Exception:  # noqa: BLE001 - a mistake of the stand-in itself: the test must see where
        context.abort(grpc.StatusCode.INTERNAL, f"the stand-in itself failed:\n{traceback.format_exc()}")


def _abort_half_done(context: grpc.ServicerContext, error: _HalfDoneError) -> None:
    """The engine keeps such a resource in its state, marked as not initialised."""
    details = provider_pb2.ErrorResourceInitFailed(
        id=error.record.id, properties=to_struct(error.record.inputs), reasons=[str(error)]
    )
    packed = any_pb2.Any()
    packed.Pack(details)
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(error), details=[packed])
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, str(error))


def _changes(resource: Resource, old: Properties, new: Properties, ignored: Iterable[str]) -> list[Change]:
    """The changes but for those that the program leaves to others: the engine can't hide what Check itself adds."""
    return [change for change in differences(resource.kind, old, new) if not inside(ignored, change.path)]


def _occupies_name(resource: Resource, old: Properties, new: Properties) -> bool:
    """Whether a replacement could not be made beside the old one: it has the same name, given by the program."""
    name = resource.kind.name_property
    return bool(name) and name in new and old.get(name) == new[name] and name not in _generated(new)


def _generated(inputs: Properties) -> list[str]:
    return inputs.get(GENERATED, [])


def _diff(changes: list[Change], *, delete_first: bool = False) -> provider_pb2.DiffResponse:
    kinds = provider_pb2.PropertyDiff
    detailed = {
        change.path: kinds(
            kind=kinds.Kind.Value(f"{change.how.upper()}_REPLACE" if change.replaces else change.how.upper()),
            inputDiff=True,
        )
        for change in changes
    }
    replaces = list(dict.fromkeys(change.top for change in changes if change.replaces))
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME if changes else provider_pb2.DiffResponse.DIFF_NONE,
        diffs=list(dict.fromkeys(change.top for change in changes)),
        replaces=replaces,
        deleteBeforeReplace=bool(replaces) and delete_first,
        detailedDiff=detailed,
        hasDetailedDiff=True,
    )


def _failures(problems: list[Problem]) -> list[provider_pb2.CheckFailure]:
    return [provider_pb2.CheckFailure(property=problem.property, reason=problem.reason) for problem in problems]


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]
