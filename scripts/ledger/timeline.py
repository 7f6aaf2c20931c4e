"""One clock for everything: stretches laid one after another, so that nothing is counted twice and nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scripts.ledger.facts import PHASES
from scripts.ledger.record import Measured, Segment


@dataclass
class _Seen:
    """What is known of one phase so far."""

    seconds: float = 0.0
    resolution_s: float = 0.0
    source: str = ""
    evidence: str = ""
    details: dict[str, float] = field(default_factory=dict[str, float])


class Timeline:
    """A start, laid out from its begin; time only goes forward.

    Whatever is laid begins where the last stretch ended. A moment that lies before that is a disagreement between two
    sources: nothing is laid, and beyond what their resolutions allow it is noted.
    """

    def __init__(self, begin_s: float, resolution_s: float) -> None:
        self.begin_s = self.now_s = begin_s
        self._resolution_s = resolution_s
        self.segments: list[Segment] = []
        self.notes: list[str] = []
        self._seen: dict[str, _Seen] = {}
        self._missing: dict[str, str] = {}

    def until(
        self,
        at_s: float,
        phase: str | None,
        detail: str,
        *,
        source: str = "",
        evidence: str = "",
        resolution_s: float = 1.0,
        exact: bool = False,
    ) -> None:
        """Lays a stretch from here to a moment.

        Args:
            at_s: Unix time of its end.
            phase: what it belongs to; None for nothing.
            detail: what happened in it.
            source: whose evidence this is.
            evidence: what was read.
            resolution_s: of `at_s`.
            exact: the duration itself was measured, so the resolution of its begin does not matter.
        """
        slack_s = resolution_s + self._resolution_s
        if at_s < self.now_s - slack_s:
            self.notes.append(
                f"{detail}: ends {self.now_s - at_s:.1f} s before what comes before it ({evidence or source})"
            )
        end_s = max(at_s, self.now_s)
        if end_s > self.now_s:
            self.segments.append(
                Segment(phase=phase, detail=detail, begin_s=self.now_s - self.begin_s, end_s=end_s - self.begin_s)
            )
        if phase:
            seen = self._seen.setdefault(phase, _Seen(source=source, evidence=evidence))
            seen.seconds += end_s - self.now_s
            seen.resolution_s = max(seen.resolution_s, resolution_s if exact else max(resolution_s, self._resolution_s))
            if detail and end_s > self.now_s:
                seen.details[detail] = seen.details.get(detail, 0.0) + end_s - self.now_s
        self.now_s, self._resolution_s = end_s, resolution_s

    def nothing_to_do(self, phase: str, *, source: str, evidence: str) -> None:
        """A phase that took no time, with the evidence for it."""
        self._seen.setdefault(phase, _Seen(source=source, evidence=evidence))

    def missing(self, phase: str, why: str) -> None:
        """A phase that nobody saw. Whatever was laid for it stays."""
        self._missing.setdefault(phase, why)

    def saw(self, phase: str) -> bool:
        """Whether anything is known of a phase."""
        return phase in self._seen

    def phases(self, otherwise: str) -> Mapping[str, Measured]:
        """All six phases; one that was not seen is missing, with the reason."""
        found: dict[str, Measured] = {}
        for phase in PHASES:
            seen = self._seen.get(phase)
            if seen is None or phase in self._missing:
                found[phase] = Measured(seconds=None, missing=self._missing.get(phase, otherwise))
            else:
                found[phase] = Measured(
                    seconds=seen.seconds,
                    resolution_s=seen.resolution_s,
                    source=seen.source,
                    evidence=seen.evidence,
                    details=dict(seen.details),
                )
        return found

    def close(self, phases: Mapping[str, Measured]) -> list[Segment]:
        """The segments, those of phases that count as missing given to nobody."""
        return [
            Segment(
                phase=None if segment.phase and phases[segment.phase].seconds is None else segment.phase,
                detail=segment.detail,
                begin_s=segment.begin_s,
                end_s=segment.end_s,
            )
            for segment in self.segments
        ]
