"""What is known of one start beside its seconds."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class WeightsFacts:
    """Which path the weights came by, and how fast.

    Attributes:
        kind: of `KINDS`; empty until one is in use.
        origin: `s3`, `node` or `directory`.
        weights_bytes: bytes of the safetensors files, when known.
        read_s: seconds of the read itself, where the streamer says it; the ledger takes the phase otherwise.
        distributed_ranks: ranks that shared one read; 0 when the engine said that none do; null when it said nothing.
        failed: kind → why a path was given up.
    """

    kind: str = ""
    origin: str = ""
    weights_bytes: int | None = None
    read_s: float | None = None
    distributed_ranks: int | None = None
    failed: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(kw_only=True)
class CacheFacts:
    """What became of the compile cache.

    Attributes:
        key: 64 hex digits that name the archive; empty when no cache is configured.
        restore: `restored`, `miss`, `local` (already on this disk), `skipped` or `off`; `reason` says why.
        restore_s, archive_bytes: of the restore.
        hit: whether the engine used it: its own log says so in `evidence`; null when it says neither.
        publish: `published`, `present`, `failed` or empty; `publish_reason` says why.
    """

    key: str = ""
    restore: str = "off"
    reason: str = ""
    restore_s: float | None = None
    archive_bytes: int | None = None
    hit: bool | None = None
    evidence: str = ""
    publish: str = ""
    publish_reason: str = ""


@dataclass(kw_only=True)
class WarmupFacts:
    """What the warm-up measured.

    Attributes:
        requests: requests that were answered.
        first_s: the first probe, before anything else: what the first user would have waited.
        steady_s: median of the last probes.
        steady: whether the probe became steady before the cap.
        probes_s: latencies of the probe, in order.
        failed: requests that the engine did not answer, each with the reason.
        unsupported: requests that this model or engine refuses (4xx).
        skipped: requests the cap left no time for.
    """

    requests: int = 0
    first_s: float | None = None
    steady_s: float | None = None
    steady: bool = False
    probes_s: list[float] = field(default_factory=list[float])
    failed: list[str] = field(default_factory=list[str])
    unsupported: list[str] = field(default_factory=list[str])
    skipped: list[str] = field(default_factory=list[str])


@dataclass(kw_only=True)
class AnswerFacts:
    """The check of an answer, and the answer itself: what `answer` of a later configuration is made of.

    Attributes:
        check: `known` or `sanity`.
        right: the verdict.
        reason: why it is wrong; empty when it is right.
        unknown: why no known answer was there to compare with; empty when there was one, or none is looked for.
        firm_tokens: leading tokens that were no near ties.
    """

    check: str
    right: bool
    reason: str
    prompt: str
    token_ids: list[int]
    text: str
    firm_tokens: int
    unknown: str = ""


@dataclass(kw_only=True)
class Attempt:
    """A run of the engine that ended before it served."""

    kind: str
    phase: str
    exit_code: int
    reason: str
    last_lines: list[str]
