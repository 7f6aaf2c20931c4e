"""Facts → the ledger: one clock, conflicts resolved in a stated order, phases and `unaccounted` summing to the wall clock.

Order of sources, best first
    launched            EC2 · node claim · the autoscaler's event
    node-ready          the recorder's own watch · node claim (Initialized) · for a pod with GPUs, when it was scheduled ·
                        node condition
    pull                the kubelet's event (its own duration, milliseconds) · the kubelet's metrics when it pulled once
    container start     launcher · container state
    inside the pod      launcher · engine log
    end                 Ready condition · the launcher's own end · the server's line in the log
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scripts.ledger.bundle import Bundle
from scripts.ledger.engine_facts import EngineFacts, engine_facts
from scripts.ledger.event_facts import EventFacts, event_facts
from scripts.ledger.facts import PHASES, Absence, Attempt, Clock, Fact, InPod, Pull, first
from scripts.ledger.kubelet_facts import only_pull_s
from scripts.ledger.launcher_facts import launcher_attempts, launcher_budget, launcher_facts
from scripts.ledger.node_facts import instance_type, node_facts
from scripts.ledger.pod_facts import (
    attempts,
    condition,
    engine_container,
    gpus_asked,
    model_of,
    pod_facts,
    unschedulable,
    waiting_reason,
)
from scripts.ledger.proofs import proofs
from scripts.ledger.raw import Object, mapping, number, objects, text, texts_of
from scripts.ledger.record import Expected, Ledger
from scripts.ledger.skew import Skew, skew_of
from scripts.ledger.timeline import Timeline

LAUNCHED = ("ec2", "node-claim", "events")
NODE_READY = ("watch", "node-claim", "node")
STARTED = ("launcher", "pod", "log")
SAME_START_S = 120.0
"""The launcher's process and the container's start belong together within this time."""
LATE_READY_S = 120.0
"""A Ready condition later than the end of the start by more than this is a later change, not the start's end."""
MISSING_EVENTS = "no event says so: they live an hour, or were dropped by the kubelet's spam filter"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """Everything the readers said, on the API's clock."""

    bundle: Bundle
    facts: Sequence[Fact]
    events: EventFacts
    in_pod: InPod | None
    engine: EngineFacts
    launcher: Object
    restarts: Sequence[Attempt]
    skew: Skew | None
    notes: Sequence[str]

    def moment(self, name: str, order: Sequence[str] = ()) -> Fact | None:
        return first(self.facts, name, order)


def ledger_of(bundle: Bundle, budget: Mapping[str, Expected] | None = None) -> Ledger:
    """The ledger of one start, from whatever there is.

    Args:
        bundle: what was read.
        budget: phase → expected seconds; None takes what the pod was told.
    """
    known = _known(bundle)
    asked = known.moment("asked") or (known.in_pod.began if known.in_pod else None)
    timeline = Timeline(*_begin(known, asked))
    _node(timeline, known)
    _pull(timeline, known)
    _inside(timeline, known)
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
        notes=[*known.notes, *timeline.notes],
    )
    return replace(ledger, proofs=proofs(bundle, ledger, known.engine.sightings, known.launcher, known.events.pulls))


# ---- what is known -----------------------------------------------------------------------------------------------------


