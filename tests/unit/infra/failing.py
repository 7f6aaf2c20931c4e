"""Evaluations that fail half-way, and what they leave lying about."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable


def failure_of(call: Callable[[], object]) -> tuple[type[BaseException] | None, str]:
    """What a call fails with, as its type and its words; None if it does not.

    A program that fails leaves coroutines that nobody awaits. They are collected here, not in whatever test comes next.
    """
    failure: tuple[type[BaseException] | None, str] = None, ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the caller says which it must be
            failure = type(error), str(error)
        gc.collect()
    return failure
