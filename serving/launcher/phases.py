"""The phases of a start, told apart by what was seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from serving.launcher.config import IN_POD
from serving.launcher.engine_log import ENGINE_LINES, Sighting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A stretch of the start.

    Attributes:
        phases: the phase it belongs to; several when no line told them apart.
        detail: what happened in it.
        begin_s, end_s: since the container started.
    """

    phases: tuple[str, ...]
    detail: str
    begin_s: float
    end_s: float


def _load_began_s(seen: Sequence[Sighting]) -> float | None:
    """When the engine began to load: its own line, else the end of the load less the duration it states."""
    for sighting in seen:
        if sighting.name == "load":
            return sighting.at_s
    stated = [(s.at_s, s.seconds()) for s in seen if s.name == "model_loaded"]
    return min((at_s - seconds for at_s, seconds in stated if seconds is not None), default=None)


def _load_ended_s(seen: Sequence[Sighting]) -> float | None:
    """When the last rank had its weights.

    Best evidence first: "Model loading took" (printed by every GPU rank after post-processing); the end of the read as
    the streamer, the loader or its progress bar print it; the end of what comes next less the duration it states.
    """
    next_s = min((s.at_s for s in seen if s.name in ENGINE_LINES), default=math.inf)
    for names in (("model_loaded",), ("streamed", "weights_read", "progress_done")):
        ended = max((s.at_s for s in seen if s.name in names and s.at_s <= next_s), default=None)
        if ended is not None:
            return ended
    for sighting in seen:
        stated = sighting.seconds()
        if sighting.name == "engine_ready" and stated is not None:
            return sighting.at_s - stated
    return None


def phase_reached(seen: Sequence[Sighting]) -> str:
    """The phase an engine was in when it wrote its last telling line."""
    names = {sighting.name for sighting in seen}
    if names & ENGINE_LINES:
        return "engine"
    return "weights" if "load" in names else "start"


_DETAILS: Mapping[tuple[str, ...], str] = {
    ("start",): "imports, config",
    ("weights",): "load",
    ("engine",): "profile, compile, capture",
}


def split_engine_run(seen: Sequence[Sighting], begin_s: float, end_s: float, *, over: bool) -> list[Segment]:
    """The phases of one run of the engine, from its start to `end_s`.

    Args:
        seen: what its log said.
        begin_s: when the engine was started.
        end_s: when it answered its health check, or died; or now.
        over: whether it serves at `end_s`. Then all three phases are over, and those that no line told apart are one
            segment of several phases; else it is in the last phase that was seen.

    Returns:
        Segments that follow each other and cover [begin_s, end_s].
    """
    began, ended = _load_began_s(seen), _load_ended_s(seen)
    cuts: list[tuple[tuple[str, ...], float]]
    if began is None and ended is None:
        cuts = [(("start", "weights", "engine") if over else ("start",), end_s)]
    elif ended is None:
        cuts = [(("start",), began or 0.0), (("weights", "engine") if over else ("weights",), end_s)]
    elif began is None:
        cuts = [(("start", "weights"), ended), (("engine",), end_s)]
    else:
        cuts = [(("start",), began), (("weights",), ended), (("engine",), end_s)]
    segments: list[Segment] = []
    low_s = begin_s
    for phases, until_s in cuts:
        high_s = min(max(until_s, low_s), end_s)
        detail = _DETAILS.get(phases, "no line told these apart")
        segments.append(Segment(phases=phases, detail=detail, begin_s=low_s, end_s=high_s))
        low_s = high_s
    return segments


def phases_of(segments: Sequence[Segment]) -> dict[str, float | None]:
    """Seconds of each phase of the pod; null when no stretch, or one shared with other phases, belongs to it."""
    shared = {phase for s in segments if len(s.phases) > 1 for phase in s.phases}
    seen = {phase for s in segments for phase in s.phases} - shared
    return {
        phase: sum(s.end_s - s.begin_s for s in segments if s.phases == (phase,)) if phase in seen else None
        for phase in IN_POD
    }
