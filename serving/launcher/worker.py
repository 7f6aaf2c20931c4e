"""Workers: the launcher again, in a process of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, cast

from serving.launcher.children import Children, kill_group
from serving.launcher.compile_cache import CacheJob, publish, restore
from serving.launcher.download import FillJob
from serving.launcher.fields import json_object
from serving.launcher.fill import fill
from serving.launcher.recorded_answer import AnswerJob, read_answer
from serving.launcher.refusal import Refused, explain
from serving.launcher.s3 import transfer_errors

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence

    from serving.launcher.copies import Lock


def work(request: Mapping[str, Any]) -> dict[str, object]:
    """Does one job, in a worker."""
    job: dict[str, Any] = request["job"]
    match request["verb"]:
        case "fill":
            return fill(FillJob(**job))
        case "restore":
            return restore(CacheJob(**job))
        case "publish":
            return publish(CacheJob(**job))
        case "answer":
            return read_answer(AnswerJob(**job))
        case unknown:
            raise Refused(f"no job named {unknown!r}")


def worker_main() -> int:
    """Reads a job on standard input, prints its result: `{"ok": ...}` or `{"refused": why}`."""
    try:
        result: dict[str, object] = {"ok": work(json.load(sys.stdin))}
    except Refused as error:
        result = {"refused": str(error)}
    except (OSError, ImportError, *_known_errors()) as error:
        result = {"refused": explain(error)}
    sys.stdout.write(json.dumps(result))
    return 0


def _known_errors() -> tuple[type[Exception], ...]:
    """What S3's client raises, where there is one."""
    try:
        return transfer_errors()
    except ImportError:
        return ()


_LOWEST_PRIORITY = 19


class Worker:
    """A job in a process of its own: its memory ends with it, and it can be killed when it takes too long."""

    def __init__(self, program: Sequence[str], children: Children, stopping: threading.Event) -> None:
        self._program, self._children, self._stopping = program, children, stopping

    def stopping(self) -> bool:
        """Whether the launcher is asked to stop."""
        return self._stopping.is_set()

    def run(
        self,
        verb: str,
        job: FillJob | CacheJob | AnswerJob,
        timeout_s: float,
        *,
        lock: Lock | None = None,
        behind_users: bool = False,
    ) -> dict[str, Any]:
        """Runs one job.

        Args:
            verb: `fill`, `restore`, `publish` or `answer`.
            job: its arguments.
            timeout_s: then it is killed.
            lock: stays held until the worker has ended, even if the launcher dies.
            behind_users: at the lowest priority from its first instruction: its imports alone take as long as requests.

        Raises:
            Refused: it failed, took too long, or the launcher is asked to stop; the message says which.
        """
        child = self._children.start(
            [*self._program, "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=() if lock is None else (lock.fd,),
        )
        if behind_users:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, child.pid, _LOWEST_PRIORITY)
        with contextlib.suppress(BrokenPipeError), child.stdin or io.BytesIO() as stdin:
            stdin.write(json.dumps({"verb": verb, "job": dataclasses.asdict(job)}).encode())
        deadline = time.monotonic() + timeout_s
        while not self._children.wait(child, min(0.05, max(0.0, deadline - time.monotonic()))):
            if self.stopping() or time.monotonic() >= deadline:
                kill_group(child)
                self._children.wait(child)
                raise Refused("the pod is being stopped" if self.stopping() else f"not done in {timeout_s:.0f} s")
        with child.stdout or io.BytesIO() as stdout:
            result = json_object(stdout.read())
        if "ok" not in result:
            raise Refused(str(result.get("refused") or f"the {verb} worker ended with {child.returncode}"))
        return cast("dict[str, Any]", result["ok"])
