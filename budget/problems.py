"""What is wrong with an input: collected, never one at a time, each with its place and its mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_NAMES = 20
"""Of a list of known names that are shown: all verbs, but not all 120 instance types or settings."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input.

    Attributes:
        where: key path or file the person wrote, as they wrote it (`model.nodes.instance`).
        found: what stands there, and why it can't be.
        fix: what would be right.
    """

    where: str
    found: str
    fix: str

    def __str__(self) -> str:
        """One line: where, what, what would be right."""
        return f"{self.where}: {self.found}. {self.fix}"


class BadInput(ValueError):  # noqa: N818 - what it is called wherever it is shown
    """Input that a person can mend. Carries every problem at once; the console command exits with 2."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        if not self.problems:
            raise ValueError("BadInput needs at least one problem")
        super().__init__("\n".join(str(problem) for problem in self.problems))


def bad_input(where: str, found: str, fix: str) -> BadInput:
    """The error for a single problem."""
    return BadInput([Problem(where, found, fix)])


def close_names(name: str, known: Iterable[str], *, most: int = 3) -> Sequence[str]:
    """Known names that `name` was probably meant to be, best first."""
    return difflib.get_close_matches(name, sorted(known), n=most, cutoff=0.6)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the close names, else what there is, as far as a person reads a list."""
    names = sorted(known)
    close = close_names(name, names)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    if len(names) <= MOST_NAMES:
        return f"Known: {', '.join(names)}."
    return f"Known: {', '.join(names[:MOST_NAMES])}, and {len(names) - MOST_NAMES} more."
