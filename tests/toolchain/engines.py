"""Where the built engines are, and how the tests start one of them as a process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.rehearsal.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(os.environ.get("COLDSTART_TOOLS", ROOT / ".cache" / "tools"))
"""The folder that `make tools` fills."""


class MissingEngineError(RuntimeError):
    """A binary that the tests need isn't built."""


def engine(name: str) -> Path:
    """The binary of that name: built into TOOLS, else the user's own on PATH.

    Raises:
        MissingEngineError: it's in neither place.
    """
    built = TOOLS / "bin" / name
    if built.exists():
        return built
    installed = shutil.which(name)
    if installed is None:
        raise MissingEngineError(f"{name} is neither in {TOOLS / 'bin'} nor on PATH. Run `make tools`.")
    return Path(installed)


def free_port() -> int:
    """A loopback port that nobody listens on at this moment."""
    return free_ports(1)[0]


class Server:
    """A child process that runs until it's stopped.

    It leads a process group of its own, so that Ctrl-C reaches only the tests, which then stop their servers in
    order. If the tests themselves are killed the kernel ends the child (setpriv, of util-linux).
    """

    def __init__(self, name: str, argv: Sequence[str], *, folder: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        setpriv = shutil.which("setpriv")
        guard = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*guard, *argv],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def check(self) -> None:
        """Raises RuntimeError, with the end of its log, if it has ended by itself."""
        if self._process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with exit code {self._process.returncode}:\n{self.tail()}")

    def tail(self, lines: int = 20) -> str:
        """The end of what it printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, *, patience_s: float = 10.0) -> None:
        """Asks it to end, then insists."""
        if self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
