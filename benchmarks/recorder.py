"""500 starts at once in a real control plane: `python benchmarks/recorder.py [PODS]`.

Two copies of the recorder, as shipped, watch. Printed: how long until every ledger is kept, whether any is lost or kept
twice, memory and CPU of each copy, and its requests to the API. Everything runs on loopback; the pods are simulated.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cluster.recorder_process import RecorderProcess, install, kept
from tests.cluster.starts_plane import NAMESPACE, StartsPlane, launcher_document
from tests.toolchain.waiting import wait_until

PATIENCE_S = 540.0
NODES = 10


def main(pods: int) -> int:
    """Runs it once; 0 when every start was kept exactly once in less than 100 MB."""
    with tempfile.TemporaryDirectory() as folder, StartsPlane(Path(folder) / "plane", pulling_ms=3000, loading_ms=5000) as plane:
        for index in range(NODES):
            plane.gpu_node(f"gpu-{index}", pods // NODES + 1)
        install(plane.api)
        plane.launcher.texts["/ledger"] = lambda _: json.dumps(launcher_document(datetime.now(UTC).isoformat()))
        copies = [RecorderProcess(plane, Path(folder) / name) for name in ("one", "two")]
        with copies[0] as one, copies[1] as two:
            idle = [copy.metric("process_resident_memory_bytes") or 0 for copy in (one, two)]
            began = time.monotonic()
            plane.api.apply(plane.deployment(pods))
            wait_until(lambda: len(plane.ready_pods()) == pods, what="all are Ready", patience_s=PATIENCE_S, every_s=2)
            ready_s = time.monotonic() - began
            wait_until(
                lambda: all((copy.metric("coldstart_recorder_ledgers_total") or 0) >= pods for copy in (one, two)),
                what="both copies have handled all",
                patience_s=PATIENCE_S,
                every_s=1,
            )
            kept_s = time.monotonic() - began
            uids = {pod["metadata"]["uid"] for pod in plane.pods()}
            found = [json.loads(config_map["data"]["ledger.json"]) for config_map in kept(plane.api)]
            print(f"{pods} starts at once, 2 recorders")
            print(f"all Ready after {ready_s:.1f} s, all kept after {kept_s:.1f} s")
            print(f"lost {len(uids - {one['uid'] for one in found})}, double {len(found) - len({one['uid'] for one in found})}")
            sums = max(
                abs(sum(p["seconds"] or 0 for p in one["phases"].values()) + one["unaccounted_s"] - one["wall_clock_s"])
                for one in found
            )
            missing = sum(one["phases"]["pull"]["seconds"] is None for one in found)
            events = plane.api.items(f"/api/v1/namespaces/{NAMESPACE}/events")
            pulled = {event["involvedObject"]["uid"] for event in events if event["reason"] == "Pulled"}
            print(f"the API holds the event of {len(pulled & uids)} pulls")
            print(f"phases + unaccounted against the wall clock: at most {sums * 1000:.1f} ms apart; pull missing in {missing}")
            size = sum(len(json.dumps(one)) for one in found) / len(found)
            print(f"a ledger takes {size / 1024:.1f} KiB")
            for name, copy, before in zip(("one", "two"), (one, two), idle, strict=True):
                requests = {
                    method: int(copy.metric("coldstart_recorder_api_requests_total", method=method) or 0)
                    for method in ("GET", "POST", "DELETE")
                }
                print(
                    f"{name}: peak {copy.peak_bytes / 1e6:.1f} MB (idle {before / 1e6:.1f} MB), CPU {copy.cpu_s:.1f} s, "
                    f"requests {requests}, written {int(copy.metric('coldstart_recorder_ledgers_total', result='written') or 0)}, "
                    f"present {int(copy.metric('coldstart_recorder_ledgers_total', result='present') or 0)}"
                )
            good = not uids - {one["uid"] for one in found} and len(found) == pods
            return 0 if good and all(copy.peak_bytes < 100e6 for copy in (one, two)) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 500))
