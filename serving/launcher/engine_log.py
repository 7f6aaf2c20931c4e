"""What the engine's log says, over the releases of vLLM."""

from __future__ import annotations

import re
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LINE_LIMIT = 8192
"""Bytes of a line that are looked at: every line with a meaning is known by its head."""

_BREAK = re.compile(rb"[\r\n]")

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class LineSplitter:
    """Bytes in, lines out, for reading only: carriage returns end a line too, and a long line keeps only its head."""

    def __init__(self) -> None:
        self._head = b""

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that `chunk` completes."""
        pieces = _BREAK.split(chunk)
        lines: list[str] = []
        for piece in pieces[:-1]:
            self._keep(piece)
            if self._head:
                lines.append(_ANSI.sub("", self._head.decode("utf-8", "replace")))
            self._head = b""
        self._keep(pieces[-1])
        return lines

    def _keep(self, piece: bytes) -> None:
        self._head += piece[: _LINE_LIMIT - len(self._head)]


LINES: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern)
    for name, pattern in {
        # which engine
        "version": r"vLLM (?:API )?server version (?P<version>[^\s,]+)|\bversion (?P<banner>\d+\.\d+\.\d+\S*)\s*$"
        r"|Initializing an? (?:V[01] )?LLM engine \(v(?P<engine>[^)]+)\) with config",
        # weights
        "load": r"Starting to load model .+?\.\.\.",
        "init_model": r"Initializing model took (?P<s>\d+(?:\.\d+)?) seconds",
        "weights_read": r"Loading weights took (?P<s>\d+(?:\.\d+)?) seconds",
        "progress_done": r"Loading safetensors[^:\r]*:\s+100% Completed \| (?P<n>\d+)/(?P<of>\d+)",
        "model_loaded": r"(?:Model loading took|Loading model weights took) (?P<gib>\d+(?:\.\d+)?) Gi?B(?: memory)?"
        r"(?: and (?P<s>\d+(?:\.\d+)?) seconds)?",
        "streamed": r"\[RunAI Streamer\] Overall time to stream (?P<n>\d+(?:\.\d+)?) (?P<unit>\w+)(?: of all files)?"
        r"(?: to \S+)?: (?P<s>\d+(?:\.\d+)?)s,",
        "distributed": r"\[RunAI Streamer\]\[Distributed\] Using distributed streaming between (?P<ranks>\d+) proc",
        "not_distributed": r"\[RunAI Streamer\]\[Distributed\].*fallback to non distributed",
        "source_failed": r"Could not receive response from libstreamer due to: |\bhttp_status=\d+"
        r"|\bbotocore\.(?:errorfactory|exceptions)\.\w+: ",
        # compile
        "compile_begins": r"Using cache directory: \S+ for vLLM's torch\.compile|Warming up model for the compilation",
        "dynamo": r"Dynamo bytecode transform time: (?P<s>\d+(?:\.\d+)?) s",
        "graph_compiled": r"Compiling a graph for .+? takes (?P<s>\d+(?:\.\d+)?) s",
        "cache_hit": r"Directly load (?:the compiled graph|the \S+ graph|AOT compilation from path)"
        r"|(?:fx graph|AOTAutograd) cache hit for key",
        "cache_miss": r"Cache the graph (?:of|for) .+ for later use|sav(?:ed|ing) AOT compiled function to"
        r"|unable to save AOT compiled function to|Compiling model again due to a load failure from"
        r"|(?:fx graph|AOTAutograd) cache miss for key",
        "compiled": r"torch\.compile (?:takes|took|and initial profiling/warmup run together took) "
        r"(?P<s>\d+(?:\.\d+)?) s in",
        # memory, graphs, the rest of the engine
        "profiled": r"Initial profiling/warmup run took (?P<s>\d+(?:\.\d+)?) s",
        "startup_plan": r"(?P<what>Applying persisted startup plan|Saved startup plan to|Startup plan not applied)",
        "kv_memory": r"Available KV cache memory: (?P<gib>\d+(?:\.\d+)?) GiB",
        "kv_tokens": r"KV cache size: (?P<tokens>[\d,]+) tokens",
        "graphs_captured": r"\bGraph capturing finished in (?P<s>\d+) secs",
        "engine_ready": r"init engine \(profile, create kv cache, warmup model\) took (?P<s>\d+(?:\.\d+)?) s",
        "serving": r"INFO:\s+Application startup complete\.|Starting vLLM (?:API )?server (?:\d+ )?on ",
        # after Ready
        "late_compile": r"during inference: .*This causes a latency spike",
        "draining": r"\[shutdown\] EngineCore: (?P<how>draining|aborting) in-flight requests count=(?P<n>\d+)",
    }.items()
}
"""What the launcher reads of the engine's log: name → pattern, searched anywhere in a line.

Written from vLLM's sources, releases 0.19 to 0.33, and a real start of 0.32 (tests/unit/serving/logs). Where releases
differ the alternatives stand beside each other. Prefixes (`(EngineCore pid=7) INFO 11-29 ...`) are never matched, so it
doesn't matter which process or which formatter wrote the line. `fx graph cache` and `AOTAutograd cache` lines are
PyTorch's own (`TORCH_LOGS=torch._inductor.codecache,torch._functorch._aot_autograd.autograd_cache`): vLLM's CPU build
reports its compile cache no other way.
"""

_AFTER_READY = ("late_compile", "draining")
"""Looked for once the engine serves: its log is then as long as its traffic, and holds what users sent."""

ENGINE_LINES = frozenset(
    {
        *("compile_begins", "dynamo", "graph_compiled", "cache_hit", "cache_miss", "compiled", "profiled"),
        *("startup_plan", "kv_memory", "kv_tokens", "graphs_captured", "engine_ready"),
    }
)
"""Any of these lines says that the weights are loaded."""

_MOST_OF_A_NAME = 64
"""Sightings kept per name: one per rank and graph is enough; a line that repeats must not fill the memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sighting:
    """A line of the engine's log that says something: when it was seen, what it said."""

    name: str
    at_s: float
    values: Mapping[str, str]
    line: str

    def seconds(self) -> float | None:
        """The duration that the line itself states."""
        value = self.values.get("s")
        return None if value is None else float(value)


class EngineLog:
    """Reads the engine's lines: keeps the telling ones with their time, and the last few of any kind."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._sightings: list[Sighting] = []
        self._names: tuple[str, ...] = tuple(LINES)
        self._last: deque[str] = deque(maxlen=20)

    def read(self, line: str) -> None:
        """One line, without its end."""
        at_s = self._now()
        with self._lock:
            self._last.append(line[:500])
            for name in self._names:
                found = LINES[name].search(line)
                if found and self._counts.get(name, 0) < _MOST_OF_A_NAME:
                    self._counts[name] = self._counts.get(name, 0) + 1
                    values = {key: value for key, value in found.groupdict().items() if value is not None}
                    self._sightings.append(Sighting(name=name, at_s=at_s, values=values, line=line.strip()[:300]))

    def serve(self) -> None:
        """The engine serves from now on."""
        with self._lock:
            self._names = _AFTER_READY

    def sightings(self) -> tuple[Sighting, ...]:
        """What was seen so far, in order."""
        with self._lock:
            return tuple(self._sightings)

    def tail(self) -> list[str]:
        """The last lines, of any kind."""
        with self._lock:
            return list(self._last)

    def seen(self, name: str) -> bool:
        """Whether a line of this name was seen."""
        with self._lock:
            return name in self._counts
