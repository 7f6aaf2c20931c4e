"""What the launcher is told: `launcher.json`, read strictly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from serving.launcher.fields import Fields, is_inside
from serving.launcher.refusal import BadConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = 1
"""Of the configuration, the ledger, the marker of a complete copy and the archive; raised when one changes."""

PHASES = ("node", "pull", "start", "weights", "engine", "warmup")

IN_POD = PHASES[2:]
"""The phases a pod can see of itself. `node` and `pull` are over before its first instruction."""

KINDS = ("stream", "node-cache", "shared-fs", "baked", "presharded")
"""Of weights paths."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Expectation:
    """What the budget says of one phase, in seconds."""

    low_s: float
    expected_s: float
    high_s: float

    @classmethod
    def from_json(cls, obj: Fields) -> Expectation:
        """Reads and checks one phase of `budget`."""
        read = cls(low_s=obj.number("low_s"), expected_s=obj.number("expected_s"), high_s=obj.number("high_s"))
        if not read.low_s <= read.expected_s <= read.high_s:
            obj.wrong("", "must have low_s <= expected_s <= high_s")
        obj.close()
        return read


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightsPath:
    """One way to get the weights.

    Attributes:
        kind: one of `KINDS`.
        source: where the weights come from, an s3:// URI or a directory.
        engine_args: stand for `{weights}` in the engine's arguments; `{dir}` in them is the local copy.
        directory: node-cache: shared by the pods of the node; shared-fs and baked: the copy itself.
        limit_bytes: node-cache: most bytes of the whole directory.
        manifest: s3:// URI of what was staged; with it sizes and SHA-256 of every file are verified after a fill.
        fill_timeout_s: node-cache: for waiting on another pod's fill and filling, together.
        connections: ranged GETs in flight during a fill.
    """

    kind: str
    source: str
    engine_args: tuple[str, ...]
    directory: Path | None
    limit_bytes: int | None
    manifest: str | None
    fill_timeout_s: float
    connections: int

    @classmethod
    def from_json(cls, obj: Fields) -> WeightsPath:
        """Reads and checks one entry of `weights.paths`."""
        kind = obj.text("kind")
        if kind and kind not in KINDS:
            obj.wrong("kind", f"must be one of {', '.join(KINDS)}, not {kind!r}")
        local = kind in {"node-cache", "shared-fs", "baked"}
        filled = kind == "node-cache"
        source = obj.text("source")
        directory = Path(obj.text("dir")) if local else None
        if filled and not source.startswith("s3://"):
            obj.wrong("source", f"must be an s3:// URI for node-cache, not {source!r}")
        if directory is not None and not directory.is_absolute():
            obj.wrong("dir", f"must be an absolute path, not {str(directory)!r}")
        read = cls(
            kind=kind,
            source=source,
            engine_args=obj.texts("engine_args"),
            directory=directory,
            limit_bytes=obj.whole("limit_bytes", low=1) if filled else None,
            manifest=obj.text("manifest") if filled and obj.has("manifest") else None,
            fill_timeout_s=obj.number("fill_timeout_s", low=1) if filled else 0.0,
            connections=obj.whole("connections", low=1, high=1024) if filled else 0,
        )
        obj.take_null("manifest")
        obj.close()
        return read


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmupPlan:
    """The requests that run before Ready.

    Attributes:
        prompt_tokens: prompt lengths, each once; longer than the engine allows are cut to what it allows.
        batch_sizes: numbers of prompts sent at once, as one request.
        output_tokens: tokens asked of every request, the probe included.
        completion, chat, stream: which kinds of request are warmed. The probe is always a completion.
        window: the probe is steady when the median of its last `window` latencies
        tolerance: exceeds the best one seen by no more than this share.
        cap_s: warm-up ends after this many seconds, steady or not.
    """

    prompt_tokens: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    output_tokens: int
    completion: bool
    chat: bool
    stream: bool
    window: int
    tolerance: float
    cap_s: float

    @classmethod
    def from_json(cls, obj: Fields) -> WarmupPlan:
        """Reads and checks `warmup`."""
        read = cls(
            prompt_tokens=obj.wholes("prompt_tokens", low=1),
            batch_sizes=obj.wholes("batch_sizes", low=1),
            output_tokens=obj.whole("output_tokens", low=1),
            completion=obj.flag("completion"),
            chat=obj.flag("chat"),
            stream=obj.flag("stream"),
            window=obj.whole("window", low=2, high=100),
            tolerance=obj.number("tolerance"),
            cap_s=obj.number("cap_s", low=1),
        )
        obj.close()
        return read


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownAnswer:
    """What the model must answer to a prompt, greedily; the member `answer` of a manifest has the same shape.

    Attributes:
        prompt: sent as it stands to /v1/completions.
        token_ids: the recorded tokens.
        text: the recorded text, compared when the engine returns no token ids.
        firm_tokens: only so many leading tokens are compared: later ones were near ties when they were recorded.
    """

    prompt: str
    token_ids: tuple[int, ...]
    text: str
    firm_tokens: int

    @classmethod
    def from_json(cls, obj: Fields) -> KnownAnswer:
        """Reads and checks `answer`."""
        ids = obj.wholes("token_ids", low=0)
        if not ids:
            obj.wrong("token_ids", "must hold at least one token")
        read = cls(
            prompt=obj.text("prompt"),
            token_ids=ids,
            text=obj.text("text", ""),
            firm_tokens=obj.whole("firm_tokens", low=1, high=max(1, len(ids))),
        )
        obj.close()
        return read


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileCache:
    """Where the engine's compile artefacts are kept between pods.

    Attributes:
        uri: s3:// prefix of this model's archives.
        key: what distinguishes an archive and can't be seen from inside the pod: image digest, GPU, model URI.
        root: the common parent of what is kept, on node disk.
        include: directories under `root` that are kept; the first is the one without which a start compiles.
        max_restore_s: a restore that takes longer is given up: compiling would be faster.
        max_bytes: most bytes of an archive, unpacked.
    """

    uri: str
    key: Mapping[str, str]
    root: Path
    include: tuple[str, ...]
    max_restore_s: float
    max_bytes: int

    @classmethod
    def from_json(cls, obj: Fields) -> CompileCache:
        """Reads and checks `compile_cache`."""
        read = cls(
            uri=obj.text("uri").rstrip("/") + "/",
            key=obj.section("key").rest(),
            root=Path(obj.text("root")),
            include=obj.texts("include"),
            max_restore_s=obj.number("max_restore_s"),
            max_bytes=obj.whole("max_bytes", low=1),
        )
        if not read.uri.startswith("s3://"):
            obj.wrong("uri", f"must be an s3:// URI, not {read.uri!r}")
        if not read.root.is_absolute():
            obj.wrong("root", f"must be an absolute path, not {str(read.root)!r}")
        if not read.include:
            obj.wrong("include", "must hold at least one directory")
        for name in read.include:
            if not is_inside(name):
                obj.wrong("include", f"holds {name!r}, which is not a path below root")
        obj.close()
        return read


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """All the launcher is told.

    Attributes:
        port, engine_port: the launcher's and the engine's HTTP ports.
        labels: `model`, `revision`, `instance` and `image`; on every metric.
        served_model_name: the name that requests use.
        gpus: GPUs the pod must see; 0: don't look.
        budget: phase → what the plan said of it.
        paths: ways to the weights, in the order in which they are tried, each at most once.
        answer: what must be answered, when it is known beforehand.
        answer_manifest: s3:// URI of the staged model's manifest, whose member `answer` says it otherwise. Where
            neither does, the answer is only checked for sanity.
        drain_timeout_s: from SIGTERM to the end of patience with the engine.
    """

    port: int
    engine_port: int
    labels: Mapping[str, str]
    served_model_name: str
    gpus: int
    budget: Mapping[str, Expectation]
    paths: tuple[WeightsPath, ...]
    warmup: WarmupPlan
    answer: KnownAnswer | None
    answer_manifest: str | None
    compile_cache: CompileCache | None
    drain_timeout_s: float

    @classmethod
    def from_json(cls, document: object) -> Config:
        """Reads a configuration.

        Raises:
            BadConfig: with every problem.
        """
        problems: list[str] = []
        obj = Fields("", document, problems)
        if obj.whole("format") != FORMAT:
            obj.wrong("format", f"must be {FORMAT}: the launcher and its configuration are of one release")
        labels = obj.section("labels")
        budget = obj.section("budget")
        weights = obj.section("weights")
        drain = obj.section("drain")
        answer, answer_manifest = _answer(obj)
        read = cls(
            port=obj.whole("port", low=1, high=65535),
            engine_port=obj.whole("engine_port", low=1, high=65535),
            labels={name: labels.text(name) for name in LABELS},
            served_model_name=obj.text("served_model_name"),
            gpus=obj.whole("gpus"),
            budget={name: Expectation.from_json(budget.section(name)) for name in PHASES if budget.has(name)},
            paths=tuple(WeightsPath.from_json(entry) for entry in weights.sections("paths")),
            warmup=WarmupPlan.from_json(obj.section("warmup")),
            answer=answer,
            answer_manifest=answer_manifest,
            compile_cache=CompileCache.from_json(obj.section("compile_cache")) if obj.has("compile_cache") else None,
            drain_timeout_s=drain.number("timeout_s"),
        )
        obj.take_null("answer", "compile_cache")
        for part in (labels, budget, weights, drain, obj):
            part.close()
        read.check_against_itself(obj)
        if problems:
            raise BadConfig(problems)
        return read

    def check_against_itself(self, obj: Fields) -> None:
        """Notes what single fields can't show."""
        if self.port == self.engine_port:
            obj.wrong("port", f"is the engine's port too ({self.port})")
        if not self.paths:
            obj.wrong("weights.paths", "must hold at least one path")
        kinds = [path.kind for path in self.paths]
        for kind in sorted({kind for kind in kinds if kinds.count(kind) > 1}):
            obj.wrong("weights.paths", f"holds {kind} twice")


def _answer(obj: Fields) -> tuple[KnownAnswer | None, str | None]:
    """`answer`: the known answer itself, or `{"manifest": "s3://..."}`, or null."""
    if not obj.has("answer"):
        return None, None
    answer = obj.section("answer")
    if not answer.has("manifest"):
        return KnownAnswer.from_json(answer), None
    manifest = answer.text("manifest")
    if not manifest.startswith("s3://"):
        answer.wrong("manifest", f"must be an s3:// URI, not {manifest!r}")
    answer.close()
    return None, manifest


LABELS = ("model", "revision", "instance", "image")
"""On every metric, beside a metric's own."""


def read_config(path: Path) -> Config:
    """Reads `launcher.json`.

    Raises:
        BadConfig: unreadable, or with every problem in it.
    """
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise BadConfig([f"{path}: can't be read: {error.strerror}"]) from error
    except ValueError as error:
        raise BadConfig([f"{path}: is no JSON: {error}"]) from error
    return Config.from_json(document)
