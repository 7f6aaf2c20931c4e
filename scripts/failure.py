"""A failure that is nobody's typing mistake: the world refused. The console command exits with 1."""

from __future__ import annotations


class Failure(Exception):  # noqa: N818 - a failure is what it is called in the output
    """Something went wrong outside the input; the message says what, where, and what to do."""
