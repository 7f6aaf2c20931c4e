"""The console command `coldstart`, seen from outside: what it is started with, and the exit code it ends with.

Imports next to nothing: Ctrl-C must be answered before anything slow begins. The verbs are found by `scripts.verbs`.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from scripts import interrupt

if TYPE_CHECKING:
    import click

VERBS = {
    "audit": "What exists in the account, which of it is ours, why, and what it costs",
    "explain": "What a setting means, its default and why",
    "extend": "Move the moment at which a stack's GPU nodes go to zero",
    "image": "What an image's pull costs and why; the same files in layers that pull fast; mirror, build, snapshot",
    "measure": "What a start really took, phase by phase, and which lever was on",
    "new": "Write a model stack file from a plan's chosen instance, revision pinned",
    "pause": "GPU nodes of a stack to zero; weights, cluster and stack stay",
    "pin": "Resolve revision and image digest and write them into the stack file",
    "plan": "What a cold start will take and cost, phase by phase, before anything is bought",
    "preflight": "Can this deployment exist, here, now? Asked before anything is paid for",
    "prices": "The prices that plan and audit count with; --refresh asks AWS",
    "regress": "Fail when a phase has become slower than its baseline beyond noise",
    "rehearse": "The whole chain on this machine, with the real engine: no AWS, no GPU",
    "render": "Everything a stack would create, as files",
    "resume": "The GPU nodes of a paused stack back at their recorded sizes",
    "stage": "One pinned model revision into the weight bucket, verified, all or nothing",
    "teardown": "Destroy a stack in the right order and prove that nothing of it bills",
}
"""Verb → the line that `coldstart --help` shows. The verb `x` is the click command `command` of `scripts.x`."""
READER_LEFT = 141
"""Exit code once nobody reads the output (`| head -1`): what a shell says of a program that SIGPIPE ended.

Not 0: the verb was cut off, and a teardown that was is no success. Not SIGPIPE itself: it would also end a verb whose
network connection breaks, which is to be retried.
"""


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; nothing a person can cause ends in a traceback."""
    try:
        from scripts import verbs  # noqa: PLC0415 - slow: after the entry point listens

        code = verbs.run(arguments)
    except BrokenPipeError:
        return READER_LEFT
    except BaseException as error:
        if not interrupt.is_behind(error):
            raise
        words = interrupt.words(error)
    else:
        if not interrupt.received():
            return code
        words = interrupt.words()  # a library swallowed it: the verb came to an end, and says so itself
    sys.stderr.write(f"{words}\n")
    return interrupt.exit_code()


def __getattr__(name: str) -> click.Group:
    """`cli`, the click group, for whoever wants to call it without a process: imported when asked for."""
    if name == "cli":
        from scripts.verbs import cli  # noqa: PLC0415 - as above

        return cli
    raise AttributeError(name)


def main() -> NoReturn:
    """Entry point of the installed `coldstart`."""
    interrupt.listen()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None where it was closed
            stream.reconfigure(errors="replace")  # a `?` in place of a bar is no reason to die
    sys.exit(_written(run(sys.argv[1:])))


def _written(code: int) -> int:
    """Writes out what is still in the streams' buffers: the interpreter would report a failure in its own words."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            if isinstance(error, BrokenPipeError):
                code = READER_LEFT
            elif stream is sys.stdout:
                sys.stderr.write(f"failed: standard output: {error.strerror}\n")
                code = 1
    return code
