"""Real pulls, before and after a repack, and what the simulator said: `python -m tests.images.lab.bench [CASE ...]`.

Each case pulls an image and its repack in turns on a fresh node, a few times, and prints the medians. Paced cases slow
every connection and each layer's unpack to a fixed rate: a many-core node at a small scale, on a machine of two cores.
The others unpack as fast as this machine can, so its processor is what binds. They are larger, since a pull of nothing
takes 0.2 s here, and the simulator's node is calibrated with pulls of a one-layer image that no case uses. `others` is
the share of the processor that other programs took meanwhile: with much of it, own-speed figures say little.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from budget.coefficients import coefficients
from budget.instances import gpu_instance
from budget.scenario import HostCase, PullCase
from scripts.images.codec import Codec
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
CORES = 2
OWN_SPEED_BYTES, CALIBRATION_BYTES = 500 * MB, 250 * MB


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


OWN_SPEED: dict[str, Any] = {
    "unpacked_bytes": OWN_SPEED_BYTES,
    "connection_bytes_s": 20 * MB,
    "unpack_bytes_s": None,
}
CASES = {
    "fat layer, SOCI": Case(layout="fat"),
    "one layer, SOCI": Case(layout="one"),
    "12 even layers, SOCI": Case(layout="even", wish=Wish(layers=12)),
    "fat layer, slow registry": Case(layout="fat", connection_bytes_s=MB // 4, wish=Wish(layers=12)),
    "fat layer, default containerd": Case(
        layout="fat",
        node=NodeSettings(snapshotter="overlayfs", downloads=3),
        connection_bytes_s=2 * MB,
        wish=Wish(layers=12),
    ),
    "own speed, fat layer, SOCI": Case(layout="fat", **OWN_SPEED),
    "own speed, fat layer, SOCI, zstd": Case(layout="fat", wish=Wish(codec="zstd"), **OWN_SPEED),
    "own speed, fat layer, SOCI, 32 layers": Case(layout="fat", wish=Wish(layers=32), **OWN_SPEED),
    "own speed, 12 even layers, SOCI": Case(layout="even", **OWN_SPEED),
    "own speed, fat layer, default containerd": Case(
        layout="fat", node=NodeSettings(snapshotter="overlayfs", downloads=3), **OWN_SPEED
    ),
}


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What unpacking takes on this machine.

    Attributes:
        layer_mb_s: output of one layer's unpack.
        cpu_s_per_gb: of output, all in.
    """

    layer_mb_s: float
    cpu_s_per_gb: float


@dataclass(kw_only=True)
class Pulls:
    """Pulls of one image: seconds, processor time, and the share of the processor that others took."""

    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)

    def add(self, folder: Path, settings: NodeSettings, reference: str) -> None:
        """One more, on a fresh node."""
        busy, own, began = _busy_s(), _own_s(), time.monotonic()
        with PullingNode(folder, settings) as node:
            self.seconds.append(round(node.pull(reference), 3))
        busy, own, passed = _busy_s() - busy, _own_s() - own, time.monotonic() - began
        self.cpu_s.append(own)
        self.others.append(max(0.0, busy - own) / (CORES * passed))


def _busy_s() -> float:
    """Processor time of everything on this machine: user, nice, system, interrupts."""
    ticks = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(ticks[place]) for place in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """Processor time of the nodes that were left."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def pushed(layout: Path, registry: LabRegistry, tag: str) -> str:
    """Copies an image into the registry; where a node pulls it from."""
    copy = [tool("skopeo"), "copy", "--quiet", "--dest-tls-verify=false", f"oci:{layout}:v1"]
    subprocess.run([*copy, f"docker://{registry.push}/lab/image:{tag}"], check=True)
    return f"{registry.pull}/lab/image:{tag}"


def calibrated(folder: Path, codec: Codec) -> Speed:
    """This machine's speed from three pulls of one layer, less what a pull of next to nothing takes."""
    connection = OWN_SPEED["connection_bytes_s"]
    one, nothing = folder / f"calibration-{codec}", folder / "nothing"
    laid_out("one", CALIBRATION_BYTES, codec).write_layout(one)
    laid_out("even", 1).write_layout(nothing)
    with LabRegistry(folder / "registry", connection_bytes_s=connection) as registry:
        full, empty = Pulls(), Pulls()
        places = [(full, pushed(one, registry, "one")), (empty, pushed(nothing, registry, "nothing"))]
        for _ in range(3):
            for pulls, place in places:
                pulls.add(folder / "node", NodeSettings(), place)
    shutil.rmtree(folder / "registry")
    packed = sum(path.stat().st_size for path in (one / "blobs" / "sha256").iterdir())
    download_s = packed / (connection * NodeSettings().downloads)
    unpack_s = statistics.median(full.seconds) - statistics.median(empty.seconds) - download_s
    cpu_s = statistics.median(full.cpu_s) - statistics.median(empty.cpu_s)
    return Speed(layer_mb_s=CALIBRATION_BYTES / MB / unpack_s, cpu_s_per_gb=cpu_s / (CALIBRATION_BYTES / 1e9))


