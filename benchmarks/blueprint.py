"""`make bench`: what offline evaluation and the demo take, in seconds and memory; medians, on this machine.

python -m benchmarks.blueprint
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RUNS = 5
ONE_STACK = """
import importlib, json, resource, sys, time
started = time.perf_counter()
from infra import program
from infra.offline import evaluate
before = set(sys.modules)
for name in sys.argv[2:]:  # both SDKs import most of themselves when they are first used
    importlib.import_module(name)
imported = time.perf_counter()
evaluate(sys.argv[1])
first = time.perf_counter()
late = [name for name in sys.modules if name not in before and name.startswith("pulumi")]
evaluate(sys.argv[1])
again = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
times = {"import_s": imported - started, "first_s": first - imported, "again_s": again - first}
print(json.dumps({"figures": times | {"peak_bytes": peak}, "late": late}))
"""


def stacks() -> list[str]:
    return sorted(path.name.split(".")[1] for path in (ROOT / "infra" / "stacks").glob("Pulumi.*.yaml"))


def one_stack(stack: str) -> dict[str, float]:
    """Medians of one process for each run, which imports everything that a first process needed, then evaluates."""
    late = _process(stack, [])["late"]
    runs = [_process(stack, late)["figures"] for _ in range(RUNS)]
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def _process(stack: str, imports: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-c", ONE_STACK, stack, *imports]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)


def demo() -> tuple[float, float]:
    """Wall clock and peak memory of `make demo` once the virtual environment is there."""
    times: list[float] = []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as out:
            started = time.perf_counter()
            command = [str(Path(sys.executable).with_name("coldstart")), "render", "--all", "-o", out]
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
            times.append(time.perf_counter() - started)
    return statistics.median(times), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def main() -> None:
    print(f"{'stack':<22}{'import s':>10}{'first s':>10}{'again s':>10}{'peak MiB':>10}   median of {RUNS}")
    for stack in stacks():
        figures = one_stack(stack)
        print(
            f"{stack:<22}{figures['import_s']:>10.2f}{figures['first_s']:>10.2f}{figures['again_s']:>10.2f}"
            f"{figures['peak_bytes'] / 2**20:>10.0f}"
        )
    seconds, peak = demo()
    print(f"{'make demo':<22}{seconds:>10.2f} s wall clock{peak / 2**20:>18.0f}")


if __name__ == "__main__":
    main()
