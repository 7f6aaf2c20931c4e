"""`pulumi preview` on the real engine: wall clock of each shipped stack, before its first `up` and with nothing to do.

python -m benchmarks.preview [--runs N]

AWS is the stand-in of the tests, with no latency of its own; the control plane is a real one on this machine. Medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.blueprint import stacks as shipped
from tests.pulumi.conftest import ready_to_use, stage
from tests.pulumi.workspace import Stack, Workspace, copy_of_this_project
from tests.standin.processes import Moto
from tests.toolchain.control_plane import ControlPlane
from tests.toolchain.engines import TOOLS

RUNS = 5
ENVIRONMENT = "dev"


def main(runs: int) -> None:
    """Prints one row for each stack."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Moto(folder / "moto") as moto, ControlPlane(folder / "plane") as plane:
            plane.define(TOOLS / "definitions")
            project = copy_of_this_project(folder / "project")
            workspace = ready_to_use(Workspace(folder / "work", project, moto=moto, plane=plane))
            print(f"{'stack':<24}{'first s':>9}{'again s':>9}{'up s':>7}{'resources':>11}   median of {runs} previews")
            tell(workspace.stack(ENVIRONMENT), runs)
            models = [stack for stack in shipped() if stack != ENVIRONMENT]
            stage(workspace, *models)
            for model in models:
                tell(workspace.stack(model), runs)


def tell(stack: Stack, runs: int) -> None:
    """Previews it, brings it up, previews it again."""
    first = median_s(stack, runs)
    up = stack.up()
    again = median_s(stack, runs)
    created = len(up.changes["create"])
    print(f"{stack.name:<24}{first:>9.1f}{again:>9.1f}{up.duration_s:>7.1f}{created:>11}", flush=True)


def median_s(stack: Stack, runs: int) -> float:
    """Of that many previews, s."""
    return statistics.median(stack.preview().duration_s for _ in range(runs))


def parsed(arguments: Sequence[str] | None = None) -> int:
    """How many runs were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    return parser.parse_args(arguments).runs


if __name__ == "__main__":
    main(parsed())
