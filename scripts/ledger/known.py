"""What all readers said of one start, moved onto the API's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from budget.counted import counted
from scripts.ledger.bundle import Bundle
from scripts.ledger.engine_facts import EngineFacts, engine_facts
from scripts.ledger.event_facts import EventFacts, event_facts
from scripts.ledger.facts import Attempt, Clock, Fact, InPod, first
from scripts.ledger.launcher_facts import launcher_facts
from scripts.ledger.node_facts import node_facts
from scripts.ledger.pod_facts import attempts, engine_container, pod_facts
from scripts.ledger.raw import NOTHING, Object
from scripts.ledger.skew import Skew, skew_of

SAME_START_S = 120.0
"""The launcher's process and the container's start belong together within this time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
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
        """The moment of that name, from the best source of `order`."""
        return first(self.facts, name, order)


def known_of(bundle: Bundle) -> Known:
    """Reads everything in a bundle; moments of the node's clock are moved by the skew."""
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
        in_pod, launcher = None, NOTHING
    if in_pod and abs(in_pod.clock_jump_s) > 1.0:
        notes.append(f"the node's clock was set by {in_pod.clock_jump_s:+.1f} s while the pod started")
    in_pod = in_pod or engine.in_pod
    facts = [*stated, *([in_pod.began] if in_pod else [])]
    if events.merged:
        notes.append(f"{counted(events.merged, 'event')} of several occurrences: the first of each is used")
    if events.failed_pulls:
        notes.append(f"{counted(events.failed_pulls, 'failed pull')} before the one that worked")
    shift_s = skew.estimate_s if skew else 0.0
    return Known(
        bundle=bundle,
        facts=[shifted(fact, shift_s) for fact in facts],
        events=replace(
            events,
            pulls=[
                replace(
                    pull,
                    ended=shifted(pull.ended, shift_s),
                    began_s=None if pull.began_s is None else pull.began_s - shift_s,
                )
                for pull in events.pulls
            ],
            first_started=shifted(events.first_started, shift_s) if events.first_started else None,
        ),
        in_pod=replace(in_pod, began=shifted(in_pod.began, shift_s)) if in_pod else None,
        engine=engine,
        launcher=launcher,
        restarts=attempts(pod),
        skew=skew,
        notes=notes,
    )


def shifted(fact: Fact, shift_s: float) -> Fact:
    """A moment of the node's clock on the API's."""
    return replace(fact, at_s=fact.at_s - shift_s) if fact.clock is Clock.NODE else fact
