"""Evaluates a stack with no cloud: the program itself runs, and what it declares is recorded with its options.

What the engine would refuse is refused here as well: two resources of one name, a type nobody described, a cloud
resource without an explicit provider. Used by `plan`, `render`, the demo and the tests alike.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

from google.protobuf import empty_pb2
from pulumi.output import Unknown
from pulumi.runtime import config as runtime_config
from pulumi.runtime import rpc
from pulumi.runtime.mocks import MockCallArgs, MockEngine, MockMonitor, MockResourceArgs, Mocks, MockSettings
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.settings import configure, get_project, get_stack, reset_options
from pulumi.runtime.stack import run_in_stack
from pulumi.runtime.sync_await import _ensure_event_loop  # pyright: ignore[reportPrivateUsage] - as the SDK's own monitor

from budget.problems import BadInput, Problem
from infra.offline_cloud import COMPUTED, answer, computed
from infra.stack_file import PROJECT, STACKS, config_of, path_of, read

PLACEHOLDER_SECRET = "offline-placeholder"  # noqa: S105 - stands for a secret that is never read here


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """One resource as the program declared it.

    Attributes:
        urn: as the engine would name it.
        type: Pulumi type token.
        inputs: properties, spelled as on the wire; secrets are unwrapped and listed in `secrets`.
        parent: URN, or empty for the stack's own.
        depends_on: URNs, explicit and through inputs.
        provider: `urn::id` of the provider, empty for components and providers.
        ignore_changes, protect, retain_on_delete, delete_before_replace, deleted_with, import_id: resource options.
        timeouts: operation → duration as given.
    """

    urn: str
    type: str
    name: str
    custom: bool
    inputs: Mapping[str, Any]
    secrets: frozenset[str]
    parent: str
    depends_on: frozenset[str]
    provider: str
    ignore_changes: tuple[str, ...]
    protect: bool
    retain_on_delete: bool
    delete_before_replace: bool
    deleted_with: str
    import_id: str
    timeouts: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a stack declares.

    Attributes:
        resources: sorted by URN, since the program registers them concurrently; providers and components included.
        outputs: exported values; those unknown before `up` are missing when evaluated as a preview.
        warnings: what the program warned of.
        invokes: data sources it asked.
    """

    stack: str
    resources: tuple[Recorded, ...]
    outputs: Mapping[str, Any]
    warnings: tuple[str, ...]
    invokes: tuple[str, ...]

    def of_type(self, suffix: str) -> Sequence[Recorded]:
        """Resources whose type token ends in `suffix` (`:LaunchTemplate`)."""
        return [resource for resource in self.resources if resource.type.endswith(suffix)]


def evaluate(
    name: str,
    *,
    directory: Path = STACKS,
    mode: Literal["preview", "up"] = "up",
    adopted: bool = False,
    program: Callable[[Path], None] | None = None,
) -> Evaluation:
    """Runs the program for a stack and records what it declares.

    Args:
        name: stack name; its file and its environment's lie in `directory`.
        directory: folder of the stack files.
        mode: `preview` leaves ids and computed values unknown, as a real preview does.
        adopted: pretends that a kept weight bucket is already there.
        program: instead of the project's own.

    Raises:
        BadInput: the settings are wrong.
    """
    stack = read(name, directory)
    environment: Mapping[str, Any] = {}
    if stack.model:
        text = path_of(stack.environment_name, directory).read_text(encoding="utf-8")
        environment = _environment_outputs(stack.environment_name, directory, text)
    monitor = _Recorder(_Cloud(environment, preview=mode == "preview", adopted=adopted))
    log = _Warnings()
    run = program or _project_program()
    context = contextvars.copy_context()
    context.run(_run, name, directory, mode, monitor, log, run)
    return Evaluation(
        stack=name,
        resources=tuple(sorted(monitor.recorded, key=lambda resource: resource.urn)),
        outputs=monitor.outputs,
        warnings=tuple(log.messages),
        invokes=tuple(sorted(monitor.invokes)),
    )


