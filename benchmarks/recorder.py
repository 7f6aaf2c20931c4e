"""500 starts at once in a real control plane: `python benchmarks/recorder.py [PODS]`.

Two copies of the recorder, as shipped, watch. Printed: how long until every ledger is kept, whether any is lost or kept
twice, memory and CPU of each copy, and its requests to the API. Everything runs on loopback; the pods are simulated.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cluster.recorder_process import RecorderProcess, install, kept
from tests.cluster.starts_plane import NAMESPACE, StartsPlane, launcher_document
from tests.toolchain.waiting import wait_until

PATIENCE_S = 540.0
NODES = 10
MOST_BYTES = 100_000_000
"""What a recorder may take."""


def main(pods: int) -> int:
    """Runs it once; 0 when every start was kept exactly once by recorders within their memory."""
    with (
        tempfile.TemporaryDirectory() as folder,
        StartsPlane(Path(folder) / "plane", pulling_ms=3000, loading_ms=5000) as plane,
    ):
        for index in range(NODES):
            plane.gpu_node(f"gpu-{index}", pods // NODES + 1)
        install(plane.api)
        plane.launcher.texts["/ledger"] = lambda _: json.dumps(launcher_document(datetime.now(UTC).isoformat()))
        with (
            RecorderProcess(plane, Path(folder) / "one") as one,
            RecorderProcess(plane, Path(folder) / "two") as two,
        ):
            copies = (one, two)
            print(f"{pods} starts at once, {len(copies)} recorders")
            idle = [copy.metric("process_resident_memory_bytes") or 0 for copy in copies]
            start(plane, copies, pods)
            good = told_ledgers(plane, pods)
            told_copies(copies, idle)
            return 0 if good and all(copy.peak_bytes < MOST_BYTES for copy in copies) else 1


def start(plane: StartsPlane, copies: Sequence[RecorderProcess], pods: int) -> None:
    """All at once, until both copies have handled all."""
    began = time.monotonic()
    plane.api.apply(plane.deployment(pods))
    wait_until(lambda: len(plane.ready_pods()) == pods, what="all are Ready", patience_s=PATIENCE_S, every_s=2)
    ready_s = time.monotonic() - began
    wait_until(
        lambda: all((copy.metric("coldstart_recorder_ledgers_total") or 0) >= pods for copy in copies),
        what="both copies have handled all",
        patience_s=PATIENCE_S,
        every_s=1,
    )
    print(f"all Ready after {ready_s:.1f} s, all kept after {time.monotonic() - began:.1f} s")


def told_ledgers(plane: StartsPlane, pods: int) -> bool:
    """What was kept; whether each start was kept exactly once."""
    uids = {pod["metadata"]["uid"] for pod in plane.pods()}
    found = [json.loads(config_map["data"]["ledger.json"]) for config_map in kept(plane.api)]
    recorded = {ledger["uid"] for ledger in found}
    print(f"lost {len(uids - recorded)}, double {len(found) - len(recorded)}")
    events = plane.api.items(f"/api/v1/namespaces/{NAMESPACE}/events")
    pulled = {event["involvedObject"]["uid"] for event in events if event["reason"] == "Pulled"}
    seen = sum(ledger["phases"]["pull"]["seconds"] is not None for ledger in found)
    print(f"the API holds the event of {len(pulled & uids)} pulls; the pull is measured in {seen} ledgers")
    print(f"phases + unaccounted and the wall clock are at most {1000 * max(map(apart_s, found)):.1f} ms apart")
    print(f"a ledger takes {sum(len(json.dumps(ledger)) for ledger in found) / len(found) / 1024:.1f} KiB")
    return recorded == uids and len(found) == pods


def apart_s(ledger: dict[str, Any]) -> float:
    """How far a ledger is from its wall clock."""
    seen = sum(phase["seconds"] or 0 for phase in ledger["phases"].values())
    return abs(seen + ledger["unaccounted_s"] - ledger["wall_clock_s"])


def told_copies(copies: Sequence[RecorderProcess], idle: Sequence[float]) -> None:
    """What each copy took."""
    for name, copy, before in zip(("one", "two"), copies, idle, strict=True):
        asked = {
            method: int(copy.metric("coldstart_recorder_api_requests_total", method=method) or 0)
            for method in ("GET", "POST", "DELETE")
        }
        results = {
            result: int(copy.metric("coldstart_recorder_ledgers_total", result=result) or 0)
            for result in ("written", "present", "failed")
        }
        print(
            f"{name}: peak {copy.peak_bytes / 1e6:.1f} MB (idle {before / 1e6:.1f} MB), CPU {copy.cpu_s:.1f} s, "
            f"requests {asked}, ledgers {results}"
        )


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 500))
