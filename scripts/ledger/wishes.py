"""What a person asks `coldstart measure` for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from budget.problems import BadInput, Problem
from scripts.ledger.variants import LEVERS


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The options, as given."""

    last: int | None
    watch: bool
    trigger: bool
    cold: str | None
    yes: bool
    ab: str | None
    rehearse: bool
    times: int
    source: Path | None
    saved: Path | None
    aws: bool
    probe_node: bool
    context: str | None
    record_answer: bool
    forget_answer: bool

    def check(self, pod: str | None) -> None:
        """Refuses options that contradict each other.

        Args:
            pod: the one that was named.

        Raises:
            BadInput: every contradiction.
        """
        ways = [
            name for name, asked in (("--watch", self.watch), ("--trigger", self.trigger), ("--ab", self.ab)) if asked
        ]
        problems: list[Problem] = []
        if len(ways) > 1:
            problems.append(Problem(" ".join(ways), "these options exclude each other", "Use one of them."))
        if self.source and (ways or self.saved):
            more = " ".join([*ways, *(["--save"] if self.saved else [])])
            problems.append(Problem(f"--from {more}", "a saved folder is measured as it is", "Leave the others out."))
        if self.cold and not self.trigger:
            problems.append(Problem("--cold", "only applies to a start made on purpose", "Add --trigger."))
        if self.record_answer and (self.watch or self.ab or self.trigger):
            problems.append(Problem("--record-answer", "records the answer of one start there is", "Use it alone."))
        if self.forget_answer and (more := self._about_starts([*ways, *(["--pod"] if pod else [])])):
            found = "only edits the stack's manifest and measures no start, so it cannot be combined with"
            problems.append(Problem("--forget-answer", f"{found} {' '.join(more)}", "Use it with STACK alone."))
        if self.rehearse and not self.ab:
            problems.append(Problem("--rehearse", "only applies to an A/B comparison", "Add --ab LEVER."))
        if self.ab and self.ab not in LEVERS:
            problems.append(Problem("--ab", f"there is no lever {self.ab!r}", f"Known: {', '.join(LEVERS)}."))
        if problems:
            raise BadInput(problems)

    def _about_starts(self, ways: Sequence[str]) -> list[str]:
        """The options given that say which start is looked at, or how."""
        others = {
            "--record-answer": self.record_answer,
            "--last": self.last,
            "--from": self.source,
            "--save": self.saved,
            "--aws": self.aws,
            "--probe-node": self.probe_node,
            "--context": self.context,
        }
        return [*ways, *(name for name, asked in others.items() if asked)]
