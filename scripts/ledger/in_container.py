"""The phases inside the container: by the launcher, else by the engine's log."""

from __future__ import annotations

from budget.counted import counted
from scripts.ledger.before_container import STARTED
from scripts.ledger.facts import PHASES, InPod
from scripts.ledger.known import Known
from scripts.ledger.timeline import Timeline


def lay_inside(timeline: Timeline, known: Known) -> None:
    """The phases of the pod, each stretch where it belongs."""
    in_pod, began = known.in_pod, known.moment("container-started", STARTED)
    if known.restarts and began:
        last = known.restarts[-1]
        timeline.until(
            began.at_s,
            None,
            f"{counted(len(known.restarts), 'earlier attempt')}, the last: {last.reason}, exit {last.exit_code}",
            source=began.source,
            evidence=began.evidence,
            resolution_s=began.resolution_s,
        )
    if in_pod is None:
        for phase in PHASES[2:]:
            timeline.missing(phase, _why_no_inside(known))
        return
    if known.bundle.pod == {} or not known.bundle.pod:
        timeline.until(in_pod.began.at_s, None, "before the container", source=in_pod.source)
    for stretch in in_pod.stretches:
        phase = stretch.phases[0] if len(stretch.phases) == 1 else None
        detail = (
            stretch.detail if phase else (f"{', '.join(stretch.phases)}: " if stretch.phases else "") + stretch.detail
        )
        timeline.until(
            in_pod.began.at_s + stretch.end_s,
            phase,
            detail,
            source=in_pod.source,
            evidence=_evidence(in_pod),
            resolution_s=in_pod.resolution_s,
        )
        for shared in stretch.phases if len(stretch.phases) > 1 else ():
            timeline.missing(shared, f"no line told {', '.join(stretch.phases)} apart")
    if in_pod.source == "log":
        timeline.missing("warmup", "no launcher: nobody warmed this engine up before Ready, or timed it")
        if not timeline.saw("start"):
            timeline.missing("start", "the log does not show the start of the process")


def _evidence(in_pod: InPod) -> str:
    return "the launcher's ledger" if in_pod.source == "launcher" else "the engine's log"


def _why_no_inside(known: Known) -> str:
    bundle = known.bundle
    if bundle.log is None and not bundle.launcher:
        if known.moment("container-started", STARTED) is None and bundle.pod:
            return "not reached"
        return bundle.why("launcher", bundle.why("log", "neither the launcher's ledger nor a log was read"))
    if bundle.log is not None and not known.engine.is_vllm:
        return "the log is not vLLM's"
    if known.engine.undated:
        return "no line of the log is dated: read it with --timestamps"
    return "the log shows no line of a start: it was cut, or begins later"
