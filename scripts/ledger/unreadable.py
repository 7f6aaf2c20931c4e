"""Times that objects state and no start can have had: said, since whatever they would have dated is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from scripts.ledger.bundle import Bundle
from scripts.ledger.raw import Object
from scripts.ledger.times import stamp

TIMES = frozenset(
    {
        *("creationTimestamp", "deletionTimestamp", "lastTransitionTime", "startedAt", "finishedAt"),
        *("firstTimestamp", "lastTimestamp", "eventTime", "LaunchTime", "started_at"),
    }
)
"""Members under which Kubernetes, EC2 and the launcher write a time that a reader takes."""
MOST = 5
"""That are said of one object: a file of nonsense must not hide the ledger."""


def unreadable_times(bundle: Bundle) -> list[str]:
    """What was written where a time was expected, one line each."""
    named = {
        "pod": bundle.pod,
        "node": bundle.node,
        "node claim": bundle.node_claim,
        "instance": bundle.instance,
        "launcher": bundle.launcher,
        "events": {"items": list(bundle.events)},
    }
    found: list[str] = []
    for what, value in named.items():
        wrong = list(dict.fromkeys(f"{what}, {key}: {why}" for key, why in _wrong(value)))
        found += wrong[:MOST]
        if len(wrong) > MOST:
            found.append(f"{what}: {len(wrong) - MOST} more times like these")
    return found


def _wrong(value: Object) -> Iterator[tuple[str, str]]:
    """Member and reason of each; without recursion, since anybody may have nested the object."""
    waiting: list[object] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += cast("list[object]", item)
        if not isinstance(item, Mapping):
            continue
        for key, inner in cast("Object", item).items():
            if key in TIMES and isinstance(inner, str) and inner:
                try:
                    stamp(inner)
                except ValueError as error:
                    yield key, str(error)[:200]
            elif not isinstance(inner, str):
                waiting.append(inner)
