"""All processes below the launcher."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence


class Children:
    """All processes below this one, the orphaned ones of its children included.

    As a container's first process the launcher inherits every orphan in it; elsewhere it asks for them
    (PR_SET_CHILD_SUBREAPER), so that it behaves the same in a pod with a shared process namespace.
    """

    _PR_SET_CHILD_SUBREAPER = 36

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own: dict[int, subprocess.Popen[bytes]] = {}
        self._ended: dict[int, threading.Event] = {}
        self._some = threading.Event()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(self._PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        threading.Thread(target=self._reap, name="reaper", daemon=True).start()

    def start(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 - Popen's own
        """Starts a process in a session of its own."""
        with self._lock:
            child = cast("subprocess.Popen[bytes]", subprocess.Popen(argv, start_new_session=True, **options))  # noqa: S603 - the configured engine, or this file
            self._own[child.pid] = child
            self._ended[child.pid] = threading.Event()
        self._some.set()
        return child

    def wait(self, child: subprocess.Popen[bytes], timeout_s: float | None = None) -> bool:
        """Waits for a child's end; whether it came in time."""
        return self._ended[child.pid].wait(timeout_s)

    def _reap(self) -> None:
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            except ChildProcessError:
                self._some.clear()
                self._some.wait(0.5)
                continue
            if found is not None:
                self._take(found.si_pid)

    def _take(self, pid: int) -> None:
        with self._lock:
            child = self._own.pop(pid, None)
        if child is None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            return
        child.wait()
        self._ended[pid].set()


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kills a child's whole process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def exit_code_of(child: subprocess.Popen[bytes]) -> int:
    """A child's exit code as a shell gives it: 128 + n when signal n ended it."""
    code = child.returncode
    return 128 - code if code < 0 else code
