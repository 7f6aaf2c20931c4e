"""Real pulls, before and after a repack, and what the simulator said: `python -m tests.images.lab.bench [CASE ...]`.

Each case pulls an image and its repack in turns on a fresh node, a few times, and prints the medians. One layer's
unpack and every connection are slowed to a fixed rate: a many-core node at a small scale, on a machine of two cores.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from budget.instances import gpu_instance
from budget.scenario import HostCase, PullCase
from scripts.images.index import LayerIndex
from scripts.images.inspection import inspect
from scripts.images.places import source_of, target_of
from scripts.images.prediction import Puller, puller
from scripts.images.progress import Meter
from scripts.images.repack import Wish, repack
from scripts.registry import HttpRegistry
from tests.images.lab.build import LAB, tool
from tests.images.lab.content import laid_out
from tests.images.lab.node import NodeSettings, PullingNode
from tests.images.lab.registry import LabRegistry

MB = 1_000_000
IGZIP_CPU_S_PER_GB = 6.2
"""Of output, all in, as measured on two cores with igzip."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One comparison.

    Attributes:
        unpacked_bytes: of the image.
        connection_bytes_s: each connection.
        unpack_bytes_s: each layer's unpack; None is the machine's own speed.
        wish: how it is cut again.
    """

    layout: str
    unpacked_bytes: int = 150 * MB
    connection_bytes_s: int = int(1.25 * MB)
    unpack_bytes_s: int | None = 6 * MB
    node: NodeSettings = field(default_factory=NodeSettings)
    wish: Wish = field(default_factory=Wish)
    rounds: int = 3


CASES = {
    "fat layer, SOCI": Case(layout="fat"),
    "one layer, SOCI": Case(layout="one"),
    "12 even layers, SOCI": Case(layout="even", wish=Wish(layers=12)),
    "fat layer, SOCI, zstd": Case(
        layout="fat", wish=Wish(codec="zstd"), unpack_bytes_s=None, connection_bytes_s=8 * MB
    ),
    "fat layer, slow registry": Case(layout="fat", connection_bytes_s=MB // 4, wish=Wish(layers=12)),
    "fat layer, SOCI, own speed": Case(layout="fat", unpack_bytes_s=None, connection_bytes_s=20 * MB),
    "fat layer, default containerd": Case(
        layout="fat",
        node=NodeSettings(snapshotter="overlayfs", downloads=3),
        connection_bytes_s=2 * MB,
        wish=Wish(layers=12),
    ),
}


def lab_puller(case: Case) -> Puller:
    """The lab's node for the simulator."""
    own = case.unpack_bytes_s is None
    host = HostCase(
        cores=2,
        memory_bytes=24e9,
        network_mb_s=10_000,
        connection_mb_s=case.connection_bytes_s / MB,
        unpack_layer_mb_s=215 if own else case.unpack_bytes_s / MB,
        unpack_cpu_s_per_gb=IGZIP_CPU_S_PER_GB,
        disk_mb_s=10_000,
        dirty_bytes=1e13,
    )
    made = puller(gpu_instance("g6e.2xlarge"), host=host)
    pull = PullCase(downloads=case.node.downloads, unpacks=case.node.unpacks, chunk_bytes=2**20, discard=True)
    return replace(made, scenario=replace(made.scenario, pull=pull), tuned=False)


def run(name: str, case: Case, folder: Path) -> dict[str, object]:
    """Measures one case."""
    layout = folder / f"{case.layout}-{case.unpacked_bytes}"
    if not layout.exists():
        laid_out(case.layout, case.unpacked_bytes).write_layout(layout)
    index, node = LayerIndex(folder / "index"), lab_puller(case)
    with (
        LabRegistry(folder / "registry", connection_bytes_s=case.connection_bytes_s) as registry,
        HttpRegistry() as client,
    ):
        copy = [tool("skopeo"), "copy", "--quiet", "--dest-tls-verify=false", f"oci:{layout}:v1"]
        subprocess.run([*copy, f"docker://{registry.push}/lab/image:before"], check=True)
        source = source_of(f"oci:{layout}:v1", client)
        target = target_of(f"{registry.push}/lab/image:after", client)
        made = repack(source, target, "amd64", node, case.wish, index=index, meter=Meter)
        predicted = {}
        for tag in ("before", "after"):
            there = source_of(f"{registry.push}/lab/image:{tag}", client)
            found = inspect(there, "amd64", node, index=index, meter=lambda _: None)
            estimate = found.soci if case.node.snapshotter == "soci" else found.containerd
            predicted[tag] = estimate.expected_s
        settings = replace(case.node, unpack_bytes_s=case.unpack_bytes_s)
        measured: dict[str, list[float]] = {"before": [], "after": []}
        for _ in range(case.rounds):
            for tag, seconds in measured.items():
                with PullingNode(folder / "node", settings) as puller_:
                    seconds.append(round(puller_.pull(f"{registry.pull}/lab/image:{tag}"), 3))
    shutil.rmtree(folder / "registry")
    medians = {tag: statistics.median(seconds) for tag, seconds in measured.items()}
    return {
        "case": name,
        "layers_before": len(made.before),
        "layers_after": len(made.after),
        "measured_s": measured,
        "median_s": medians,
        "predicted_s": {tag: round(value, 3) for tag, value in predicted.items()},
        "off": {tag: round(predicted[tag] / medians[tag] - 1, 3) for tag in medians},
        "faster": round(medians["before"] / medians["after"], 2),
    }


def main(names: list[str]) -> int:
    """Runs the cases and prints one JSON line each."""
    LAB.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=LAB) as folder:
        for name, case in CASES.items():
            if not names or name in names:
                print(json.dumps(run(name, case, Path(folder))), flush=True)  # noqa: T201 - a console program
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
