"""`coldstart stage --in-cluster`: the same staging as a Job on a CPU node, followed from here.

Interrupting this ends the following, not the Job: run it again and it is followed again.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from importlib.resources import files
from typing import Any, cast

import click
import httpx2
from lightkube import ApiError, Client, KubeConfig, codecs
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Pod
from lightkube.types import CascadeType
from rich.console import Console

from budget.problems import BadInput, Problem, bad_input
from infra.stack_file import Stack
from scripts.failure import Failure
from scripts.stage_screen import bar
from scripts.staging.destination import Origin
from scripts.staging.meter import Snapshot
from scripts.staging.progress import parse
from serving.stage_job import NAMESPACE, StageJobSpec, objects

FIELD_MANAGER = "coldstart"
NOT_FOUND = 404
POLL_S = 1.0
"""Between two looks at a pod that has not started."""
_ROOT_MODULES = "scripts.staging"
_ROOMS = ("budget", "scripts")


def run(
    stack: Stack | None, origin: Origin, bucket: str, *, context: str | None, hub_secret: str | None
) -> Mapping[str, Any]:
    """Starts the Job of a model stack, or finds it running, and follows it to its end.

    Returns:
        The document that the Job printed, as `coldstart stage --json` does.

    Raises:
        BadInput: no model stack.
        Failure: the cluster refused, the pod cannot start, or staging failed.
    """
    spec = spec_of(stack, origin, bucket, hub_secret=hub_secret)
    with told(), ExitStack() as closing:
        client = _client(context)
        closing.callback(client.close)
        start(client, spec)
        return follow(client, spec.name)


def spec_of(stack: Stack | None, origin: Origin, bucket: str, *, hub_secret: str | None) -> StageJobSpec:
    """The Job of a model stack.

    Raises:
        BadInput: not a model stack.
    """
    if stack is None or stack.model is None:
        raise bad_input("--in-cluster", "no model stack is named", "The stack says image, region and cluster.")
    return StageJobSpec(
        slug=stack.slug[:40].strip("-"),
        image=stack.model.image,
        source=origin.source,
        bucket=bucket,
        region=stack.environment.region,
        trust_remote_code=origin.trust_remote_code,
        code=code(),
        hub_secret=hub_secret,
        labels={"coldstart/environment": stack.environment_name, "coldstart/stack": stack.name},
    )


def code() -> Mapping[str, str]:
    """Every Python file of ours that staging needs, path → text: its own, and whatever those import."""
    found: dict[str, str] = {}
    waiting = [f"{_ROOT_MODULES}.{name}" for name in _modules(_ROOT_MODULES)]
    while waiting:
        module = waiting.pop()
        path = _path(module)
        if path is None or path in found:
            continue
        found[path] = _text(path)
        waiting += [module.rpartition(".")[0], *_imports(found[path])]
    return found


def _modules(package: str) -> Iterator[str]:
    for item in files(package).iterdir():
        if item.name.endswith(".py"):
            yield item.name.removesuffix(".py")


def _path(module: str) -> str | None:
    """File of a module of ours; None for anything else."""
    room, *rest = module.split(".")
    if room not in _ROOMS:
        return None
    for names in ([*rest, "__init__.py"], [*rest[:-1], f"{rest[-1]}.py"] if rest else []):
        if names and files(room).joinpath(*names).is_file():
            return "/".join([room, *names])
    return None


def _text(path: str) -> str:
    room, *rest = path.split("/")
    return files(room).joinpath(*rest).read_text(encoding="utf-8")


def _imports(text: str) -> Iterator[str]:
    """Modules that a file imports; what is imported from a package may be a module too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


# ---- the cluster --------------------------------------------------------------------------------------------------


@contextmanager
def told() -> Generator[None]:
    """Turns what the API server and the kubeconfig raise into a Failure."""
    try:
        yield
    except ApiError as error:
        raise Failure(f"the cluster refuses: {error.status.message} ({error.status.code})") from error
    except ConfigError as error:
        raise Failure(f"the kubeconfig cannot be used: {error}. `aws eks update-kubeconfig` writes one") from error
    except httpx2.HTTPError as error:
        raise Failure(f"the cluster cannot be reached: {error}. The Job, once started, goes on without us") from error


def _client(context: str | None) -> Client:
    config = KubeConfig.from_env()
    single: SingleConfig | None = config.get(context_name=context) if config else None
    if single is None:
        raise Failure("there is no kubeconfig for the cluster. `aws eks update-kubeconfig --name CLUSTER` writes one")
    return Client(config=single, field_manager=FIELD_MANAGER)


def start(client: Client, spec: StageJobSpec) -> None:
    """Applies everything; a Job that is running stays, one that has ended is replaced.

    Raises:
        ApiError: the cluster refused.
    """
    *around, job = objects(spec)
    for entry in around:
        client.apply(cast("Any", codecs.from_dict(dict(entry))), force=True)
    old = _job(client, spec.name)
    if old is not None and not _ended(old):
        click.echo(f"{spec.name} is running already; following it", err=True)
        return
    if old is not None:
        client.delete(Job, spec.name, namespace=NAMESPACE, cascade=CascadeType.FOREGROUND)
        _wait_gone(client, spec.name)
    client.create(cast("Job", codecs.from_dict(dict(job))))