def _known(bundle: Bundle) -> _Known:
    pod, notes = bundle.pod, list[str]()
    events = event_facts(bundle.events, engine_container(pod))
    skew = skew_of(bundle)
    stated = [*pod_facts(pod), *events.facts, *node_facts(bundle)]
    started, ready = first(stated, "container-started"), first(stated, "ready")
    engine = engine_facts(bundle.log, started, ready.at_s if ready else None, bundle.collected_s or 0.0)
    launcher = bundle.launcher or engine.ledger
    in_pod = launcher_facts(launcher)
    if in_pod and started and abs(in_pod.began.at_s - started.at_s) > SAME_START_S:
        notes.append("the launcher's ledger is of another start of the container and is not used")
        in_pod, launcher = None, mapping(bundle.pod, "nothing")
    if in_pod and abs(in_pod.clock_jump_s) > 1.0:
        notes.append(f"the node's clock was set by {in_pod.clock_jump_s:+.1f} s while the pod started")
    in_pod = in_pod or engine.in_pod
    facts = [*stated, *([in_pod.began] if in_pod else [])]
    if events.merged:
        notes.append(f"{events.merged} event(s) stand for several occurrences; their first is used")
    if events.failed_pulls:
        notes.append(f"{events.failed_pulls} failed pull(s) before the one that worked")
    shift_s = skew.estimate_s if skew else 0.0
    return _Known(
        bundle=bundle,
        facts=[_shifted(fact, shift_s) for fact in facts],
        events=replace(
            events,
            pulls=[
                replace(
                    pull,
                    ended=_shifted(pull.ended, shift_s),
                    began_s=None if pull.began_s is None else pull.began_s - shift_s,
                )
                for pull in events.pulls
            ],
            first_started=_shifted(events.first_started, shift_s) if events.first_started else None,
        ),
        in_pod=replace(in_pod, began=_shifted(in_pod.began, shift_s)) if in_pod else None,
        engine=engine,
        launcher=launcher,
        restarts=attempts(pod),
        skew=skew,
        notes=notes,
    )


def _shifted(fact: Fact, shift_s: float) -> Fact:
    """A moment of the node's clock on the API's."""
    return replace(fact, at_s=fact.at_s - shift_s) if fact.clock is Clock.NODE else fact


def _begin(known: _Known, asked: Fact | None) -> tuple[float, float]:
    if asked:
        return asked.at_s, asked.resolution_s
    earliest = min(known.facts, key=lambda fact: fact.at_s, default=None)
    return (earliest.at_s, earliest.resolution_s) if earliest else (known.bundle.collected_s or 0.0, 0.0)


def _model(known: _Known) -> str:
    pod = known.bundle.pod
    return model_of(pod) if pod else text(known.launcher, "labels.model") or "unknown"


def _machine(bundle: Bundle) -> dict[str, str]:
    kind = instance_type(bundle.node)
    return {"instance": kind} if kind else {}


# ---- before the container ----------------------------------------------------------------------------------------------


def _node(timeline: Timeline, known: _Known) -> None:
    """The machine: launched for this pod, or there before."""
    bundle, asked_s = known.bundle, timeline.begin_s
    launched, registered = known.moment("launched", LAUNCHED), known.moment("registered", ("node-claim", "node"))
    scale_up, scheduled = known.moment("scale-up"), known.moment("scheduled")
    ready = known.moment("node-ready", NODE_READY)
    if ready is None and registered is None:
        why = (
            "no pod object was read"
            if not bundle.pod
            else bundle.why("node", "the node object was not read, or is gone")
        )
        if scheduled is None and bundle.pod:
            why = f"never scheduled: {unschedulable(bundle.pod) or 'the scheduler has said nothing'}"
        timeline.missing("node", why)
        if scheduled:
            timeline.until(
                scheduled.at_s,
                None,
                "node and scheduling: not told apart",
                source="pod",
                resolution_s=scheduled.resolution_s,
            )
        return
    came = launched or registered or ready
    if (
        came
        and came.at_s <= asked_s
        and (ready is None or ready.at_s <= asked_s + ready.resolution_s or _flapped(ready, registered, scheduled))
    ):
        timeline.nothing_to_do(
            "node", source=came.source, evidence=f"the node was there before the pod was asked ({came.evidence})"
        )
    else:
        _new_node(timeline, known, launched or scale_up, registered, ready, scheduled)
    if scheduled:
        timeline.until(
            scheduled.at_s,
            None,
            "scheduling",
            source="pod",
            evidence=scheduled.evidence,
            resolution_s=scheduled.resolution_s,
        )


def _flapped(ready: Fact, registered: Fact | None, scheduled: Fact | None) -> bool:
    """A Ready condition younger than the pod's placement: the node lost and regained it later."""
    return bool(scheduled and registered and ready.at_s > scheduled.at_s + ready.resolution_s)


