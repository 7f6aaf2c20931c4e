"""Facts → the ledger: one clock, conflicts resolved in a stated order, everything summing to the wall clock.

Order of sources, best first
    launched            EC2 · node claim · the autoscaler's event
    node-ready          the recorder's own watch · node claim (Initialized) · for a pod with GPUs, when it was
                        scheduled · node condition
    pull                the kubelet's event (its own duration, milliseconds) · the kubelet's metrics when it pulled once
    container start     launcher · container state
    inside the pod      launcher · engine log
    end                 Ready condition · the launcher's own end · the server's line in the log
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from scripts.ledger.before_container import lay_node, lay_pull
from scripts.ledger.bundle import Bundle
from scripts.ledger.facts import Absence, Fact, InPod
from scripts.ledger.in_container import lay_inside
from scripts.ledger.known import Known, known_of
from scripts.ledger.launcher_facts import launcher_attempts, launcher_budget, launcher_facts
from scripts.ledger.node_facts import instance_type
from scripts.ledger.pod_facts import condition, engine_container, model_of, unschedulable, waiting_reason
from scripts.ledger.proofs import proofs
from scripts.ledger.raw import Object, mapping, number, objects, text, texts_of
from scripts.ledger.record import Expected, Ledger
from scripts.ledger.timeline import Timeline
from scripts.ledger.unreadable import unreadable_times

LATE_READY_S = 120.0
"""A Ready condition later than the end of the start by more than this is a later change, not the start's end."""


def ledger_of(bundle: Bundle, budget: Mapping[str, Expected] | None = None) -> Ledger:
    """The ledger of one start, from whatever there is.

    Args:
        bundle: what was read.
        budget: phase → expected seconds; None takes what the pod was told.
    """
    known = known_of(bundle)
    asked = known.moment("asked") or (known.in_pod.began if known.in_pod else None)
    timeline = Timeline(*_begin(known, asked))
    lay_node(timeline, known)
    lay_pull(timeline, known)
    lay_inside(timeline, known)
    state, reason = _state(known)
    _end(timeline, known, state)
    phases = timeline.phases(_never_reached(state, reason))
    accounted_s = sum(phase.seconds for phase in phases.values() if phase.seconds is not None)
    wall_s = timeline.now_s - timeline.begin_s
    pod = bundle.pod
    ledger = Ledger(
        namespace=text(pod, "metadata.namespace"),
        pod=text(pod, "metadata.name"),
        uid=text(pod, "metadata.uid"),
        model=_model(known),
        labels=texts_of(mapping(known.launcher, "labels")) | _machine(bundle),
        node=text(pod, "spec.nodeName"),
        container=engine_container(pod),
        state=state,
        reason=reason,
        cold=_cold(timeline, known),
        asked_at_s=timeline.begin_s,
        wall_clock_s=wall_s,
        resolution_s=asked.resolution_s if asked else 0.0,
        phases=phases,
        segments=timeline.close(phases),
        unaccounted_s=wall_s - accounted_s,
        skew=known.skew,
        budget=budget
        or {
            phase: Expected(low_s=low, expected_s=mid, high_s=high)
            for phase, (low, mid, high) in launcher_budget(known.launcher).items()
        },
        proofs=(),
        attempts=[*known.restarts, *known.engine.attempts, *launcher_attempts(known.launcher)],
        absences=[*bundle.absences, *_absences(known)],
        notes=[*known.notes, *timeline.notes, *unreadable_times(bundle)],
    )
    return replace(ledger, proofs=proofs(bundle, ledger, known))


def _begin(known: Known, asked: Fact | None) -> tuple[float, float]:
    if asked:
        return asked.at_s, asked.resolution_s
    earliest = min(known.facts, key=lambda fact: fact.at_s, default=None)
    return (earliest.at_s, earliest.resolution_s) if earliest else (known.bundle.collected_s or 0.0, 0.0)