def _job(client: Client, name: str) -> Job | None:
    try:
        return client.get(Job, name, namespace=NAMESPACE)
    except ApiError as error:
        if error.status.code == NOT_FOUND:
            return None
        raise


def _wait_gone(client: Client, name: str) -> None:
    while _job(client, name) is not None:
        threading.Event().wait(POLL_S)


def _ended(job: Job) -> str | None:
    """`Complete` or `Failed`, once it is one of them."""
    conditions = (job.status.conditions or []) if job.status else []
    return next(
        (entry.type for entry in conditions if entry.type in {"Complete", "Failed"} and entry.status == "True"), None
    )


# ---- following ----------------------------------------------------------------------------------------------------


class Followed:
    """What the pods of a Job have said so far.

    Attributes:
        document: the outcome that a pod printed.
        trouble: errors that pods printed.
    """

    def __init__(self, *, as_lines: bool) -> None:
        self._as_lines = as_lines
        self.document: Mapping[str, Any] | None = None
        self.trouble: list[str] = []
        self._latest = Snapshot(total_bytes=0, done_bytes=0, sent_bytes=0, total_files=0, done_files=0, elapsed_s=0)
        self._lock = threading.Lock()

    def latest(self) -> Snapshot:
        """The newest progress."""
        with self._lock:
            return self._latest

    def take(self, line: str) -> None:
        """One line of a pod's log: progress, the final document, an error, or anything else (passed on)."""
        snapshot = parse(line)
        if snapshot is not None:
            with self._lock:
                self._latest = snapshot
            if self._as_lines:
                click.echo(snapshot.line(), err=True)
        elif line.startswith("{"):
            self._take_document(line)
        elif re.match(r"(failed|error): ", line):
            self.trouble.append(line)
        elif line.strip():
            click.echo(f"  pod: {line.rstrip()}", err=True)

    def error(self, job: str) -> Exception:
        """What to tell a person of a Job that did not stage."""
        bad = [line.removeprefix("error: ").rstrip() for line in self.trouble if line.startswith("error: ")]
        if bad:
            return BadInput(Problem(f"{NAMESPACE}/{job}", line.rstrip("."), "Mend it and start again.") for line in bad)
        said = self.trouble[-1].rstrip() if self.trouble else "its pod said nothing"
        return Failure(f"staging in the cluster failed: {said} (Job {NAMESPACE}/{job})")

    def _take_document(self, line: str) -> None:
        try:
            document: object = json.loads(line)
        except ValueError:
            click.echo(f"  pod: {line.rstrip()}", err=True)
            return
        if isinstance(document, dict) and "state" in document:
            self.document = cast("Mapping[str, Any]", document)


def follow(client: Client, name: str) -> Mapping[str, Any]:
    """Shows a Job's progress until it ends.

    Raises:
        Failure: it failed, with what its pod said.
    """
    on_terminal = sys.stderr.isatty()
    followed = Followed(as_lines=not on_terminal)
    with bar(followed.latest, name, console=Console(stderr=True)) if on_terminal else nullcontext():
        for pod in _running_pods(client, name):
            for line in _log(client, pod):
                followed.take(line)
    job = _job(client, name)
    if followed.document is not None and (job is None or _ended(job) != "Failed"):
        return followed.document
    raise followed.error(name)


def _log(client: Client, pod: str) -> Iterator[str]:
    """A pod's log to its end. A connection that is cut meanwhile is opened again; lines then come twice."""
    while True:
        try:
            yield from client.log(pod, namespace=NAMESPACE, follow=True, newlines=False)
        except httpx2.TransportError:
            status = client.get(Pod, pod, namespace=NAMESPACE).status
            if status is None or status.phase != "Running":
                raise
        else:
            return


def _running_pods(client: Client, name: str) -> Iterator[str]:
    """Names of the Job's pods, each once it runs or has ended; ends with the Job."""
    seen: set[str] = set()
    told_of: set[str] = set()
    while True:
        for pod in client.list(Pod, namespace=NAMESPACE, labels={"batch.kubernetes.io/job-name": name}):
            pod_name = (pod.metadata.name if pod.metadata else None) or ""
            phase = (pod.status.phase if pod.status else None) or "Pending"
            if pod_name in seen:
                continue
            if phase in {"Running", "Succeeded", "Failed"}:
                seen.add(pod_name)
                yield pod_name
            elif (why := waiting_for(pod)) and why not in told_of:
                told_of.add(why)
                click.echo(f"  {pod_name} waits: {why}", err=True)
        job = _job(client, name)
        if job is None or _ended(job):
            return
        threading.Event().wait(POLL_S)


def waiting_for(pod: Pod) -> str | None:
    """Why a pod has not started: no node fits it, or its image cannot be had."""
    status = pod.status
    if status is None:
        return None
    for container in status.containerStatuses or []:
        waiting = container.state.waiting if container.state else None
        if waiting and waiting.reason and waiting.reason != "ContainerCreating":
            return f"{waiting.reason} {waiting.message or ''}".strip()
    for condition in status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{condition.reason}: {condition.message}"
    return None
