"""What the launcher will not do, and why, in words."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Refused(Exception):  # noqa: N818 - the word the log uses
    """The launcher will not go on. Carries the exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class BadConfig(ValueError):  # noqa: N818 - the word the log uses
    """Every problem of the configuration at once."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def explain(error: BaseException) -> str:
    """One line for a person."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"no space left on {error.filename or 'the disk'}"
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:400]