@cache
def _environment_outputs(name: str, directory: Path, text: str) -> Mapping[str, Any]:
    """What an environment exports: all its models ask. `text` is its file, so that a changed one is evaluated anew."""
    del text
    return evaluate(name, directory=directory).outputs


def _project_program() -> Callable[[Path], None]:
    from infra.program import run  # noqa: PLC0415 - importing the SDKs takes most of a second; only evaluation needs them

    return run


def _run(
    name: str,
    directory: Path,
    mode: str,
    monitor: _Recorder,
    log: _Warnings,
    program: Callable[[Path], None],
) -> None:
    logger = logging.Logger(f"coldstart.offline.{name}")  # noqa: LOG001 - private to this evaluation, never configured by anyone
    logger.addHandler(log)
    values, secrets = _config(name, directory)
    loop, worker = asyncio.new_event_loop(), _Worker()
    asyncio.set_event_loop(loop)
    loop.set_default_executor(worker)
    try:
        configure(
            MockSettings(
                monitor=monitor,
                monitor_features=set(monitor.GetDeploymentInfo(empty_pb2.Empty()).supportedFeatures),
                engine=MockEngine(logger),
                project=PROJECT,
                stack=name,
                dry_run=mode == "preview",
                organization="organization",
                callbacks=None,
                # The SDK's own are shared by all evaluations: one that failed would leave its tasks to the next.
                outputs=set(),
                lock=threading.Lock(),
            )
        )
        runtime_config.set_all_config(values, secrets)
        task = loop.create_task(run_in_stack(lambda: program(directory)))
        loop.run_until_complete(asyncio.wait([task]))
        if monitor.refused:
            # What depends on a refused resource fails too, in the SDK's words; ours say why.
            task.exception()
            raise BadInput(monitor.refused)
        task.result()
    finally:
        worker.close()
        loop.close()
        asyncio.set_event_loop(None)
        reset_options()


def _config(name: str, directory: Path) -> tuple[dict[str, str], list[str]]:
    """Config as the engine hands it over: text, objects as JSON, secrets named."""
    values: dict[str, str] = {}
    secrets: list[str] = []
    for key, value in config_of(name, directory).items():
        if isinstance(value, dict) and set(value) == {"secure"}:  # pyright: ignore[reportUnknownArgumentType] - YAML
            values[key] = PLACEHOLDER_SECRET
            secrets.append(key)
        else:
            values[key] = value if isinstance(value, str) else json.dumps(value)
    return values, secrets


class _Worker(ThreadPoolExecutor):
    """The one thread that answers the program's requests, with the event loop that the SDK's monitor needs there."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        super().__init__(max_workers=1, initializer=asyncio.set_event_loop, initargs=(self._loop,))

    def close(self) -> None:
        """Waits for the thread and closes its loop, which the SDK would leave open."""
        self.shutdown(wait=True)
        self._loop.close()


class _Warnings(logging.Handler):
    """Keeps what the program warned of."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


