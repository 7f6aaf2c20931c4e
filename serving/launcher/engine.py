"""The engine's process."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import threading
from typing import IO, TYPE_CHECKING

from serving.launcher.children import Children, exit_code_of, kill_group
from serving.launcher.engine_log import EngineLog, LineSplitter
from serving.launcher.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from serving.launcher.console import Console


class Engine:
    """The engine's process: its streams are passed through and read."""

    def __init__(self, children: Children, console: Console, log: EngineLog, argv: Sequence[str]) -> None:
        self._children, self.log = children, log
        self._settled = False
        try:
            self.process = children.start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            code = 127 if error.errno == errno.ENOENT else 126
            raise Refused(f"the engine can't be started: {argv[0]}: {error.strerror}", code) from error
        self._pumps = [
            threading.Thread(target=self._pump, args=(console, pipe, fd), name=f"pump-{fd}", daemon=True)
            for pipe, fd in ((self.process.stdout, 1), (self.process.stderr, 2))
        ]
        for pump in self._pumps:
            pump.start()

    def _pump(self, console: Console, pipe: IO[bytes], fd: int) -> None:
        splitter = LineSplitter()
        while chunk := os.read(pipe.fileno(), 65536):
            console.pass_through(fd, chunk)
            for line in splitter.feed(chunk):
                self.log.read(line)
        for line in splitter.feed(b"\n"):
            self.log.read(line)
        pipe.close()

    def send(self, signum: int) -> None:
        """Forwards a signal to the engine's main process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signum)  # Popen's own send_signal would reap the child behind the reaper's back

    def ended(self, timeout_s: float = 0.0) -> bool:
        """Whether the engine is gone, waiting up to `timeout_s` for it."""
        return self._children.wait(self.process, timeout_s)

    def settle(self) -> int:
        """After the end: the rest of its output, no process of its group left, its exit code."""
        if self._settled:
            return exit_code_of(self.process)
        self._settled = True
        for patience_s in (2.0, 2.0):
            for pump in self._pumps:
                pump.join(patience_s)
            if not any(pump.is_alive() for pump in self._pumps):
                break
            kill_group(self.process)
        kill_group(self.process)
        return exit_code_of(self.process)