def _new_node(
    timeline: Timeline,
    known: _Known,
    launched: Fact | None,
    registered: Fact | None,
    ready: Fact | None,
    scheduled: Fact | None,
) -> None:
    if launched:
        timeline.until(
            launched.at_s,
            None,
            "until an instance was launched: the autoscaler and EC2 capacity",
            source=launched.source,
            evidence=launched.evidence,
            resolution_s=launched.resolution_s,
        )
    end, evidence = ready or registered, ""
    if end is None:
        return
    evidence = end.evidence
    if scheduled and end.source == "node" and gpus_asked(known.bundle.pod) and scheduled.at_s > end.at_s:
        evidence = f"{end.evidence}; GPUs were allocatable at the latest when the pod was scheduled"
        end = scheduled
    if scheduled and end.at_s > scheduled.at_s:
        end = scheduled
    if launched is None:
        timeline.missing(
            "node", "nobody says when the instance was launched: no EC2 answer, no node claim, no autoscaler's event"
        )
    timeline.until(
        end.at_s,
        "node",
        "launch to Ready with its GPUs",
        source=end.source,
        evidence=evidence,
        resolution_s=end.resolution_s,
    )


def _engine_pulls(known: _Known, until_s: float | None) -> list[Pull]:
    """Pulls that the engine waited for: its own first, and those of containers before it."""
    pulls = known.events.pulls
    if until_s is None:
        return pulls
    return [pull for pull in pulls if pull.ended.at_s <= until_s + pull.ended.resolution_s]


def _pull(timeline: Timeline, known: _Known) -> None:
    """Image pulls up to the first start of the engine's container."""
    engine = engine_container(known.bundle.pod)
    first_start = _first_start(known)
    pulls = _engine_pulls(known, first_start.at_s if first_start else None)
    own = [pull for pull in pulls if pull.container in {engine, ""}]
    for pull in pulls:
        if pull.present or pull.seconds is None or pull.began_s is None:
            continue
        other = "" if pull.container in {engine, ""} else f" of {pull.container}"
        timeline.until(
            pull.began_s,
            None,
            "sandbox, volumes, containers before it",
            source="events",
            resolution_s=pull.ended.resolution_s,
        )
        timeline.until(
            pull.ended.at_s,
            "pull",
            f"image{other}",
            source="events",
            evidence=pull.ended.evidence,
            resolution_s=0.001,
            exact=True,
        )
    if not own:
        _pull_without_event(timeline, known, first_start)
    elif own[0].present and not timeline.saw("pull"):
        timeline.nothing_to_do("pull", source="events", evidence=own[0].ended.evidence)
    elif own[0].seconds is None:
        timeline.missing("pull", "the kubelet's event has no duration and the event of its begin is gone")
    if first_start:
        detail = "container created and started" if own else "pull and container creation: not told apart"
        timeline.until(
            first_start.at_s,
            None,
            detail,
            source=first_start.source,
            evidence=first_start.evidence,
            resolution_s=first_start.resolution_s,
        )


def _pull_without_event(timeline: Timeline, known: _Known, first_start: Fact | None) -> None:
    bundle = known.bundle
    measured_s = only_pull_s(bundle.kubelet_metrics)
    if measured_s is not None and first_start:
        timeline.until(first_start.at_s - measured_s, None, "sandbox, volumes", source="kubelet-metrics")
        timeline.until(
            first_start.at_s,
            "pull",
            "image",
            source="kubelet-metrics",
            evidence=f"kubelet_image_pull_duration_seconds: one pull, {measured_s:.3f} s",
            resolution_s=0.001,
            exact=True,
        )
        return
    if not bundle.pod:
        why = "no pod object was read"
    elif first_start is None and waiting_reason(bundle.pod):
        why = f"not over: {waiting_reason(bundle.pod)}"
    elif first_start is None:
        why = "not reached"
    else:
        why = bundle.why("events", MISSING_EVENTS)
    timeline.missing("pull", why)


def _first_start(known: _Known) -> Fact | None:
    """The first start of the engine's container, whatever became of it."""
    started = known.moment("container-started", STARTED)
    earlier = [known.events.first_started] if known.events.first_started and known.restarts else []
    began = [attempt.began_s for attempt in known.restarts if attempt.began_s is not None]
    if began and started:
        shift_s = known.skew.estimate_s if known.skew else 0.0
        earlier.append(
            replace(started, at_s=min(began) - shift_s, source="pod", evidence="lastState.terminated.startedAt")
        )
    return min([*earlier, *([started] if started else [])], key=lambda fact: fact.at_s, default=None)


# ---- inside the container ----------------------------------------------------------------------------------------------


