"""A launcher as a pod runs it: the one bundled file, in a process of its own, over any engine command."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serving.launcher import bundle
from tests.toolchain.engines import free_port
from tests.toolchain.waiting import wait_until

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")
PHASES = ("start", "weights", "engine", "warmup")
LABELS = {"model": "acme/tiny", "revision": "a" * 40, "instance": "g6.xlarge", "image": "sha256:" + "b" * 64}

_HEAD = "(EngineCore pid=1) INFO 11-30 01:00:00 [runner.py:1] "
LOAD = f"{_HEAD}Starting to load model /models/tiny...\n"
LOADED = f"{_HEAD}Model loading took 14.99 GiB memory and 0.010000 seconds\n"
COMPILED = f"{_HEAD}saved AOT compiled function to /cache/vllm/x/model\n"
CACHED = f"{_HEAD}Directly load AOT compilation from path /cache/vllm/x/model\n"
STEPS = (("out", LOAD), ("out", LOADED), ("out", COMPILED))
"""A start in which every phase can be told."""


def free_ports() -> tuple[int, int]:
    """Two different ones."""
    first = free_port()
    while (second := free_port()) == first:
        pass
    return first, second


def launcher_config(**changes: Any) -> dict[str, Any]:
    """A configuration that is right; `changes` replace its members."""
    port, engine_port = free_ports()
    config: dict[str, Any] = {
        "format": 1,
        "port": port,
        "engine_port": engine_port,
        "labels": dict(LABELS),
        "served_model_name": "tiny",
        "gpus": 0,
        "budget": {phase: {"low_s": 1.0, "expected_s": 2.0, "high_s": 4.0} for phase in PHASES},
        "weights": {"paths": [{"kind": "stream", "source": "s3://bucket/tiny/", "engine_args": ["s3://bucket/tiny/"]}]},
        "warmup": {
            "prompt_tokens": [4, 64],
            "batch_sizes": [1, 2],
            "output_tokens": 4,
            "completion": True,
            "chat": True,
            "stream": True,
            "window": 3,
            "tolerance": 10.0,
            "cap_s": 30,
        },
        "answer": None,
        "compile_cache": None,
        "drain": {"timeout_s": 60},
    }
    return config | changes


class Pod:
    """A launcher that was started, and what it says."""

    def __init__(self, folder: Path, config: Mapping[str, Any], engine: Sequence[str], **options: Any) -> None:
        self.config = config
        self.folder = folder
        program = folder / "launch.py"
        program.write_text(bundle.source())
        (folder / "launcher.json").write_text(json.dumps(config))
        python = options.pop("python", sys.executable)
        argv = [str(python), str(program), "--config", str(folder / "launcher.json"), "--", *engine]
        self._out, self._err = (folder / "stdout").open("wb"), (folder / "stderr").open("wb")
        self.process = subprocess.Popen(argv, stdout=self._out, stderr=self._err, start_new_session=True, **options)

    @classmethod
    @contextmanager
    def started(
        cls,
        folder: Path,
        config: Mapping[str, Any] | None = None,
        *,
        script: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Generator[Pod]:
        """A pod over the fake engine, gone at the end."""
        folder.mkdir(parents=True, exist_ok=True)
        chosen = config or launcher_config()
        document = {"steps": STEPS, "port": chosen["engine_port"], **(script or {})}
        (folder / "script.json").write_text(json.dumps(document))
        engine = [sys.executable, str(FAKE_ENGINE), "--script", str(folder / "script.json"), "{weights}"]
        pod = cls(folder, chosen, options.pop("engine", engine), **options)
        try:
            yield pod
        finally:
            pod.close()

    def close(self) -> None:
        """Ends everything that may be left of it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for stream in (self._out, self._err):
            stream.close()

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of one of the launcher's pages; status 0 when it doesn't answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.config["port"], timeout=5)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def ledger(self) -> dict[str, Any]:
        """The ledger, once it can be had."""
        return json.loads(wait_until(lambda: self.get("/ledger")[1], what=self.said))

    def until(self, path: str, status: int, *, patience_s: float = 60.0) -> dict[str, Any]:
        """Waits for a page to have a status; its document."""

        def asked() -> dict[str, Any] | None:
            if self.process.poll() is not None:
                raise AssertionError(f"the launcher ended with {self.process.returncode}:\n{self.said()}")
            found, body = self.get(path)
            return json.loads(body) if found == status else None

        return wait_until(asked, what=self.said, patience_s=patience_s)

    def ended(self, *, patience_s: float = 60.0) -> int:
        """Waits for its end; its exit code."""
        try:
            return self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running:\n{self.said()}") from None

    def stdout(self) -> bytes:
        return (self.folder / "stdout").read_bytes()

    def stderr(self) -> bytes:
        return (self.folder / "stderr").read_bytes()

    def said(self) -> str:
        """Everything, for an error."""
        return (self.stdout() + self.stderr()).decode(errors="replace")[-6000:]

    def events(self, name: str) -> list[dict[str, Any]]:
        """The launcher's own lines of one kind."""
        found: list[dict[str, Any]] = []
        for line in (self.stdout() + b"\n" + self.stderr()).split(b"\n"):
            if line.startswith(b'{"coldstart": '):
                event = json.loads(line)
                if event["coldstart"] == name:
                    found.append(event)
        return found

    def signal(self, signum: int) -> None:
        self.process.send_signal(signum)


def zombies_of(pid: int) -> list[int]:
    """Ended processes that their parent has not taken leave of."""
    found: list[int] = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "Z" and int(fields[1]) == pid:
            found.append(int(status.parent.name))
    return found


def environment(**values: str) -> dict[str, str]:
    """This process's environment with some values changed."""
    return os.environ | values
