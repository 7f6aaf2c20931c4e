"""The ledger of one start, as it is written."""

from __future__ import annotations

import dataclasses
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from serving.launcher.config import FORMAT, Config
from serving.launcher.facts import AnswerFacts, Attempt, CacheFacts, WarmupFacts, WeightsFacts
from serving.launcher.phases import Segment, phases_of, split_engine_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from serving.launcher.engine_log import EngineLog, Sighting
    from serving.launcher.timeline import Timeline

_MIB = 1024 * 1024


class Ledger:
    """The measured seconds of each phase, and what was seen on the way. Every method may be called from any thread."""

    def __init__(self, config: Config, timeline: Timeline) -> None:
        self._config, self._timeline = config, timeline
        self._lock = threading.Lock()
        self._segments: list[Segment] = []
        self._open: tuple[str, str, float] = ("start", "launcher", 0.0)
        self._run: tuple[EngineLog, float] | None = None
        self._end_s: float | None = None
        self.weights = WeightsFacts()
        self.cache = CacheFacts()
        self.warmup = WarmupFacts()
        self.answer: AnswerFacts | None = None
        self.attempts: list[Attempt] = []
        self.engine: dict[str, object] = {}

    def enter(self, phase: str, detail: str, *, served: bool = True) -> None:
        """What runs ends now, and a stretch of `phase` begins.

        Args:
            phase: of `IN_POD`.
            detail: what happens in it.
            served: whether a run of the engine that ends here ends because it serves (it died otherwise).
        """
        with self._lock:
            now_s = self._timeline.now()
            self._segments.extend(self._running(now_s, over=served))
            self._open, self._run = (phase, detail, now_s), None

    def engine_started(self, log: EngineLog) -> None:
        """The engine runs from now on; its log tells the phases apart."""
        with self._lock:
            now_s = self._timeline.now()
            self._segments.extend(self._running(now_s, over=True))
            self._run = (log, now_s)

    def end(self) -> None:
        """The start is over."""
        with self._lock:
            if self._end_s is None:
                self._end_s = self._timeline.now()
                self._segments.extend(self._running(self._end_s, over=True))

    def _running(self, now_s: float, *, over: bool) -> list[Segment]:
        if self._run is not None:
            log, begin_s = self._run
            return split_engine_run(log.sightings(), begin_s, now_s, over=over)
        phase, detail, begin_s = self._open
        return [Segment(phases=(phase,), detail=detail, begin_s=begin_s, end_s=now_s)]

    def segments(self) -> list[Segment]:
        """All stretches so far, the open one up to now; they follow each other and cover the whole time."""
        with self._lock:
            if self._end_s is not None:
                return list(self._segments)
            return [*self._segments, *self._running(self._timeline.now(), over=False)]

    def read_s(self, segments: Sequence[Segment]) -> float | None:
        """Seconds in which the weights were read: the streamer's own figure, else the phase."""
        return self.weights.read_s or phases_of(segments)["weights"]

    def document(self, state: str, reason: str) -> dict[str, object]:
        """The whole ledger, for JSON."""
        segments = self.segments()
        unattributed_s = sum(s.end_s - s.begin_s for s in segments if len(s.phases) > 1)
        return {
            "format": FORMAT,
            "state": state,
            "reason": reason,
            "labels": dict(self._config.labels),
            "started_at": datetime.fromtimestamp(self._timeline.started_at, UTC).isoformat(),
            "clock_jump_s": round(self._timeline.clock_jump_s(), 3),
            "phases_s": {phase: _rounded(value) for phase, value in phases_of(segments).items()},
            "unattributed_s": round(unattributed_s, 3),
            "total_s": round(segments[-1].end_s, 3),
            "segments": [
                {"phases": s.phases, "detail": s.detail, "begin_s": round(s.begin_s, 3), "end_s": round(s.end_s, 3)}
                for s in segments
            ],
            "budget": {phase: dataclasses.asdict(expected) for phase, expected in self._config.budget.items()},
            "weights": dataclasses.asdict(self.weights) | {"read_s": _rounded(self.read_s(segments))},
            "compile_cache": dataclasses.asdict(self.cache),
            "engine": dict(self.engine),
            "warmup": dataclasses.asdict(self.warmup),
            "answer": None if self.answer is None else dataclasses.asdict(self.answer),
            "attempts": [dataclasses.asdict(attempt) for attempt in self.attempts],
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


_UNITS = {"Bytes": 1, "B": 1, "KiB": 1024, "MiB": _MIB, "GiB": 1024 * _MIB, "TiB": 1024 * 1024 * _MIB}


def note_engine(ledger: Ledger, seen: Sequence[Sighting]) -> None:
    """Takes into the ledger what the engine's log says beyond the phases."""
    by_name: dict[str, list[Sighting]] = {}
    for sighting in seen:
        by_name.setdefault(sighting.name, []).append(sighting)

    def largest(name: str) -> float | None:
        return max((s.seconds() or 0.0 for s in by_name.get(name, [])), default=None)

    def first(name: str, *keys: str) -> str | None:
        return next((s.values[key] for s in by_name.get(name, []) for key in keys if key in s.values), None)

    ledger.engine = {
        "version": first("version", "version", "banner", "engine"),
        "init_model_s": largest("init_model"),
        "dynamo_s": largest("dynamo"),
        "compile_s": largest("compiled"),
        "profile_s": largest("profiled"),
        "graph_capture_s": largest("graphs_captured"),
        "init_engine_s": largest("engine_ready"),
        "kv_cache_tokens": _whole(first("kv_tokens", "tokens")),
        "startup_plan": first("startup_plan", "what"),
    }
    streamed = [
        (float(s.values["n"]) * _UNITS.get(s.values["unit"], 0), s.seconds()) for s in by_name.get("streamed", [])
    ]
    if streamed:
        ledger.weights.weights_bytes = int(max(size for size, _ in streamed)) or ledger.weights.weights_bytes
        ledger.weights.read_s = max(seconds or 0.0 for _, seconds in streamed)
    if "distributed" in by_name:
        ledger.weights.distributed_ranks = _whole(first("distributed", "ranks"))
    elif "not_distributed" in by_name:
        ledger.weights.distributed_ranks = 0
    note_cache_use(ledger.cache, by_name)


def note_cache_use(cache: CacheFacts, by_name: Mapping[str, Sequence[Sighting]]) -> None:
    """A compile cache was used when every graph came from it: one that was compiled is a miss."""
    misses, hits = by_name.get("cache_miss", []), by_name.get("cache_hit", [])
    if misses or hits:
        cache.hit = not misses
        cache.evidence = (misses or hits)[0].line


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text.replace(",", ""))
