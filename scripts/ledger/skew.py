"""How far the node's clock is from the control plane's, from objects that carry both.

An event is stamped by the kubelet and, when it is stored, by the API server. The same holds for a node's lease and for
the status of a pod: `managedFields` says when the API server took what the kubelet had dated. A write never arrives
before it is sent, and most arrive within milliseconds, so the largest difference `node - api` is the best estimate and
whole-second stamps bound it to one second either side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scripts.ledger.bundle import Bundle
from scripts.ledger.event_facts import times_of
from scripts.ledger.facts import Clock
from scripts.ledger.raw import Object, objects, text
from scripts.ledger.times import stamp


@dataclass(frozen=True, kw_only=True, slots=True)
class Skew:
    """Node clock minus API clock.

    Attributes:
        estimate_s: 0 when the evidence is compatible with no skew at all.
        low_s, high_s: bounds.
        evidence: the pair of stamps that decided.
        pairs: how many pairs were seen.
    """

    estimate_s: float
    low_s: float
    high_s: float
    evidence: str
    pairs: int


def skew_of(bundle: Bundle) -> Skew | None:
    """The skew; None when no object carries both clocks."""
    pairs = list(_pairs(bundle))
    if not pairs:
        return None
    difference_s, resolution_s, evidence = max(pairs)
    low_s, high_s = difference_s - resolution_s, difference_s + resolution_s
    plausible = low_s <= 0.0 <= high_s
    return Skew(
        estimate_s=0.0 if plausible else difference_s,
        low_s=low_s,
        high_s=high_s,
        evidence=evidence,
        pairs=len(pairs),
    )


def _pairs(bundle: Bundle) -> Iterator[tuple[float, float, str]]:
    """Difference, resolution and evidence of every pair of stamps."""
    for event in bundle.events:
        times = times_of(event)
        # A merged event is stored once, at its first occurrence; the pair is that one.
        if times and times[0].clock is Clock.NODE and text(event, "reason"):
            yield from _pair(
                times[0].at_s,
                times[0].resolution_s,
                text(event, "metadata.creationTimestamp"),
                f"event {text(event, 'reason')}",
            )
    for entry in objects(bundle.lease, "metadata.managedFields"):
        if text(entry, "manager").startswith("kubelet"):
            yield from _stamped(text(bundle.lease, "spec.renewTime"), entry, "node lease")
    yield from _status(bundle.pod)


def _status(pod: Object) -> Iterator[tuple[float, float, str]]:
    """The newest moment that the kubelet dated in its last write of the status, against the time of that write."""
    writes = [
        entry
        for entry in objects(pod, "metadata.managedFields")
        if text(entry, "manager").startswith("kubelet") and text(entry, "subresource") == "status"
    ]
    newest = max(
        (
            text(entry, "lastTransitionTime")
            for entry in objects(pod, "status.conditions")
            if text(entry, "type") in {"Ready", "ContainersReady"}
        ),
        default="",
    )
    for entry in writes:
        yield from _stamped(newest, entry, "status of the pod")


def _stamped(node_time: str, entry: Object, what: str) -> Iterator[tuple[float, float, str]]:
    try:
        at_s, resolution_s = stamp(node_time)
    except ValueError:
        return
    yield from _pair(at_s, resolution_s, text(entry, "time"), what)


def _pair(node_s: float, resolution_s: float, api_time: str, what: str) -> Iterator[tuple[float, float, str]]:
    try:
        api_s, api_resolution_s = stamp(api_time)
    except ValueError:
        return
    yield (
        node_s - api_s,
        max(resolution_s, api_resolution_s),
        f"{what}: node clock {node_s - api_s:+.1f} s against the API's",
    )