def _model(known: Known) -> str:
    pod = known.bundle.pod
    return model_of(pod) if pod else text(known.launcher, "labels.model") or "unknown"


def _machine(bundle: Bundle) -> dict[str, str]:
    kind = instance_type(bundle.node)
    return {"instance": kind} if kind else {}


# ---- the end -------------------------------------------------------------------------------------------------------


def _state(known: Known) -> tuple[str, str]:
    pod, in_pod = known.bundle.pod, known.in_pod
    if in_pod and in_pod.state == "refused":
        return "refused", in_pod.reason
    if text(condition(pod, "Ready"), "status") == "True":
        return "ready", ""
    if not pod:
        served = in_pod is not None and in_pod.state in {"ready", "serving"}
        return ("ready", "") if served else ("starting", "nothing says that the start was over")
    return _not_ready(pod, in_pod)


def _not_ready(pod: Object, in_pod: InPod | None) -> tuple[str, str]:
    """How far a pod came that is not Ready."""
    if text(pod, "metadata.deletionTimestamp"):
        return "deleted", "the pod was deleted before it was Ready"
    if reason := unschedulable(pod):
        return "unscheduled", reason
    reason = waiting_reason(pod)
    if (
        reason.startswith(("CrashLoop", "ImagePull", "ErrImage", "CreateContainer"))
        or text(pod, "status.phase") == "Failed"
    ):
        return "failed", reason or text(pod, "status.message") or "the pod failed"
    return "starting", reason or (in_pod.reason if in_pod else "")


def _end(timeline: Timeline, known: Known, state: str) -> None:
    ready, deleted = known.moment("ready"), known.moment("deleted")
    if state == "ready" and ready:
        over = known.in_pod is not None and known.in_pod.state in {"ready", "serving"}
        if over and ready.at_s > timeline.now_s + LATE_READY_S:
            timeline.notes.append(
                "the Ready condition changed again after the start; the end of the start is the pod's own"
            )
            return
        timeline.until(
            ready.at_s,
            None,
            "until Ready was seen: probe period and kubelet",
            source="pod",
            evidence=ready.evidence,
            resolution_s=ready.resolution_s,
        )
    elif state == "deleted" and deleted:
        grace_s = number(known.bundle.pod, "metadata.deletionGracePeriodSeconds") or 0.0
        timeline.until(
            max(timeline.now_s, deleted.at_s - grace_s),
            None,
            "until the pod was deleted",
            source="pod",
            evidence=deleted.evidence,
        )
    elif known.bundle.collected_s and state in {"starting", "unscheduled", "failed"} and known.bundle.pod:
        timeline.until(max(timeline.now_s, known.bundle.collected_s), None, "until it was looked at", source="pod")


def _never_reached(state: str, reason: str) -> str:
    return "not seen" if state == "ready" else f"not reached: {state}" + (f" ({reason})" if reason else "")


def _cold(timeline: Timeline, known: Known) -> str:
    phases = timeline.phases("")
    node, pull = phases["node"].seconds, phases["pull"].seconds
    if node:
        return "node"
    if pull:
        return "image"
    if node == 0.0 and pull == 0.0:
        return "pod"
    del known
    return "unknown"


def _absences(known: Known) -> list[Absence]:
    """What the readers found wanting, beyond what could not be fetched."""
    found: list[Absence] = []
    bundle, engine = known.bundle, known.engine
    if bundle.log is not None and not engine.is_vllm:
        found.append(Absence(what="log", why="no line is vLLM's: another engine, or another container"))
    if engine.cut:
        found.append(Absence(what="log", why="begins after the engine had begun to load"))
    if bundle.launcher and launcher_facts(bundle.launcher) is None:
        found.append(Absence(what="launcher", why="the document is not a ledger of the launcher"))
    if bundle.pod and not objects(bundle.pod, "spec.containers"):
        found.append(Absence(what="pod", why="the object has no containers"))
    return found
