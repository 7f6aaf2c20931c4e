"""The ledger as it is kept: one frozen record, and the JSON of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from scripts.ledger.facts import PHASES, Absence, Attempt
from scripts.ledger.raw import Object, finite, mapping, number, objects, text, texts, whole
from scripts.ledger.skew import Skew

FORMAT = 1
"""Raised when a field changes its meaning."""
PROOF_STATES = ("on", "off", "unknown")


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """What the budget says of a phase, in seconds."""

    low_s: float
    expected_s: float
    high_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One phase.

    Attributes:
        seconds: None when nobody saw it: never zero for want of evidence.
        missing: why, when `seconds` is None.
        resolution_s: how far `seconds` may be off.
        source: the reader whose evidence decided.
        evidence: what was read.
        details: part → seconds.
    """

    seconds: float | None
    missing: str = ""
    resolution_s: float = 0.0
    source: str = ""
    evidence: str = ""
    details: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A stretch of the start; they follow each other and cover it whole.

    Attributes:
        phase: None when it belongs to none: `detail` says what is known of it.
        begin_s, end_s: since the start was asked.
    """

    phase: str | None
    detail: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """Whether a lever was on.

    Attributes:
        state: `on`, `off` or `unknown`.
        evidence: the line that says so, or what would have to be read.
        value: what was measured, when there is a number.
    """

    lever: str
    state: str
    evidence: str
    source: str
    phase: str
    value: Mapping[str, float | int | str] = field(default_factory=dict[str, float | int | str])


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """One measured start.

    Attributes:
        uid: of the pod; what a ledger is kept under.
        state: `ready`; `starting`; `refused` (wrong answer); `unscheduled`; `deleted`; `failed`.
        cold: `node` (a node was launched for it), `image` (it was pulled), `pod` (both were there) or `unknown`.
        asked_at_s: Unix time, on the API's clock.
        wall_clock_s: asked → Ready; → now or the end when it never was.
        phases: all six.
        unaccounted_s: what no phase explains; phases and this always sum to the wall clock.
        skew: node clock against API clock; None when nothing told.
        budget: phase → expected seconds; empty when unknown.
    """

    namespace: str
    pod: str
    uid: str
    model: str
    labels: Mapping[str, str]
    node: str
    container: str
    state: str
    reason: str
    cold: str
    asked_at_s: float
    wall_clock_s: float
    resolution_s: float
    phases: Mapping[str, Measured]
    segments: Sequence[Segment]
    unaccounted_s: float
    skew: Skew | None
    budget: Mapping[str, Expected]
    proofs: Sequence[Proof]
    attempts: Sequence[Attempt]
    absences: Sequence[Absence]
    notes: Sequence[str]

    @property
    def measured(self) -> bool:
        """Whether any phase was seen."""
        return any(phase.seconds is not None for phase in self.phases.values())

    def over_budget(self) -> list[tuple[str, float]]:
        """Phases over the budget's high, and by how much; the worst first."""
        over = [
            (name, (phase.seconds or 0.0) - self.budget[name].high_s)
            for name, phase in self.phases.items()
            if phase.seconds is not None and name in self.budget and phase.seconds > self.budget[name].high_s
        ]
        return sorted(over, key=lambda entry: -entry[1])


def document(ledger: Ledger) -> dict[str, Any]:
    """The ledger for JSON: seconds to the millisecond."""
    return {"format": FORMAT, **_rounded(asdict(ledger))}


def _rounded(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType] - any JSON value
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]  # pyright: ignore[reportUnknownVariableType] - any JSON value
    return value


def from_document(found: Object) -> Ledger:
    """The ledger out of its JSON.

    Raises:
        ValueError: another format.
    """
    if found.get("format") != FORMAT:
        raise ValueError(f"format {found.get('format')!r} of the ledger is not {FORMAT}")
    skew = mapping(found, "skew")
    return Ledger(
        namespace=text(found, "namespace"),
        pod=text(found, "pod"),
        uid=text(found, "uid"),
        model=text(found, "model"),
        labels={key: str(value) for key, value in mapping(found, "labels").items()},
        node=text(found, "node"),
        container=text(found, "container"),
        state=text(found, "state"),
        reason=text(found, "reason"),
        cold=text(found, "cold"),
        asked_at_s=number(found, "asked_at_s") or 0.0,
        wall_clock_s=number(found, "wall_clock_s") or 0.0,
        resolution_s=number(found, "resolution_s") or 0.0,
        phases={name: _phase(mapping(found, f"phases.{name}")) for name in PHASES},
        segments=[_segment(entry) for entry in objects(found, "segments")],
        unaccounted_s=number(found, "unaccounted_s") or 0.0,
        skew=Skew(
            estimate_s=number(skew, "estimate_s") or 0.0,
            low_s=number(skew, "low_s") or 0.0,
            high_s=number(skew, "high_s") or 0.0,
            evidence=text(skew, "evidence"),
            pairs=whole(skew, "pairs") or 0,
        )
        if skew
        else None,
        budget={
            name: Expected(
                low_s=number(entry, "low_s") or 0.0,
                expected_s=number(entry, "expected_s") or 0.0,
                high_s=number(entry, "high_s") or 0.0,
            )
            for name, entry in mapping(found, "budget").items()
        },
        proofs=[_proof(entry) for entry in objects(found, "proofs")],
        attempts=[_attempt(entry) for entry in objects(found, "attempts")],
        absences=[Absence(what=text(entry, "what"), why=text(entry, "why")) for entry in objects(found, "absences")],
        notes=texts(found, "notes"),
    )


def _phase(found: Object) -> Measured:
    return Measured(
        seconds=number(found, "seconds"),
        missing=text(found, "missing"),
        resolution_s=number(found, "resolution_s") or 0.0,
        source=text(found, "source"),
        evidence=text(found, "evidence"),
        details={
            key: seconds for key, value in mapping(found, "details").items() if (seconds := finite(value)) is not None
        },
    )


def _segment(found: Object) -> Segment:
    return Segment(
        phase=text(found, "phase") or None,
        detail=text(found, "detail"),
        begin_s=number(found, "begin_s") or 0.0,
        end_s=number(found, "end_s") or 0.0,
    )


def _proof(found: Object) -> Proof:
    return Proof(
        lever=text(found, "lever"),
        state=state if (state := text(found, "state")) in PROOF_STATES else "unknown",
        evidence=text(found, "evidence"),
        source=text(found, "source"),
        phase=text(found, "phase"),
        value={key: value for key, value in mapping(found, "value").items() if isinstance(value, int | float | str)},
    )


def _attempt(found: Object) -> Attempt:
    return Attempt(
        what=text(found, "what"),
        exit_code=whole(found, "exit_code"),
        reason=text(found, "reason"),
        began_s=number(found, "began_s"),
        ended_s=number(found, "ended_s"),
    )
