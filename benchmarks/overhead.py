"""What the launcher adds to a start: over an engine whose every start takes the same time, which a real one's does not.

python -m benchmarks.overhead [--runs N] [--seconds S]

The engine is the scripted one of the tests: vLLM's log lines in their phases, then its API. With the launcher: process
start to 200 on /ready. Alone: process start to the end of the same warm-up and answer check, asked from outside. Both
take turns; medians, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

from serving.launcher.answer import check_answer
from serving.launcher.config import Config
from serving.launcher.engine_api import EngineApi
from serving.launcher.facts import WarmupFacts
from serving.launcher.warmup import Warmup
from tests.unit.serving.pod import COMPILED, FAKE_ENGINE, LOAD, LOADED, Pod, launcher_config

LATENCY_S = 0.05
"""Of every answer."""
LINE = "INFO 11-30 01:00:00 [worker.py:1] a line as long as those of vLLM are on average, more or less\n"
LINES = 300
"""Log lines of a start of vLLM 0.32 that the launcher reads and passes on."""
LOOK_S = 0.01


def script(config: dict[str, Any], seconds: float) -> dict[str, Any]:
    """A start of that many seconds, a third in each phase."""
    talk = "INFO 11-30 01:00:00 [worker.py:1] a line as long as vLLM's are on average, more or less\n"
    steps: list[list[object]] = [["out", talk * LINES]]
    for line in (LOAD, LOADED, COMPILED):
        steps.append(["pause", seconds / 3])
        steps.append(["out", line])
    return {"steps": steps, "port": config["engine_port"], "latencies_s": [LATENCY_S]}


def with_launcher(folder: Path, seconds: float) -> float:
    """Process start to Ready, s."""
    config = launcher_config()
    began = time.monotonic()
    with Pod.started(folder, config, script=script(config, seconds)) as pod:
        while pod.get("/ready")[0] != HTTPStatus.OK:
            time.sleep(LOOK_S)
        return time.monotonic() - began


def alone(folder: Path, seconds: float) -> float:
    """Process start to the end of the warm-up, s."""
    config = launcher_config()
    folder.mkdir()
    (folder / "script.json").write_text(json.dumps(script(config, seconds)))
    began = time.monotonic()
    argv = [sys.executable, str(FAKE_ENGINE), "--script", str(folder / "script.json")]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as engine:
        try:
            parsed = Config.from_json(config)
            api = EngineApi(parsed.engine_port, parsed.served_model_name)
            while api.health(1.0) != HTTPStatus.OK:
                time.sleep(LOOK_S)
            Warmup(api, parsed.warmup, WarmupFacts(), lambda: False).run()
            check_answer(api, None, 120.0)
            return time.monotonic() - began
        finally:
            engine.kill()


def main(runs: int, seconds: float) -> None:
    """Prints both and their difference."""
    ways = {"with the launcher": with_launcher, "alone": alone}
    found: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as work:
        for run in range(runs):
            for name, way in ways.items():
                found[name].append(way(Path(work) / f"{name}-{run}", seconds))
    for name, values in found.items():
        print(f"{name:<18}{statistics.median(values):8.3f} s   ({min(values):.3f} to {max(values):.3f}, {runs} runs)")
    middle, bare = (statistics.median(found[name]) for name in ways)
    print(f"overhead of the medians: {middle - bare:.3f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=6.0, help="that the engine's own start takes")
    asked = parser.parse_args()
    main(asked.runs, asked.seconds)
