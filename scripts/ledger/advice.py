"""What to do next: the phase furthest over its budget, and the lever for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scripts.ledger.record import Ledger

REMEDIES: Mapping[str, Sequence[tuple[str, str]]] = {
    "node": (
        ("", "Keep spare places (model.scaling.spare_replicas), a warm pool, or a schedule ahead of the demand."),
    ),
    "pull": (
        ("soci", "Turn SOCI parallel pull on with its whole tuning: `coldstart render` shows the values meant."),
        (
            "image-disk",
            "Bring containerd and SOCI onto the disk that was meant: `coldstart render` shows where and why.",
        ),
        ("pull-rate", "Compare registry and disk with what was simulated: `coldstart plan` names what binds the pull."),
        ("", "Make the image smaller, and its layers even: `coldstart plan` shows what each lever saves."),
    ),
    "start": (("", "Nothing hides here but imports and configuration: a newer engine, or more CPU for the pod."),),
    "weights": (
        ("weights-streamed", "Stream the weights (model.weights.path: stream)."),
        ("distributed-streaming", "Let the ranks share one read (model.weights.distributed)."),
        ("gateway-endpoint", "Bring S3 traffic through the gateway endpoint: bytes through NAT are slow and billed."),
        ("identity", "Give the pod its own identity: a retry against the wrong one costs seconds."),
        ("", "Compare the achieved rate with the network of the instance; `coldstart plan` names what binds the read."),
    ),
    "engine": (
        ("compile-cache", "Keep the compile cache: a miss compiles every graph again."),
        ("startup-plan", "Let the start-up plan apply: it saves the memory profiling."),
        ("graph-sizes", "Capture fewer graph sizes (model.engine.concurrency)."),
        ("", "Capture fewer graph sizes (model.engine.concurrency); `coldstart plan` shows what each saves."),
    ),
    "warmup": (
        (
            "warm-up",
            "Look at the warm-up's own figures: what is not steady within its cap compiles or allocates still.",
        ),
        ("", "Shorten the warm-up's prompts to those that users send."),
    ),
}
"""Phase → levers, best first, each with what to do; the one without a lever is for when all of them were on."""


def next_step(ledger: Ledger) -> str:
    """One sentence on what to do next; empty when everything is within its budget and seen."""
    if not ledger.measured:
        return ""
    over = ledger.over_budget()
    if over:
        phase, by_s = over[0]
        high_s = ledger.budget[phase].high_s
        return f"{phase} is furthest over its budget, by {by_s:.1f} s (high {high_s:.1f} s). {_remedy(ledger, phase)}"
    if not ledger.budget:
        longest = max(
            (name for name, phase in ledger.phases.items() if phase.seconds is not None),
            key=lambda name: ledger.phases[name].seconds or 0.0,
        )
        return f"No budget to compare with; {longest} is the longest phase. {_remedy(ledger, longest)}"
    missing = [name for name, phase in ledger.phases.items() if phase.seconds is None]
    if missing:
        return f"Every phase that was seen is within its budget; {', '.join(missing)} was not seen."
    return "Every phase is within its budget."


def _remedy(ledger: Ledger, phase: str) -> str:
    states = {proof.lever: proof.state for proof in ledger.proofs}
    for wanted in ("off", "unknown"):
        for lever, remedy in REMEDIES[phase]:
            if lever and states.get(lever) == wanted:
                doubt = f"Prove first that {lever} was on. " if wanted == "unknown" else f"{lever} was off. "
                return doubt + remedy
    return next(remedy for lever, remedy in REMEDIES[phase] if not lever)