class _Cloud(Mocks):
    """Answers in the cloud's place, from tables: what a resource computes, what a data source returns."""

    def __init__(self, environment: Mapping[str, Any], *, preview: bool, adopted: bool) -> None:
        self._environment, self._preview, self._adopted = environment, preview, adopted

    def call(self, args: MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        return answer(args.token, cast("dict[str, Any]", args.args), adopted=self._adopted), []

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if args.typ == "pulumi:pulumi:StackReference":
            return args.name, {"name": args.name, "outputs": dict(self._environment), "secretOutputNames": []}
        if not args.custom or args.typ.startswith("pulumi:providers:"):
            return f"{args.name}-id", cast("dict[str, Any]", args.inputs)
        inputs = cast("dict[str, Any]", args.inputs)
        state = inputs | computed(args.typ, args.name, inputs)
        return ("", inputs) if self._preview else (str(state.get("id", f"{args.name}-id")), state)


class _Recorder(MockMonitor):
    """Keeps each registration whole, and refuses what the engine would refuse."""

    def __init__(self, cloud: _Cloud) -> None:
        super().__init__(cloud)
        self.recorded: list[Recorded] = []
        self.outputs: Mapping[str, Any] = {}
        self.invokes: list[str] = []
        self.refused: list[Problem] = []

    def RegisterResource(self, request: resource_pb2.RegisterResourceRequest) -> resource_pb2.RegisterResourceResponse:  # noqa: N802 - the protocol's name
        _ensure_event_loop()
        urn = self.make_urn(request.parent, request.type, request.name)
        if request.type != "pulumi:pulumi:Stack":
            self._refuse(request, urn)
            self.recorded.append(_recorded(request, urn))
        return super().RegisterResource(request)

    def RegisterResourceOutputs(self, request: resource_pb2.RegisterResourceOutputsRequest) -> empty_pb2.Empty:  # noqa: N802 - the protocol's name
        _ensure_event_loop()
        if "::pulumi:pulumi:Stack::" in request.urn:
            self.outputs = _plain(rpc.deserialize_properties(request.outputs))
        return super().RegisterResourceOutputs(request)

    def Invoke(self, request: resource_pb2.ResourceInvokeRequest) -> resource_pb2.ResourceInvokeResponse:  # noqa: N802 - the protocol's name
        self.invokes.append(request.tok)
        if not request.provider:
            self.refused.append(Problem(request.tok, "asked without an explicit provider", "Pass opts with one."))
            raise BadInput(self.refused)
        return super().Invoke(request)

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """As the engine: every parent's type but the stack's own is part of it."""
        parents = parent.split("::")[2] if parent and "::pulumi:pulumi:Stack::" not in parent else ""
        return "::".join([f"urn:pulumi:{get_stack()}", get_project(), f"{parents}${type_}" if parents else type_, name])

    def _refuse(self, request: resource_pb2.RegisterResourceRequest, urn: str) -> None:
        problem: Problem | None = None
        managed = request.type.split(":")[0] in ("aws", "kubernetes")
        if any(resource.urn == urn for resource in self.recorded):
            problem = Problem(urn, "declared twice", "Give one of the two another name.")
        elif managed and not request.provider:
            problem = Problem(urn, "has no explicit provider", "Pass one in its options.")
        elif managed and request.type not in COMPUTED:
            fix = "Describe it in infra/offline_cloud.py."
            problem = Problem(urn, f"{request.type} is not a type this project declares", fix)
        if problem:
            self.refused.append(problem)
            raise BadInput([problem])


def _recorded(request: resource_pb2.RegisterResourceRequest, urn: str) -> Recorded:
    inputs: Mapping[str, Any] = rpc.deserialize_properties(request.object, keep_unknowns=True)
    timeouts = request.customTimeouts
    return Recorded(
        urn=urn,
        type=request.type,
        name=request.name,
        custom=request.custom,
        inputs=_plain(inputs),
        secrets=frozenset(key for key, value in inputs.items() if rpc.is_rpc_secret(value)),
        parent=request.parent,
        depends_on=frozenset(request.dependencies),
        provider=request.provider,
        ignore_changes=tuple(request.ignoreChanges),
        protect=request.protect,
        retain_on_delete=request.retainOnDelete,
        delete_before_replace=request.deleteBeforeReplace,
        deleted_with=request.deletedWith,
        import_id=request.importId,
        timeouts={
            operation: value for operation in ("create", "update", "delete") if (value := getattr(timeouts, operation))
        },
    )


def _plain(value: Any) -> Any:  # noqa: ANN401 - any property value
    """Secrets unwrapped and unknowns as the word `unknown`, so that a recording can be printed and compared."""
    if rpc.is_rpc_secret(value):
        return _plain(rpc.unwrap_rpc_secret(value))
    if isinstance(value, Unknown):
        return "unknown"
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType] - any property value
    if isinstance(value, list):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType] - any property value
    return value
