"""Events: pulls to the millisecond, and what the autoscaler did. They live an hour, and repeated ones are merged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scripts.ledger.facts import Clock, Fact, Pull
from scripts.ledger.raw import Object, text, whole
from scripts.ledger.times import go_duration_s, stamp

SOURCE = "events"
PULLED = re.compile(
    r'Successfully pulled image "(?P<image>[^"]+)"'
    r"(?: in (?P<working>[\w.µμ]+?)(?: \((?P<waiting>[\w.µμ]+) including waiting\))?(?:\.(?= Image|$)|$))?"
    r"(?: ?Image size: (?P<bytes>\d{1,18}) bytes)?"
)
"""The kubelet's words. Older ones say no size (before 1.30), no waiting (before 1.27), or no duration at all."""
PRESENT = re.compile(r'[Ii]mage "(?P<image>[^"]+)" already present on machine')
_CONTAINER = re.compile(r"spec\.(?P<kind>\w+)\{(?P<name>[^}]+)\}")
SCALE_UPS = {"TriggeredScaleUp": "Cluster Autoscaler", "Nominated": "Karpenter"}


@dataclass(frozen=True, kw_only=True, slots=True)
class EventFacts:
    """What the events of a start say.

    Attributes:
        first_started: the first start of the engine's container, restarts notwithstanding.
        failed_pulls: times the kubelet reported a failed pull.
        merged: events that stand for several.
    """

    facts: list[Fact]
    pulls: list[Pull]
    first_started: Fact | None
    failed_pulls: int
    merged: int


def times_of(event: Object) -> tuple[Fact, Fact] | None:
    """First and last occurrence of an event; None when it states no readable time."""
    reporter = (
        text(event, "source.component") or text(event, "reportingComponent") or text(event, "reportingController")
    )
    clock = Clock.NODE if reporter in {"kubelet", ""} else Clock.API
    names = ("firstTimestamp", "lastTimestamp"), ("eventTime", "series.lastObservedTime")
    moments: list[tuple[float, float]] = []
    for pair in names:
        for key in pair:
            try:
                moments.append(stamp(text(event, key)))
            except ValueError:
                continue
        if moments:
            break
    if not moments:
        return None
    reason = text(event, "reason")

    def fact(moment: tuple[float, float]) -> Fact:
        return Fact(
            name=reason,
            at_s=moment[0],
            clock=clock,
            resolution_s=moment[1],
            source=SOURCE,
            evidence=f"{reason}: {text(event, 'message')}"[:300],
        )

    return fact(moments[0]), fact(moments[-1])


def occurrences(event: Object) -> int:
    """How many times an event happened; merged ones say so."""
    return whole(event, "count") or whole(event, "series.count") or 1


def container_of(event: Object) -> str:
    """The container an event is about; init containers with their kind before the name."""
    found = _CONTAINER.search(text(event, "involvedObject.fieldPath") or text(event, "regarding.fieldPath"))
    if not found:
        return ""
    return found["name"] if found["kind"] == "containers" else f"init {found['name']}"


def event_facts(events: Sequence[Object], engine: str) -> EventFacts:
    """Facts of the pod's events.

    Args:
        events: in any order.
        engine: name of the engine's container.
    """
    timed = [(event, times) for event in events if (times := times_of(event))]
    facts: list[Fact] = []
    started: list[Fact] = []
    for event, (began, _) in timed:
        reason = text(event, "reason")
        if reason in SCALE_UPS:
            facts.append(_renamed(began, "scale-up"))
        elif reason == "FailedScheduling":
            facts.append(_renamed(began, "unschedulable"))
        elif reason == "Started" and container_of(event) in {engine, ""}:
            started.append(_renamed(began, "first-started"))
    return EventFacts(
        facts=facts,
        pulls=sorted(_pulls(timed), key=lambda pull: pull.ended.at_s),
        first_started=min(started, key=lambda fact: fact.at_s, default=None),
        failed_pulls=sum(
            occurrences(event)
            for event, _ in timed
            if text(event, "reason") == "Failed" and "pull image" in text(event, "message")
        ),
        merged=sum(1 for event, _ in timed if occurrences(event) > 1),
    )


def _renamed(fact: Fact, name: str) -> Fact:
    return Fact(
        name=name,
        at_s=fact.at_s,
        clock=fact.clock,
        resolution_s=fact.resolution_s,
        source=fact.source,
        evidence=fact.evidence,
    )


def _pulls(timed: Sequence[tuple[Object, tuple[Fact, Fact]]]) -> Iterator[Pull]:
    """Every pull that ended well. The begin of the attempt that worked is the end less what the kubelet measured."""
    begins: dict[str, list[Fact]] = {}
    for event, (began, last) in timed:
        if text(event, "reason") == "Pulling":
            begins.setdefault(container_of(event), []).extend((began, last))
    for event, (ended, _) in timed:
        message, container = text(event, "message"), container_of(event)
        if text(event, "reason") != "Pulled":
            continue
        if found := PRESENT.search(message):
            yield Pull(
                ended=_renamed(ended, "pull-ended"),
                began_s=ended.at_s,
                seconds=0.0,
                image_bytes=None,
                image=found["image"],
                container=container,
                present=True,
            )
        elif found := PULLED.search(message):
            yield _pull(found, ended, container, begins.get(container, []))


def _pull(found: re.Match[str], ended: Fact, container: str, begins: Sequence[Fact]) -> Pull:
    working = go_duration_s(found["working"] or "")
    seconds = go_duration_s(found["waiting"] or "")
    seconds = working if seconds is None else seconds
    before = [fact.at_s for fact in begins if fact.at_s <= ended.at_s]
    end_s = ended.at_s
    if seconds is not None and before:
        # Both stamps are cut to the second, so neither begin + duration nor the stamp itself is later than the truth.
        end_s = max(end_s, max(before) + seconds) if max(before) + seconds < end_s + SLACK_S else end_s
    if seconds is not None:
        began_s: float | None = end_s - seconds
    else:
        began_s = max(before, default=None)
    return Pull(
        ended=Fact(
            name="pull-ended",
            at_s=end_s,
            clock=ended.clock,
            resolution_s=ended.resolution_s,
            source=SOURCE,
            evidence=ended.evidence,
        ),
        began_s=began_s,
        seconds=seconds if seconds is not None else (None if began_s is None else end_s - began_s),
        image_bytes=int(found["bytes"]) if found["bytes"] else None,
        image=found["image"],
        container=container,
        present=False,
    )


SLACK_S = 2.0
"""A begin plus the duration that ends later than the stamped end by more than this belongs to another attempt."""