def lab_puller(case: Case, codec: Codec, speeds: Mapping[Codec, Speed]) -> Puller:
    """The lab's node for the simulator."""
    factors, name = coefficients(), "zstd" if codec == "zstd" else "igzip"
    paced = case.unpack_bytes_s is not None
    host = HostCase(
        cores=CORES,
        memory_bytes=24e9,
        network_mb_s=10_000,
        connection_mb_s=case.connection_bytes_s / MB,
        unpack_layer_mb_s=case.unpack_bytes_s / MB if paced else speeds[codec].layer_mb_s,
        unpack_cpu_s_per_gb=factors[f"unpack_{name}_cpu_s_per_gb"] if paced else speeds[codec].cpu_s_per_gb,
        disk_mb_s=10_000,
        dirty_bytes=1e13,
    )
    made = puller(gpu_instance("g6e.2xlarge"), host=host)
    pull = PullCase(downloads=case.node.downloads, unpacks=case.node.unpacks, chunk_bytes=2**20, discard=True)
    return replace(made, scenario=replace(made.scenario, pull=pull), tuned=False)


def run(name: str, case: Case, folder: Path, speeds: Mapping[Codec, Speed]) -> dict[str, object]:
    """Measures one case."""
    layout = folder / f"{case.layout}-{case.unpacked_bytes}"
    if not layout.exists():
        laid_out(case.layout, case.unpacked_bytes).write_layout(layout)
    index, codecs = LayerIndex(folder / "index"), {"before": "gzip", "after": case.wish.codec or "gzip"}
    nodes = {tag: lab_puller(case, codec, speeds) for tag, codec in codecs.items()}
    with (
        LabRegistry(folder / "registry", connection_bytes_s=case.connection_bytes_s) as registry,
        HttpRegistry() as client,
    ):
        pushed(layout, registry, "before")
        source = source_of(f"oci:{layout}:v1", client)
        target = target_of(f"{registry.push}/lab/image:after", client)
        made = repack(source, target, "amd64", nodes["after"], case.wish, index=index, meter=Meter)
        predicted = {}
        for tag, node in nodes.items():
            there = source_of(f"{registry.push}/lab/image:{tag}", client)
            found = inspect(there, there.image("amd64"), "amd64", node, index=index, meter=lambda _: None)
            estimate = found.soci if case.node.snapshotter == "soci" else found.containerd
            predicted[tag] = estimate.expected_s
        settings = replace(case.node, unpack_bytes_s=case.unpack_bytes_s)
        measured = {"before": Pulls(), "after": Pulls()}
        for _ in range(case.rounds):
            for tag, pulls in measured.items():
                pulls.add(folder / "node", settings, f"{registry.pull}/lab/image:{tag}")
    shutil.rmtree(folder / "registry")
    medians = {tag: statistics.median(pulls.seconds) for tag, pulls in measured.items()}
    return {
        "case": name,
        "layers_before": len(made.before),
        "layers_after": len(made.after),
        "cut": not made.unchanged,
        "measured_s": {tag: pulls.seconds for tag, pulls in measured.items()},
        "median_s": medians,
        "predicted_s": {tag: round(value, 3) for tag, value in predicted.items()},
        "off": {tag: round(predicted[tag] / medians[tag] - 1, 3) for tag in medians},
        "faster": round(medians["before"] / medians["after"], 2),
        "others": {tag: [round(share, 2) for share in pulls.others] for tag, pulls in measured.items()},
    }


def main(names: list[str]) -> int:
    """Runs the cases whose name begins with one of these and prints one JSON line each."""
    LAB.mkdir(parents=True, exist_ok=True)
    asked = {name: case for name, case in CASES.items() if not names or name.startswith(tuple(names))}
    with tempfile.TemporaryDirectory(dir=LAB) as temporary:
        folder, speeds = Path(temporary), dict[Codec, Speed]()
        if any(case.unpack_bytes_s is None for case in asked.values()):
            codecs: tuple[Codec, ...] = ("gzip", "zstd")
            speeds = {codec: calibrated(folder, codec) for codec in codecs}
            print(json.dumps({codec: vars(speed) for codec, speed in speeds.items()}), flush=True)  # noqa: T201 - a console program
        for name, case in asked.items():
            print(json.dumps(run(name, case, folder, speeds)), flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
