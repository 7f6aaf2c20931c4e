"""What one source says about a start: a moment, on whose clock, how finely it can tell time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

PHASES = ("node", "pull", "start", "weights", "engine", "warmup")
"""In the order in which they happen."""


class Clock(StrEnum):
    """Whose clock a moment was read from.

    Attributes:
        API: of the control plane: creation timestamps, the scheduler, controllers, EC2.
        NODE: of the node: the kubelet, the container runtime, everything inside a pod.
    """

    API = "api"
    NODE = "node"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """A moment that a source states.

    Attributes:
        name: which moment: `asked`, `scheduled`, `pull-ended`, ...
        at_s: Unix time as stated, skew included.
        resolution_s: how far the true moment may lie after `at_s`; Kubernetes cuts to whole seconds.
        source: the reader.
        evidence: what was read, short enough for a line.
    """

    name: str
    at_s: float
    clock: Clock
    resolution_s: float
    source: str
    evidence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Pull:
    """One image pull.

    Attributes:
        ended: when it was over.
        seconds: of the pull, waiting for others included; None when the kubelet did not say; 0 for a present image.
        image_bytes: compressed size, as the kubelet says.
        container: whose image.
    """

    ended: Fact
    began_s: float | None
    seconds: float | None
    image_bytes: int | None
    image: str
    container: str
    present: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Absence:
    """Something that could not be read: what, and why."""

    what: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A run of the engine before the one that counts."""

    what: str
    exit_code: int | None
    reason: str
    began_s: float | None
    ended_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """A stretch of the time inside the pod.

    Attributes:
        phases: what it belongs to; several when no line told them apart.
        begin_s, end_s: since the container started.
    """

    phases: tuple[str, ...]
    detail: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class InPod:
    """What happened inside the container, from its start.

    Attributes:
        began: when the container started, as precisely as this source knows.
        stretches: follow each other from 0.
        state: as the launcher says; `serving` for a log that shows the engine serving; else `starting`.
        clock_jump_s: how far the node's wall clock was set while the pod started.
    """

    began: Fact
    stretches: tuple[Stretch, ...]
    state: str
    reason: str
    source: str
    resolution_s: float
    clock_jump_s: float = 0.0

    @property
    def ended_s(self) -> float:
        """Unix time of the last stretch's end."""
        return self.began.at_s + (self.stretches[-1].end_s if self.stretches else 0.0)


def first(facts: Iterable[Fact], name: str, order: Sequence[str] = ()) -> Fact | None:
    """The fact of that name from the best source.

    Args:
        facts: all there are.
        name: which moment.
        order: sources, best first; a source that is not named comes last. The earliest wins within a source.
    """
    rank = {source: index for index, source in enumerate(order)}
    named = [fact for fact in facts if fact.name == name]
    return min(named, key=lambda fact: (rank.get(fact.source, len(rank)), fact.at_s), default=None)
