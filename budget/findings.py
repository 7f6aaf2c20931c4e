"""Something a plan has to say about a scenario, with a level and a remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning", "info"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing found.

    Attributes:
        code: stable, for machines.
        level: an `error` means that it does not fit.
        message: what, with numbers.
        fix: the nearest change that mends it; empty when there is nothing to mend.
    """

    code: str
    level: Level
    message: str
    fix: str = ""
