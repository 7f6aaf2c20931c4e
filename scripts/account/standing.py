"""How a found thing stands to the stacks that are alive: part of one, kept on purpose, left over, or not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from scripts.account.found import Found
from scripts.account.ownership import Unknown

LiveStacks = Mapping[str, frozenset[str]]
"""Name of each stack that has something in a cloud → the ids in its state."""


class Standing(StrEnum):
    """What to think of a found thing."""

    LIVE = "live"
    KEPT = "kept"
    LEFTOVER = "leftover"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A found thing with its standing, and why.

    Attributes:
        stack: the live stack it is part of; None for the others.
    """

    found: Found
    standing: Standing
    stack: str | None
    why: str

    @property
    def leaks(self) -> bool:
        """It bills, or may bill, and no stack will ever remove it."""
        return self.standing is Standing.LEFTOVER and self.found.price.usd_per_hour != 0


def judged(found: Found, live: LiveStacks) -> Judged:
    """The standing of one thing."""
    owner = found.owner
    if isinstance(owner, Unknown):
        return Judged(found=found, standing=Standing.UNKNOWN, stack=None, why=owner.why)
    stack = owner.stack or owner.environment
    ids = live.get(stack)
    in_state = found.pulumi_id is None or owner.stack is None or found.pulumi_id in (ids or ())
    if ids is not None and in_state:
        return Judged(found=found, standing=Standing.LIVE, stack=stack, why=owner.why)
    if found.kept:
        return Judged(
            found=found, standing=Standing.KEPT, stack=None, why=f"{owner.why}; outlives its stack on purpose"
        )
    lost = f"stack {stack} is gone" if ids is None else f"not in the state of {stack}"
    return Judged(found=found, standing=Standing.LEFTOVER, stack=None, why=f"{owner.why}; {lost}")
