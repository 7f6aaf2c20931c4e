"""The pod object: conditions, container states, which container is the engine."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.ledger.bundle import GPU_RESOURCES
from scripts.ledger.facts import Attempt, Clock, Fact
from scripts.ledger.raw import NOTHING, Object, count, label, mapping, objects, text, texts, whole
from scripts.ledger.times import stamp
from serving.placement import MODEL_LABEL

SOURCE = "pod"


def stated(value: object, path: str, *, name: str, clock: Clock, source: str, evidence: str) -> Iterator[Fact]:
    """The moment written at a path of an object, if there is one that can be read."""
    written = text(value, path)
    try:
        at_s, resolution_s = stamp(written)
    except ValueError:
        return
    yield Fact(
        name=name,
        at_s=at_s,
        clock=clock,
        resolution_s=resolution_s,
        source=source,
        evidence=f"{evidence} {written}",
    )


def engine_container(pod: Object) -> str:
    """Name of the container that is the engine; empty when the pod has none.

    Best evidence first: it offers the launcher's port; its command, arguments or image name vLLM; it asks for a GPU;
    it is the first.
    """
    containers = objects(pod, "spec.containers")

    def launcher(container: Object) -> bool:
        return any(text(port, "name") == "launcher" for port in objects(container, "ports"))

    def vllm(container: Object) -> bool:
        words = [text(container, "image"), *texts(container, "command"), *texts(container, "args")]
        return any("vllm" in word for word in words)

    def gpu(container: Object) -> bool:
        limits = mapping(container, "resources.limits")
        return any(name in limits for name in GPU_RESOURCES)

    def any_of_them(_: Object) -> bool:
        return True

    for sign in (launcher, vllm, gpu, any_of_them):
        for container in containers:
            if sign(container):
                return text(container, "name")
    return ""


def container_status(pod: Object, name: str) -> Object:
    """Status of a container; empty when the kubelet has not written one."""
    return next(
        (status for status in objects(pod, "status.containerStatuses") if text(status, "name") == name), NOTHING
    )


def condition(pod: Object, kind: str) -> Object:
    """A condition of the pod; empty when it is not there."""
    return next((entry for entry in objects(pod, "status.conditions") if text(entry, "type") == kind), NOTHING)


def pod_facts(pod: Object) -> list[Fact]:
    """Moments that the pod states: asked, scheduled, container-started, ready, deleted."""
    status = container_status(pod, engine_container(pod))
    found = list(
        stated(
            pod,
            "metadata.creationTimestamp",
            name="asked",
            clock=Clock.API,
            source=SOURCE,
            evidence="creationTimestamp",
        )
    )
    for kind, name, clock in (("PodScheduled", "scheduled", Clock.API), ("Ready", "ready", Clock.NODE)):
        entry = condition(pod, kind)
        if text(entry, "status") == "True":
            found += stated(
                entry,
                "lastTransitionTime",
                name=name,
                clock=clock,
                source=SOURCE,
                evidence=f"condition {kind} True since",
            )
    for state in ("running", "terminated"):
        found += stated(
            status,
            f"state.{state}.startedAt",
            name="container-started",
            clock=Clock.NODE,
            source=SOURCE,
            evidence=f"state.{state}.startedAt",
        )
    found += stated(
        pod, "metadata.deletionTimestamp", name="deleted", clock=Clock.API, source=SOURCE, evidence="deletionTimestamp"
    )
    return found


MOST_ATTEMPTS = 100
"""Earlier runs that are listed; a crash loop of days counts thousands, of which nothing is known."""


def attempts(pod: Object) -> list[Attempt]:
    """Earlier runs of the engine's container. Kubernetes keeps the last one and the count."""
    status = container_status(pod, engine_container(pod))
    restarts = whole(status, "restartCount") or 0
    last = mapping(status, "lastState.terminated")
    if not restarts and not last:
        return []
    found = [
        Attempt(
            what="container", exit_code=None, reason="Kubernetes keeps only the last one", began_s=None, ended_s=None
        )
        for _ in range(min(restarts - 1, MOST_ATTEMPTS))
    ]
    moments = {
        key: next((f.at_s for f in stated(last, key, name=key, clock=Clock.NODE, source=SOURCE, evidence=key)), None)
        for key in ("startedAt", "finishedAt")
    }
    reason = text(last, "reason") or "no reason given"
    return [
        *found,
        Attempt(
            what="container",
            exit_code=whole(last, "exitCode"),
            reason=reason,
            began_s=moments["startedAt"],
            ended_s=moments["finishedAt"],
        ),
    ]


def gpus_asked(pod: Object) -> int:
    """GPUs that the pod's containers ask for."""
    total = 0
    for container in objects(pod, "spec.containers"):
        limits = mapping(container, "resources.limits")
        total += sum(count(limits.get(name)) for name in GPU_RESOURCES)
    return total


def model_of(pod: Object) -> str:
    """The model a pod serves: its label, else the owner's name without the generated ends."""
    for key in (MODEL_LABEL, "app.kubernetes.io/name", "app"):
        if found := label(pod, key):
            return found
    return text(pod, "metadata.generateName").rstrip("-") or text(pod, "metadata.name") or "unknown"


def unschedulable(pod: Object) -> str:
    """Why the scheduler has found no place; empty when it has, or has not said."""
    entry = condition(pod, "PodScheduled")
    return text(entry, "message") if text(entry, "status") == "False" else ""


def waiting_reason(pod: Object) -> str:
    """Why the engine's container does not run (ImagePullBackOff, CrashLoopBackOff, ...); empty when it does."""
    waiting = mapping(container_status(pod, engine_container(pod)), "state.waiting")
    reason, message = text(waiting, "reason"), text(waiting, "message")
    return f"{reason}: {message}" if reason and message else reason
