"""The launcher's ledger document: the phases inside the pod on one monotonic clock."""

from __future__ import annotations

from scripts.ledger.facts import PHASES, Attempt, Clock, Fact, InPod, Stretch
from scripts.ledger.raw import Object, mapping, number, objects, text, texts, whole
from scripts.ledger.times import LONGEST_START_S, stamp

SOURCE = "launcher"
RESOLUTION_S = 0.01
"""The process's age comes from /proc in clock ticks of a hundredth; everything else is monotonic milliseconds."""


def launcher_facts(document: Object) -> InPod | None:
    """What the launcher measured; None when the document is none of its own."""
    try:
        at_s, _ = stamp(text(document, "started_at"))
    except ValueError:
        return None
    stretches: list[Stretch] = []
    for segment in objects(document, "segments"):
        begin_s, end_s = number(segment, "begin_s"), number(segment, "end_s")
        phases = tuple(texts(segment, "phases"))
        if begin_s is None or end_s is None or not phases or not set(phases) <= set(PHASES):
            continue
        if 0 <= begin_s <= end_s <= LONGEST_START_S:
            stretches.append(Stretch(phases=phases, detail=text(segment, "detail"), begin_s=begin_s, end_s=end_s))
    if not stretches:
        return None
    return InPod(
        began=Fact(
            name="container-started",
            at_s=at_s,
            clock=Clock.NODE,
            resolution_s=RESOLUTION_S,
            source=SOURCE,
            evidence=f"the launcher's process began {text(document, 'started_at')}",
        ),
        stretches=tuple(stretches),
        state=text(document, "state") or "starting",
        reason=text(document, "reason"),
        source=SOURCE,
        resolution_s=RESOLUTION_S,
        clock_jump_s=number(document, "clock_jump_s") or 0.0,
    )


def launcher_attempts(document: Object) -> list[Attempt]:
    """Runs of the engine that ended before it served, within this container."""
    return [
        Attempt(
            what=f"engine, weights by {text(entry, 'kind')}",
            exit_code=whole(entry, "exit_code"),
            reason=text(entry, "reason"),
            began_s=None,
            ended_s=None,
        )
        for entry in objects(document, "attempts")
    ]


def launcher_budget(document: Object) -> dict[str, tuple[float, float, float]]:
    """Phase → low, expected and high seconds, as the pod was told."""
    found: dict[str, tuple[float, float, float]] = {}
    for phase, entry in mapping(document, "budget").items():
        values = [number(entry, key) for key in ("low_s", "expected_s", "high_s")]
        low, expected, high = (value if value is not None else -1.0 for value in values)
        if phase in PHASES and 0 <= low <= expected <= high <= LONGEST_START_S:
            found[phase] = (low, expected, high)
    return found
