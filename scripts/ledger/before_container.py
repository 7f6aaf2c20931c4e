"""The start before its container runs: the machine and the image."""

from __future__ import annotations

from dataclasses import replace

from scripts.ledger.facts import Fact, Pull
from scripts.ledger.known import Known
from scripts.ledger.kubelet_facts import only_pull_s
from scripts.ledger.pod_facts import engine_container, gpus_asked, unschedulable, waiting_reason
from scripts.ledger.timeline import Timeline

LAUNCHED = ("ec2", "node-claim", "events")
NODE_READY = ("watch", "node-claim", "node")
STARTED = ("launcher", "pod", "log")
MISSING_EVENTS = "no event says so: they live an hour, or were dropped by the kubelet's spam filter"


def lay_node(timeline: Timeline, known: Known) -> None:
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
    known: Known,
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


def _engine_pulls(known: Known, until_s: float | None) -> list[Pull]:
    """Pulls that the engine waited for: its own first, and those of containers before it."""
    pulls = known.events.pulls
    if until_s is None:
        return pulls
    return [pull for pull in pulls if pull.ended.at_s <= until_s + pull.ended.resolution_s]


def lay_pull(timeline: Timeline, known: Known) -> None:
    """Image pulls up to the first start of the engine's container."""
    engine = engine_container(known.bundle.pod)
    first_start = first_start_of(known)
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


def _pull_without_event(timeline: Timeline, known: Known, first_start: Fact | None) -> None:
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


def first_start_of(known: Known) -> Fact | None:
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