def _inside(timeline: Timeline, known: _Known) -> None:
    """The phases of the pod, each stretch where it belongs."""
    in_pod, began = known.in_pod, known.moment("container-started", STARTED)
    if known.restarts and began:
        last = known.restarts[-1]
        timeline.until(
            began.at_s,
            None,
            f"{len(known.restarts)} earlier attempt(s), the last: {last.reason}, exit {last.exit_code}",
            source=began.source,
            evidence=began.evidence,
            resolution_s=began.resolution_s,
        )
    if in_pod is None:
        for phase in PHASES[2:]:
            timeline.missing(phase, _why_no_inside(known))
        return
    if known.bundle.pod == {} or not known.bundle.pod:
        timeline.until(in_pod.began.at_s, None, "before the container", source=in_pod.source)
    for stretch in in_pod.stretches:
        phase = stretch.phases[0] if len(stretch.phases) == 1 else None
        detail = (
            stretch.detail if phase else (f"{', '.join(stretch.phases)}: " if stretch.phases else "") + stretch.detail
        )
        timeline.until(
            in_pod.began.at_s + stretch.end_s,
            phase,
            detail,
            source=in_pod.source,
            evidence=_evidence(in_pod),
            resolution_s=in_pod.resolution_s,
        )
        for shared in stretch.phases if len(stretch.phases) > 1 else ():
            timeline.missing(shared, f"no line told {', '.join(stretch.phases)} apart")
    if in_pod.source == "log":
        timeline.missing("warmup", "no launcher: nobody warmed this engine up before Ready, or timed it")
        if not timeline.saw("start"):
            timeline.missing("start", "the log does not show the start of the process")


def _evidence(in_pod: InPod) -> str:
    return "the launcher's ledger" if in_pod.source == "launcher" else "the engine's log"


def _why_no_inside(known: _Known) -> str:
    bundle = known.bundle
    if bundle.log is None and not bundle.launcher:
        if known.moment("container-started", STARTED) is None and bundle.pod:
            return "not reached"
        return bundle.why("launcher", bundle.why("log", "neither the launcher's ledger nor a log was read"))
    if bundle.log is not None and not known.engine.is_vllm:
        return "the log is not vLLM's"
    if known.engine.undated:
        return "no line of the log is dated: read it with --timestamps"
    return "the log shows no line of a start: it was cut, or begins later"


# ---- the end -----------------------------------------------------------------------------------------------------------


def _state(known: _Known) -> tuple[str, str]:
    pod, in_pod = known.bundle.pod, known.in_pod
    if in_pod and in_pod.state == "refused":
        return "refused", in_pod.reason
    if text(condition(pod, "Ready"), "status") == "True":
        return "ready", ""
    if text(pod, "metadata.deletionTimestamp"):
        return "deleted", "the pod was deleted before it was Ready"
    if not pod:
        served = in_pod is not None and in_pod.state in {"ready", "serving"}
        return ("ready", "") if served else ("starting", "nothing says that the start was over")
    if reason := unschedulable(pod):
        return "unscheduled", reason
    reason = waiting_reason(pod)
    if (
        reason.startswith(("CrashLoop", "ImagePull", "ErrImage", "CreateContainer"))
        or text(pod, "status.phase") == "Failed"
    ):
        return "failed", reason or text(pod, "status.message") or "the pod failed"
    return "starting", reason or (in_pod.reason if in_pod else "")


def _end(timeline: Timeline, known: _Known, state: str) -> None:
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


def _cold(timeline: Timeline, known: _Known) -> str:
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


def _absences(known: _Known) -> list[Absence]:
    """What the readers found wanting, beyond what could not be fetched."""
    found: list[Absence] = []
    bundle, engine = known.bundle, known.engine
    if bundle.log is not None and not engine.is_vllm:
        found.append(Absence(what="log", why="no line is vLLM's: another engine, or another container"))
    if engine.cut:
        found.append(Absence(what="log", why="begins after the engine had begun to load"))
    if bundle.launcher and launcher_facts(bundle.launcher) is None:
        found.append(Absence(what="launcher", why="the document is no ledger of the launcher"))
    if bundle.pod and not objects(bundle.pod, "spec.containers"):
        found.append(Absence(what="pod", why="the object has no containers"))
    return found
