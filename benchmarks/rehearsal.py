"""What the launcher costs and what its levers are worth, on the real engine: `make bench-rehearsal`.

One part of it: `python -m benchmarks.rehearsal PART [--runs N] [--gigabytes G]`.

Parts: `launcher` (container start to Ready, against the engine alone with the same warm-up; memory; the first request
after Ready with and without the warm-up; how well the ledger sums), `cache` (the engine phase with the compile cache
restored against a cold one), `node-cache` (the weights phase of a node's first and second pod behind a slow S3),
`weights` (random safetensors, 4 GB unless said otherwise, streamed against one connection and then loaded, behind a
limit per connection). Runs of what is compared take turns; medians are printed, with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from benchmarks.pacing import Relay
from infra.specs import model_specs
from infra.stack_file import read
from scripts.rehearsal.engine_env import FOLDER, EngineEnv, engine_env
from scripts.rehearsal.local_pod import LocalPod
from scripts.rehearsal.pod import RunningPod, descendants
from scripts.rehearsal.site import Site, changed, open_site
from scripts.rehearsal.starts import READY_WITHIN_S, ask, publication
from scripts.rehearse import DEFAULT_STACK
from serving.engine import STREAMER_RETRY_S
from serving.launcher.answer import check_answer
from serving.launcher.command import engine_arguments
from serving.launcher.config import Config
from serving.launcher.engine_api import EngineApi
from serving.launcher.facts import WarmupFacts
from serving.launcher.warmup import Warmup
from serving.manifests import objects
from tests.aws.made_models import header

RUNS = 5
GB = 10**9
WEIGHTS_MB_S = 10.0
"""Of one connection in `weights`: far below what this machine serves, so that connections decide, not processors."""
WEIGHTS_CLIENTS = "8"
"""Each opens several connections. With 32, SeaweedFS on two cores gives up on reads that wait for seconds, and answers
200 with no content, which the streamer takes for a broken object."""
NODE_CACHE_MB_S = 1.0
"""Of one connection in `node-cache`: the tiny model then takes seconds, as a real one does at real rates."""

WITH = "with the launcher: start to Ready, s"
ALONE = "the engine alone, same warm-up: start to warm, s"

Samples = defaultdict[str, list[float]]


@contextmanager
def opened() -> Generator[Site]:
    """The site of `coldstart rehearse`."""
    stack = read(DEFAULT_STACK)
    if stack.model is None:
        raise ValueError(f"{DEFAULT_STACK} is no model stack")
    rendered = objects(model_specs(stack, stack.model).serving)
    with (
        tempfile.TemporaryDirectory(prefix="coldstart-bench-") as folder,
        open_site(engine_env(FOLDER), Path(folder), rendered) as site,
    ):
        yield site


def primed(site: Site) -> None:
    """A first start, so that imports are compiled and the compile cache is kept."""
    with RunningPod.started(site.fresh_pod(), site.folder / "prime") as running:
        publication(running, running.ready(READY_WITHIN_S))
        running.stop()


def launcher(site: Site, runs: int) -> Samples:
    """The launcher against the engine alone; both find the compile cache on their disk, as after a restart."""
    found: Samples = defaultdict(list)
    primed(site)
    keep = site.folder / "kept-cache"
    shutil.copytree(site.pod().mounts["/cache"], keep)
    for _ in range(runs):
        _with_launcher(site, keep, found)
        _engine_alone(site, keep, found, warmed=True)
        _engine_alone(site, keep, found, warmed=False)
    return found


def _placed(site: Site, keep: Path) -> LocalPod:
    pod = site.fresh_pod()
    shutil.copytree(keep, pod.mounts["/cache"])
    return pod


def _with_launcher(site: Site, keep: Path, found: Samples) -> None:
    pod = _placed(site, keep)
    with RunningPod.started(pod, site.folder / "with") as running:
        running.until(lambda: running.get("/ready")[0] == HTTPStatus.OK, "Ready", READY_WITHIN_S)
        outside_s = time.monotonic() - running.started_at
        ledger = running.ledger()
        latencies = ask(site, pod)["latencies_s"]
        found[WITH].append(ledger["total_s"])
        found["of it before the engine is started, s"].append(ledger["segments"][0]["end_s"])
        found["the launcher's peak memory, MB"].append(_peak_mb(running.pid))
        found["first request after Ready / steady median"].append(latencies[0] / statistics.median(latencies[1:]))
        found["phases against the total, s"].append(abs(sum(ledger["phases_s"].values()) - ledger["total_s"]))
        found["the total against a clock outside, s"].append(abs(outside_s - ledger["total_s"]))
        running.stop()


def _peak_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def _engine_alone(site: Site, keep: Path, found: Samples, *, warmed: bool) -> None:
    """The engine's own command, and the same warm-up from outside; or none."""
    pod = _placed(site, keep)
    config = Config.from_json(pod.config)
    argv = list(pod.argv)
    command = engine_arguments(argv[argv.index("--") + 1 :], config.paths[0], None)
    began = time.monotonic()
    with Path(site.folder / "alone.log").open("wb") as log:
        engine = subprocess.Popen(
            [str(site.env.python.parent / command[0]), *command[1:]],
            env=dict(pod.environment),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        api = EngineApi(config.engine_port, config.served_model_name)
        while api.health(1.0) != 200:  # noqa: PLR2004 - HTTP
            if engine.poll() is not None:
                raise RuntimeError((site.folder / "alone.log").read_text()[-2000:])
            time.sleep(0.02)
        if warmed:
            Warmup(api, config.warmup, WarmupFacts(), lambda: False).run()
            check_answer(api, None, 120.0)
            found[ALONE].append(time.monotonic() - began)
        else:
            latencies = ask(site, pod)["latencies_s"]
            found["without a warm-up: first request / steady median"].append(
                latencies[0] / statistics.median(latencies[1:])
            )
    finally:
        for pid in [*descendants(engine.pid), engine.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        engine.wait()


def cache(site: Site, runs: int) -> Samples:
    """The engine phase, restore included."""
    found: Samples = defaultdict(list)
    primed(site)
    for _ in range(runs):
        cold = _ledger(site, "cold", changed(site.fresh_pod(), compile_cache=None))
        restored = _ledger(site, "restored", site.fresh_pod())
        kept = restored["compile_cache"]
        if kept["hit"] is not True:
            raise RuntimeError(f"no hit: {kept}")
        found["engine phase, cold, s"].append(cold["phases_s"]["engine"])
        found["engine phase, restored, s"].append(restored["phases_s"]["engine"])
        found["of which the restore, s"].append(kept["restore_s"])
        found["archive, MB"].append(kept["archive_bytes"] / 1e6)
        found["whole start, cold, s"].append(cold["total_s"])
        found["whole start, restored, s"].append(restored["total_s"])
    return found


def _ledger(site: Site, name: str, pod: LocalPod) -> Mapping[str, Any]:
    """The ledger of one start."""
    with RunningPod.started(pod, site.folder / name) as running:
        ledger = running.ready(READY_WITHIN_S)
        running.stop()
    return ledger


def node_cache(site: Site, runs: int) -> Samples:
    """The weights phase of the first and the second pod of a node, S3 behind a limit per connection."""
    found: Samples = defaultdict(list)
    primed(site)
    with Relay.running(site.store.port, NODE_CACHE_MB_S) as relay:
        for _ in range(runs):
            directory = site.folder / "node-cache"
            shutil.rmtree(directory, ignore_errors=True)
            for which in ("first", "second"):
                pod = site.fresh_pod(endpoint=relay.endpoint)
                pod = changed(pod, weights=_node_cached(site, pod, directory))
                ledger = _ledger(site, which, pod)
                found[f"weights phase, {which} pod, s"].append(ledger["phases_s"]["weights"])
    return found


def _node_cached(site: Site, pod: LocalPod, directory: Path) -> dict[str, Any]:
    path = {
        "kind": "node-cache",
        "source": pod.config["weights"]["paths"][0]["source"],
        "engine_args": ["{dir}", "--load-format", "safetensors"],
        "dir": str(directory),
        "limit_bytes": GB,
        "manifest": site.staged.model.manifest_uri(site.staged.bucket),
        "fill_timeout_s": 300,
        "connections": 8,
    }
    return {"paths": [path]}


def weights(site: Site, runs: int, *, total_bytes: int) -> Samples:
    """Random safetensors: the streamer alone against one connection and a load from disk."""
    found: Samples = defaultdict(list)
    bucket, prefix = "random-weights", "models/random/"
    site.store.client().create_bucket(Bucket=bucket)
    files = 4
    for index in range(files):
        path = site.folder / f"model-{index}.safetensors"
        _random_safetensors(path, total_bytes // files)
        site.store.client().upload_file(str(path), bucket, f"{prefix}{path.name}")
        path.unlink()
    with Relay.running(site.store.port, WEIGHTS_MB_S) as relay:
        environment = {
            **os.environ,
            **site.store.environment(relay.endpoint),
            "RUNAI_STREAMER_OBJ_CONCURRENCY": WEIGHTS_CLIENTS,
            "RUNAI_STREAMER_S3_TIMEOUT": str(STREAMER_RETRY_S),  # as rendered
        }
        # One connection's time is the limit's and hardly varies, and takes minutes: it is measured less often.
        for way, times in (("streamed", runs), ("downloaded", max(1, runs // 5))):
            for _ in range(times):
                found[f"{way}, s"].append(_read(site.env, way, bucket, prefix, site.folder, environment, total_bytes))
    return found


def _read(
    env: EngineEnv, way: str, bucket: str, prefix: str, folder: Path, environment: dict[str, str], total_bytes: int
) -> float:
    argv = [str(env.python), "scripts/rehearsal/in_engine_env/read_weights.py", way, bucket, prefix, str(folder)]
    done = subprocess.run(argv, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{way} ended with {done.returncode}: {done.stderr[-2000:]}")
    result = json.loads(done.stdout.strip().splitlines()[-1])
    if abs(result["bytes"] - total_bytes) > total_bytes // 100:
        raise RuntimeError(f"{way} read {result['bytes']} bytes")
    return result["s"]


def _random_safetensors(path: Path, size: int) -> None:
    """64 tensors of random bytes."""
    elements = size // 2 // 64
    with path.open("wb") as file:
        file.write(header({f"layer.{index}.weight": elements for index in range(64)}))
        for _ in range(64):
            file.write(os.urandom(elements * 2))


def show(part: str, found: Samples) -> None:
    """Medians, lowest and highest."""
    print(f"\n{part}")
    for name, values in found.items():
        middle = statistics.median(values)
        print(f"  {name:<52} {middle:>9.3f}   ({min(values):.3f} to {max(values):.3f}, {len(values)} runs)")
    for name, value in verdicts(found).items():
        print(f"  => {name:<49} {value:>9.3f}")


def verdicts(found: Samples) -> dict[str, float]:
    """What the numbers are compared for."""
    middle = {name: statistics.median(values) for name, values in found.items()}
    compared: Mapping[str, tuple[str, str, Callable[[float, float], float]]] = {
        "launcher overhead, s": (WITH, ALONE, float.__sub__),
        "engine phase, restored / cold": (
            "engine phase, restored, s",
            "engine phase, cold, s",
            float.__truediv__,
        ),
        "weights phase, second / first pod": (
            "weights phase, second pod, s",
            "weights phase, first pod, s",
            float.__truediv__,
        ),
        "one connection / streamed": ("downloaded, s", "streamed, s", float.__truediv__),
    }
    return {name: rule(middle[a], middle[b]) for name, (a, b, rule) in compared.items() if a in middle and b in middle}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--gigabytes", type=float, default=4.0, help="of random safetensors in `weights`")
    given = parser.parse_args()
    parts: dict[str, Callable[[Site, int], Samples]] = {
        "launcher": launcher,
        "cache": cache,
        "node-cache": node_cache,
        "weights": partial(weights, total_bytes=int(given.gigabytes * GB)),
    }
    if unknown := set(given.parts) - set(parts):
        parser.error(f"no part {', '.join(sorted(unknown))}: there are {', '.join(parts)}")
    for part in given.parts or parts:
        print(f"\nload before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
        with opened() as site:
            show(part, parts[part](site, given.runs))


if __name__ == "__main__":
    main()
