"""`coldstart stage --in-cluster`: the same staging as a Job on a CPU node, followed from here.

Interrupting this ends the following, not the Job: run it again and it is followed again.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, cast

import click
import httpx2
from lightkube import ApiError, Client, codecs
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Pod
from lightkube.types import CascadeType
from rich.console import Console

from budget.problems import BadInput, Problem, bad_input
from infra.stack_file import Stack
from scripts.failure import Failure
from scripts.ledger.kubeconfig import opened
from scripts.shipped_code import code
from scripts.stage_screen import bar
from scripts.staging.destination import Origin
from scripts.staging.meter import Snapshot
from scripts.staging.progress import parse
from scripts.waiting import Patience, in_time, wait_for
from serving.stage_job import NAMESPACE, StageJobSpec, objects

FIELD_MANAGER = "coldstart"
JOB_LABEL = "batch.kubernetes.io/job-name"
"""Kubernetes' own, on every pod of a Job."""
NOT_FOUND = 404
ENTRY = "scripts.staging"
"""The package that a pod runs."""
POLL_S = 1.0
"""Between two looks at a pod that has not started."""
GONE_S = 180.0
"""For an old Job to go: three times what its pods have to end (serving/stage_job.py)."""
START_S = 1_800.0
"""For a pod to start: a node is launched and the engine's image pulled, minutes both; then something holds it."""


def run(
    stack: Stack | None, origin: Origin, bucket: str, *, context: str | None, hub_secret: str | None
) -> Mapping[str, Any]:
    """Starts the Job of a model stack, or finds it running, and follows it to its end.

    Returns:
        The document that the Job printed, as `coldstart stage --json` does.

    Raises:
        BadInput: no model stack, or no kubeconfig that can be used.
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
        code=code(ENTRY),
        hub_secret=hub_secret,
        labels={"coldstart/environment": stack.environment_name, "coldstart/stack": stack.name},
    )


# ---- the cluster --------------------------------------------------------------------------------------------------


@contextmanager
def told() -> Generator[None]:
    """Turns what the API server, and the kubeconfig's way to a token, raise into a Failure."""
    try:
        yield
    except ApiError as error:
        raise Failure(f"the cluster refuses: {error.status.message} ({error.status.code})") from error
    except ConfigError as error:
        raise Failure(f"the kubeconfig cannot be used: {error}. `aws eks update-kubeconfig` writes one") from error
    except httpx2.HTTPError as error:
        words = f"the cluster cannot be reached: {error}. A Job that has started goes on without this command"
        raise Failure(words) from error


def _client(context: str | None) -> Client:
    def connection(config: SingleConfig) -> Client:
        return Client(config=config, field_manager=FIELD_MANAGER)

    return opened(connection, context)


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
    wait_for(
        "the Job before this one to be deleted",
        lambda: [name] if _job(client, name) is not None else [],
        patience=Patience(limit_s=GONE_S, every_s=POLL_S),
        say=lambda line: click.echo(line, err=True),
        go_on=f"see what its pods wait for: {_look(name)}; then run this again",
    )


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
        for pod in _Pods(client, name).running():
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


class _Pods:
    """The pods of a Job, one after another."""

    def __init__(self, client: Client, job: str) -> None:
        self._client, self._job = client, job
        self._seen: set[str] = set()
        self._told_of: list[str] = []
        self._started: list[str] = []

    def running(self) -> Iterator[str]:
        """Names of the pods, each once it runs or has ended; ends with the Job.

        Raises:
            Failure: for too long, no pod starts and the Job does not end.
        """
        while in_time(self._looked, Patience(limit_s=START_S, every_s=POLL_S)):
            if not self._started:
                return
            yield from self._started
        why = self._told_of[-1] if self._told_of else "nothing says why"
        raise Failure(
            f"Job {NAMESPACE}/{self._job}: no pod has started within {START_S / 60:.0f} minutes ({why}). "
            f"The Job itself goes on. Look at it with `{_look(self._job)}`; run this again to follow it"
        )

    def _looked(self) -> bool:
        """Whether pods have started, or the Job has ended."""
        self._started = []
        for pod in self._client.list(Pod, namespace=NAMESPACE, labels={JOB_LABEL: self._job}):
            name = (pod.metadata.name if pod.metadata else None) or ""
            phase = (pod.status.phase if pod.status else None) or "Pending"
            if name in self._seen:
                continue
            if phase in {"Running", "Succeeded", "Failed"}:
                self._seen.add(name)
                self._started.append(name)
            elif (why := waiting_for(pod)) and why not in self._told_of:
                self._told_of.append(why)
                click.echo(f"  {name} waits: {why}", err=True)
        job = None if self._started else _job(self._client, self._job)
        return bool(self._started) or job is None or _ended(job) is not None


def _look(job: str) -> str:
    return f"kubectl -n {NAMESPACE} describe pods -l {JOB_LABEL}={job}"


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
