"""A rehearsed pod that runs: what kubelet and Kubernetes would see of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.failure import Failure
from scripts.rehearsal.local_pod import LocalPod

POLL_S = 0.05


class RunningPod:
    """A pod's container as a process group of its own."""

    def __init__(self, pod: LocalPod, folder: Path) -> None:
        self.pod, self.log = pod, folder / "container.log"
        folder.mkdir(parents=True, exist_ok=True)
        for directory in pod.mounts.values():
            directory.mkdir(parents=True, exist_ok=True)
        launcher = _launcher_directory(pod)
        (launcher / "launch.py").write_text(pod.launcher)
        (launcher / "launcher.json").write_text(json.dumps(pod.config, indent=2))
        self.started_at = time.monotonic()
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - the rendered command
                pod.argv,
                env=dict(pod.environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @classmethod
    @contextmanager
    def started(cls, pod: LocalPod, folder: Path) -> Generator[RunningPod]:
        """A pod that is gone at the end, with everything it started."""
        running = cls(pod, folder)
        try:
            yield running
        finally:
            running.end()

    @property
    def pid(self) -> int:
        """The launcher's process."""
        return self._process.pid

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and JSON of one of the launcher's pages; status 0 when nothing answers."""
        connection = http.client.HTTPConnection("127.0.0.1", int(self.pod.config["port"]), timeout=5)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError):
            return 0, {}
        finally:
            connection.close()

    def until(self, condition: Callable[[], bool], what: str, patience_s: float) -> None:
        """Waits for a condition.

        Raises:
            Failure: the pod ended before it, or it didn't come in time; with the end of the container's log.
        """
        deadline = time.monotonic() + patience_s
        while not condition():
            if self._process.poll() is not None:
                raise Failure(f"the pod ended with {self._process.returncode} before {what}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise Failure(f"not {what} within {patience_s:.0f} s:\n{self.tail()}")
            time.sleep(POLL_S)

    def ready(self, patience_s: float) -> dict[str, Any]:
        """Waits for Ready; the ledger.

        Raises:
            Failure: as `until`, or the start was decided against it.
        """

        def decided() -> bool:
            return self.get("/startup")[0] == http.HTTPStatus.OK

        self.until(decided, "decided", patience_s)
        status, document = self.get("/ready")
        if status != http.HTTPStatus.OK:
            raise Failure(f"the pod is not Ready: {document.get('reason')}\n{self.tail()}")
        return self.ledger()

    def ledger(self) -> dict[str, Any]:
        """What /ledger says now."""
        return self.get("/ledger")[1]

    def says(self, text: str) -> bool:
        """Whether the container's log holds a text."""
        return text.encode() in self.log.read_bytes()

    def events(self, name: str) -> list[Mapping[str, Any]]:
        """The launcher's own lines of one kind."""
        found: list[Mapping[str, Any]] = []
        for line in self.log.read_bytes().splitlines():
            if line.startswith(b'{"coldstart": '):
                event: dict[str, Any] = json.loads(line)
                if event["coldstart"] == name:
                    found.append(event)
        return found

    def tail(self, lines: int = 25) -> str:
        """The end of the container's log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def signal(self, signum: int) -> None:
        """What kubelet does when a pod is deleted."""
        self._process.send_signal(signum)

    def wait(self, patience_s: float) -> int:
        """Waits for the container's end; its exit code.

        Raises:
            Failure: it doesn't end.
        """
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise Failure(f"the pod still runs after {patience_s:.0f} s:\n{self.tail()}") from None

    def stop(self, patience_s: float = 90.0) -> int:
        """SIGTERM, and the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(patience_s)

    def end(self) -> None:
        """Ends whatever is left of it, at once."""
        for pid in [*descendants(self.pid), self.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()


def _launcher_directory(pod: LocalPod) -> Path:
    program = next(Path(argument) for argument in pod.argv if argument.endswith("launch.py"))
    program.parent.mkdir(parents=True, exist_ok=True)
    return program.parent


def descendants(pid: int) -> list[int]:
    """Processes below a process, the deepest first."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [found for child in children for found in (*descendants(int(child)), int(child))]
