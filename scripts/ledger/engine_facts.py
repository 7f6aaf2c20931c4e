"""The engine's log where no launcher timed it: the same lines, read afterwards. Nobody's launcher is needed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from scripts.ledger.facts import Attempt, Clock, Fact, InPod, Stretch
from scripts.ledger.log_text import Line, lines
from scripts.ledger.raw import NOTHING, Object, object_of, parsed
from serving.launcher.engine_log import ENGINE_LINES, LINES, Sighting
from serving.launcher.phases import phase_reached, split_engine_run

SOURCE = "log"
VLLM = re.compile(
    r"vllm|vLLM|Initializing an? (?:V[01] )?LLM engine|RunAI Streamer|Loading safetensors|Starting to load model"
)
MORE_LINES = {
    "capture_sizes": re.compile(r"cudagraph_capture_sizes'?\"?:\s*\[(?P<sizes>[\d, ]*)\]"),
    "capture_progress": re.compile(r"Capturing CUDA graphs?[^:]*:\s*100%[^|]*\|[^|]*\|\s*(?P<n>\d+)/(?P<of>\d+)"),
    "stream_ring": re.compile(r"\[RunAI Streamer\] Rank \d+: CPU ring .* in (?P<files>\d+) file"),
    "identity": re.compile(r"Found credentials (?:from|in) (?P<how>.+)$"),
}
"""Lines that prove a lever and time nothing; the others are the launcher's (serving.launcher.engine_log)."""
HEAD = 8192
"""Characters of a line that are looked at: every line with a meaning is known by its head, as in the launcher."""
_FIRST = re.compile(r"vLLM (?:API )?server version |\bversion \d+\.\d+\.\d+\S*\s*$")
"""A server prints its version once, early: a second time is a second attempt in the same container."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineFacts:
    """What the log says.

    Attributes:
        in_pod: the phases; None when the log tells none.
        sightings: telling lines of the attempt that counts, in order.
        attempts: earlier attempts in the same container.
        ledger: the launcher's ledger, which it prints once at the end of a start.
        is_vllm: whether any line is vLLM's.
        undated: lines that nothing dates.
        cut: the log begins after the engine had begun to load.
    """

    in_pod: InPod | None
    sightings: tuple[Sighting, ...]
    attempts: list[Attempt]
    ledger: Object
    is_vllm: bool
    undated: int
    cut: bool


NONE = EngineFacts(in_pod=None, sightings=(), attempts=[], ledger=NOTHING, is_vllm=False, undated=0, cut=False)


def engine_facts(log: str | None, began: Fact | None, ready_s: float | None, read_s: float) -> EngineFacts:
    """Reads a log.

    Args:
        log: its text; None when it was not read.
        began: the container's start, from whoever knows it.
        ready_s: Unix time, on the node's clock, at which the pod was Ready; ends a log that was cut before.
        read_s: Unix time at which the log was read.
    """
    if not log:
        return NONE
    read = lines(log, began.at_s if began else None, read_s)
    ledger = _ledger(read)
    begins = [index for index, line in enumerate(read) if _FIRST.search(line.text[:HEAD])]
    kept, earlier = _last_attempt(read, begins)
    dated = [line for line in kept if line.at_s is not None]
    facts = EngineFacts(
        in_pod=None,
        sightings=(),
        attempts=earlier,
        ledger=ledger,
        is_vllm=any(VLLM.search(line.text[:HEAD]) for line in read),
        undated=len(kept) - len(dated),
        cut=False,
    )
    if not dated:
        return _replaced(facts, sightings=tuple(_sightings(kept, 0.0)))
    origin = began or _first_line(dated[0])
    seen = tuple(_sightings(kept, origin.at_s))
    cut = not begins and not any(sighting.name in {"version", "load"} for sighting in seen)
    known_start = began is not None
    in_pod = _in_pod(seen, origin, dated, ready_s, known_start=known_start, attempts=earlier, kept=kept)
    return _replaced(facts, in_pod=in_pod, sightings=seen, cut=cut)


def _replaced(
    facts: EngineFacts, *, in_pod: InPod | None = None, sightings: tuple[Sighting, ...], cut: bool = False
) -> EngineFacts:
    return EngineFacts(
        in_pod=in_pod,
        sightings=sightings,
        attempts=facts.attempts,
        ledger=facts.ledger,
        is_vllm=facts.is_vllm,
        undated=facts.undated,
        cut=cut,
    )


def _first_line(line: Line) -> Fact:
    return Fact(
        name="container-started",
        at_s=line.at_s or 0.0,
        clock=Clock.NODE,
        resolution_s=line.resolution_s,
        source=SOURCE,
        evidence=f"first dated line of the log: {line.text[:120]}",
    )


def _last_attempt(read: Sequence[Line], begins: Sequence[int]) -> tuple[Sequence[Line], list[Attempt]]:
    """The lines of the last attempt, and what is known of those before it."""
    starts = [0]
    for index in begins:
        loaded = any(
            LINES[name].search(line.text[:HEAD])
            for line in read[starts[-1] : index]
            for name in ("load", "engine_ready")
        )
        version = next((begin for begin in begins if starts[-1] <= begin < index), None)
        if loaded or (version is not None and _apart_s(read[version], read[index]) > ANOTHER_START_S):
            starts.append(index)
    earlier: list[Attempt] = []
    for begin, end in itertools.pairwise(starts):
        attempt = read[begin:end]
        seen = list(_sightings(attempt, 0.0))
        dated = [line.at_s for line in attempt if line.at_s is not None]
        last = next((line.text for line in reversed(attempt) if line.text.strip()), "")
        earlier.append(
            Attempt(
                what="engine",
                exit_code=None,
                reason=f"ended in phase {phase_reached(seen)}: {last[:200]}",
                began_s=dated[0] if dated else None,
                ended_s=dated[-1] if dated else None,
            )
        )
    return read[starts[-1] :], earlier


def _apart_s(one: Line, other: Line) -> float:
    return 0.0 if one.at_s is None or other.at_s is None else other.at_s - one.at_s


ANOTHER_START_S = 30.0
"""The processes of one start print their version within this time of each other."""


_FIGURES = ("s", "gib", "n", "of", "ranks")
_FIGURE = re.compile(r"\d{1,15}(?:\.\d{0,15})?|\.\d{1,15}")
"""What a line states in numbers, and a number: `1.2.3` in a torn line is none."""


def _sightings(read: Sequence[Line], origin_s: float) -> list[Sighting]:
    found: list[Sighting] = []
    patterns = [*LINES.items(), *MORE_LINES.items()]
    serving = False
    last_s = origin_s
    for line in read:
        last_s, head = line.at_s if line.at_s is not None else last_s, line.text[:HEAD]
        for name, pattern in patterns:
            match = pattern.search(head)
            if not match or (serving and name not in {"late_compile", "draining"}):
                continue
            values = {key: value for key, value in match.groupdict().items() if value is not None}
            if not all(_FIGURE.fullmatch(values[key]) for key in _FIGURES if key in values):
                continue
            at_s = last_s - origin_s + (_elapsed_s(head) if line.at_s is None and name == "progress_done" else 0.0)
            found.append(Sighting(name=name, at_s=at_s, values=values, line=head.strip()[:300]))
            serving = serving or name == "serving"
    return found


_ELAPSED = re.compile(r"\[(?:(?P<h>\d+):)?(?P<m>\d\d):(?P<s>\d\d)<")


def _elapsed_s(text: str) -> float:
    """What a progress bar says of its own time, for a line that nothing else dates."""
    found = _ELAPSED.search(text)
    return int(found["h"] or 0) * 3600.0 + int(found["m"]) * 60.0 + int(found["s"]) if found else 0.0


def _in_pod(
    seen: Sequence[Sighting],
    began: Fact,
    dated: Sequence[Line],
    ready_s: float | None,
    *,
    known_start: bool,
    attempts: Sequence[Attempt],
    kept: Sequence[Line],
) -> InPod | None:
    """The phases of the attempt that counts; None when no line tells any."""
    if not any(sighting.name in {"load", "serving", "model_loaded", *ENGINE_LINES} for sighting in seen):
        return None
    serving = max((s.at_s for s in seen if s.name == "serving"), default=None)
    ended = max((s.at_s for s in seen if s.name == "engine_ready"), default=None)
    if serving is not None:
        end_s, over, detail = serving, True, ""
    elif ready_s is not None and ready_s > began.at_s:
        end_s, over, detail = ready_s - began.at_s, True, "the log shows no line of the server; the pod was Ready then"
    elif ended is not None:
        end_s, over, detail = ended, True, "the log ends with the engine's last line"
    else:
        end_s, over, detail = (dated[-1].at_s or began.at_s) - began.at_s, False, "the log ends while the engine starts"
    begin_s = _begin_s(attempts, kept, began)
    segments = split_engine_run(list(seen), begin_s, max(end_s, begin_s), over=over)
    stretches = [Stretch(phases=s.phases, detail=s.detail, begin_s=s.begin_s, end_s=s.end_s) for s in segments]
    if begin_s > 0:
        stretches.insert(
            0, Stretch(phases=(), detail="earlier attempt in the same container", begin_s=0.0, end_s=begin_s)
        )
    if not known_start and stretches and stretches[0].phases == ("start",):
        first = stretches[0]
        stretches[0] = Stretch(
            phases=(),
            detail="part of start: the process began before the log",
            begin_s=first.begin_s,
            end_s=first.end_s,
        )
    return InPod(
        began=began,
        stretches=tuple(stretches),
        state="serving" if over else "starting",
        reason=detail,
        source=SOURCE,
        resolution_s=max(line.resolution_s for line in dated),
    )


def _begin_s(attempts: Sequence[Attempt], kept: Sequence[Line], began: Fact) -> float:
    """When the attempt that counts began, since the container's start."""
    if not attempts:
        return 0.0
    at_s = next((line.at_s for line in kept if line.at_s is not None), None)
    return max(0.0, (at_s or began.at_s) - began.at_s)


def _ledger(read: Sequence[Line]) -> Object:
    """The ledger that the launcher prints as one line when a start is decided; the last one counts."""
    for line in reversed(read):
        if '"ledger"' not in line.text or not line.text.lstrip().startswith("{"):
            continue
        try:
            ledger = object_of(object_of(parsed(line.text)).get("ledger"))
        except ValueError:
            continue
        if ledger:
            return ledger
    return NOTHING
