"""Ctrl-C and SIGTERM: `interrupted` and exit code 130 or 143, wherever it comes.

Imports next to nothing, so that it can listen first.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

_AGAIN_S = 0.05
"""An interrupt that got lost is sent again after this."""


class _Signal:
    """What this process knows of being interrupted."""

    received = False
    number = signal.SIGINT
    verb_runs = False


def listen() -> None:
    """Answers Ctrl-C and SIGTERM from now on; not what the process was started to ignore (`nohup`, `&`)."""
    for number, untouched in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is untouched:
            signal.signal(number, _on_signal)
            sys.unraisablehook = _on_unraisable


def verb_begins() -> None:
    """From now on there may be something to clean up: an interrupt is raised, and the process no longer just left."""
    _Signal.verb_runs = True


def received() -> bool:
    """Whether the signal came while a verb ran."""
    return _Signal.received


def exit_code() -> int:
    """What a shell says of a program that the signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + _Signal.number


def is_behind(error: BaseException) -> bool:
    """Whether an error is the signal's doing.

    Not every library lets the exception through: it comes back wrapped, or as an error of the library's own that
    blames the input. So any error is taken for an interrupt once the signal was there.
    """
    return _Signal.received or any(isinstance(each, KeyboardInterrupt) for each in _chain(error))


def words(error: BaseException | None = None) -> str:
    """`interrupted`, and what the verb adds: `raise KeyboardInterrupt("Nothing was written")`."""
    said = (str(each) for each in _chain(error) if isinstance(each, KeyboardInterrupt))
    return ". ".join(["interrupted", *[text for text in said if text][:1]])


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _on_signal(number: int, _frame: FrameType | None) -> None:
    _Signal.number = signal.Signals(number)
    if not _Signal.verb_runs:
        # There is nothing to clean up, and imports may swallow an exception or turn it into one of theirs.
        with contextlib.suppress(OSError):
            os.write(2, b"interrupted\n")
        os._exit(exit_code())
    _Signal.received = True
    logging.disable()  # asyncio logs a traceback of every task that is cut off
    raise KeyboardInterrupt


def _on_unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Python drops what is raised in a finalizer or a weakref's callback: an interrupt is sent once more."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        main = threading.main_thread().ident or 0  # a real signal: it also wakes a thread that waits
        threading.Timer(_AGAIN_S, signal.pthread_kill, (main, _Signal.number)).start()
    else:
        sys.__unraisablehook__(lost)
