"""What staging costs: `make bench-stage`, or one part of it: `python benchmarks/stage.py PART`.

Parts: `folder` (against s5cmd and aws s3 sync, on an unlimited server), `paced` (the same with a limit per connection),
`hub` (one pass against download and sync), `memory` (peak of the process at 1 GB and 20 GB), `kills` (kill -9, resume),
`clients` (own multipart, s3transfer, the CRT client). Runs of what is compared take turns; medians are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from benchmarks.pacing import Relay
from tests.aws import seaweed
from tests.aws.hub_server import Content, HubServer
from tests.aws.made_models import CONFIG, header

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / ".cache" / "bench-env" / "bin"
CRT_PYTHON = ROOT / ".cache" / "crt-env" / "bin" / "python"
COLDSTART = Path(sys.executable).with_name("coldstart")
GB = 10**9
FILES = 4
PACE_MB_S = 0.5
"""Of one connection in `paced`: far below what this machine serves, so that connections decide, not its processors."""
HUB_PACE_MB_S = 8.0


@dataclass
class Site:
    """A server with a bucket that is thrown away with everything in it."""

    server: seaweed.S3Server
    endpoint: str

    @contextmanager
    def bucket(self) -> Generator[str]:
        """A fresh one; its space is free afterwards."""
        name = f"bench-{random.getrandbits(40):x}"
        self.server.client().create_bucket(Bucket=name)
        try:
            yield name
        finally:
            self.server.client().delete_bucket(Bucket=name)

    @property
    def environment(self) -> dict[str, str]:
        """For a child process."""
        home = {"PATH": os.environ["PATH"], "HOME": tempfile.gettempdir(), "HF_HUB_DISABLE_TELEMETRY": "1"}
        return {**home, **self.server.environment(self.endpoint), "AWS_EC2_METADATA_DISABLED": "true"}


@dataclass
class Ended:
    """A child process that ended.

    Attributes:
        peak_mib: resident memory, as its own /proc entry said last.
    """

    seconds: float
    cpu_s: float
    peak_mib: float
    out: str


def run(argv: list[str], environment: Mapping[str, str]) -> Ended:
    """Runs a command to its end and measures it."""
    started = time.monotonic()
    process = subprocess.Popen(
        argv, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    # The kernel's own maximum counts what the parent held when it forked; the child's /proc entry doesn't.
    peaks = [0.0]
    watch = threading.Thread(target=_watch, args=(process.pid, peaks), daemon=True)
    watch.start()
    out = cast("IO[str]", process.stdout).read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{argv[0]} ended with {process.returncode}")
    return Ended(time.monotonic() - started, usage.ru_utime + usage.ru_stime, max(peaks), out)


def _watch(pid: int, peaks: list[float]) -> None:
    with suppress(OSError, StopIteration):
        while True:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            peaks.append(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024)
            time.sleep(0.1)


def model(folder: Path, total_bytes: int, files: int, *, sparse: bool = False) -> Path:
    """A folder with a model of random (or, `sparse`, zero) weights."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    each = total_bytes // files
    generator = random.Random(7)  # noqa: S311 - bytes that do not compress
    for number in range(files):
        start = header({f"layer.{number}.weight": each // 2})
        with (folder / f"model-{number + 1:05}-of-{files:05}.safetensors").open("wb") as stream:
            stream.write(start)
            if sparse:
                stream.truncate(len(start) + each // 2 * 2)
                continue
            left = each // 2 * 2
            while left:
                piece = generator.randbytes(min(left, 1 << 24))
                stream.write(piece)
                left -= len(piece)
    return folder


@contextmanager
def site(work: Path, *, mb_s: float | None = None) -> Generator[Site]:
    """A server, behind a relay when a pace is given."""
    with seaweed.running(work / f"server-{time.monotonic_ns()}", volume_mb=1024) as server:
        if mb_s is None:
            yield Site(server, server.endpoint)
            return
        with Relay.running(server.port, mb_s) as relay:
            yield Site(server, relay.endpoint)


# ---- what is compared ----------------------------------------------------------------------------------------------

Stager = Callable[[Site, Path, str], Ended]


def with_coldstart(at: Site, folder: Path, bucket: str) -> Ended:
    """Ours: hashed, checked, published."""
    source = ["--source", str(folder), "--name", "bench/model"]
    return run([str(COLDSTART), "stage", *source, "--to", f"s3://{bucket}", "--json"], at.environment)


def with_s5cmd(at: Site, folder: Path, bucket: str) -> Ended:
    """s5cmd with its defaults."""
    return run([str(TOOLS / "s5cmd"), "cp", f"{folder}/*", f"s3://{bucket}/models/"], s5(at))


def with_sync(at: Site, folder: Path, bucket: str) -> Ended:
    """The AWS command line with its defaults."""
    argv = [str(TOOLS / "aws"), "s3", "sync", "--quiet", str(folder), f"s3://{bucket}/models/"]
    return run(argv, at.environment)


def s5(at: Site) -> dict[str, str]:
    """The variable by which s5cmd finds the server."""
    return {**at.environment, "S3_ENDPOINT_URL": at.endpoint}


def compare(at: Site, folder: Path, runs: int, stagers: Mapping[str, Stager]) -> None:
    """Lets them take turns and prints medians."""
    total = sum(file.stat().st_size for file in folder.iterdir())
    found: defaultdict[str, list[Ended]] = defaultdict(list)
    for number in range(runs):
        for name, stager in stagers.items():
            with at.bucket() as bucket:
                ended = stager(at, folder, bucket)
            found[name].append(ended)
            say(f"  run {number + 1} {name}: {ended.seconds:.1f} s, {total / ended.seconds / 1e6:.0f} MB/s")
    ours = statistics.median(entry.seconds for entry in found["coldstart"])
    print(f"{total / GB:.1f} GB in {FILES} files, {runs} runs in turn, load {os.getloadavg()[1]:.1f}")
    print(f"{'':12} {'seconds':>8} {'MB/s':>6} {'CPU s/GB':>9} {'peak MiB':>9} {'ours is':>9}")
    for name, entries in found.items():
        seconds = statistics.median(entry.seconds for entry in entries)
        cpu = statistics.median(entry.cpu_s for entry in entries) / (total / GB)
        peak = max(entry.peak_mib for entry in entries)
        print(f"{name:12} {seconds:8.1f} {total / seconds / 1e6:6.0f} {cpu:9.2f} {peak:9.0f} {seconds / ours:8.2f}x")


def folder(work: Path, runs: int, gigabytes: float) -> None:
    """Folder → S3 against s5cmd and aws s3 sync; the server gives whatever it has."""
    source = model(work / "model", int(gigabytes * GB), FILES)
    with site(work) as at:
        compare(at, source, runs, {"coldstart": with_coldstart, "s5cmd": with_s5cmd, "aws s3 sync": with_sync})


def paced(work: Path, runs: int, gigabytes: float) -> None:
    """The same when every connection has a limit, as with S3."""
    source = model(work / "model", int(gigabytes * GB), FILES)
    with site(work, mb_s=PACE_MB_S) as at:
        compare(at, source, runs, {"coldstart": with_coldstart, "s5cmd": with_s5cmd, "aws s3 sync": with_sync})


def hub(work: Path, runs: int, gigabytes: float) -> None:
    """Hub → S3 in one pass, against `hf download` and `aws s3 sync`; the hub limits each connection."""
    source = model(work / "model", int(gigabytes * GB), FILES)
    total = sum(file.stat().st_size for file in source.iterdir())
    found: defaultdict[str, list[float]] = defaultdict(list)
    written: list[int] = []
    with HubServer.running() as server, site(work) as at:
        server.add("bench/model", {file.name: Content(path=file) for file in source.iterdir()})
        server.state.limit_mb_s = HUB_PACE_MB_S
        environment = {**at.environment, "HF_ENDPOINT": server.endpoint, "HF_HUB_DISABLE_XET": "1"}
        for number in range(runs):
            with at.bucket() as bucket:
                seconds, disk = one_pass(bucket, environment)
            found["one pass"].append(seconds)
            written.append(disk)
            with at.bucket() as bucket:
                found["download, then sync"].append(two_steps(work / "download", bucket, environment))
            say(f"  run {number + 1}: {', '.join(f'{name} {entries[-1]:.1f} s' for name, entries in found.items())}")
    one, two = (statistics.median(found[name]) for name in ("one pass", "download, then sync"))
    print(f"{total / GB:.1f} GB in {FILES} files, {HUB_PACE_MB_S:g} MB/s a connection, {runs} runs in turn")
    print(f"one pass {one:.1f} s; download, then sync {two:.1f} s: {two / one:.2f}x")
    print(f"written to disk in one pass: {max(written):,} bytes")


def one_pass(bucket: str, environment: Mapping[str, str]) -> tuple[float, int]:
    """Seconds, and bytes that the process wrote to any disk."""
    argv = [str(COLDSTART), "stage", "--source", "hf:bench/model@main", "--to", f"s3://{bucket}", "--json"]
    started = time.monotonic()
    process = subprocess.Popen(argv, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    disk = 0
    while process.poll() is None:
        try:
            counters = Path(f"/proc/{process.pid}/io").read_text().splitlines()
            disk = max(disk, next(int(line.split()[1]) for line in counters if line.startswith("write_bytes")))
        except (OSError, StopIteration):
            pass
        time.sleep(0.1)
    seconds = time.monotonic() - started
    if process.returncode != 0:
        raise RuntimeError(f"coldstart ended with {process.returncode}")
    return seconds, disk


def two_steps(target: Path, bucket: str, environment: Mapping[str, str]) -> float:
    """Seconds of `hf download` and `aws s3 sync`."""
    shutil.rmtree(target, ignore_errors=True)
    started = time.monotonic()
    hf = str(COLDSTART.with_name("hf"))
    run([hf, "download", "bench/model", "--local-dir", str(target), "--quiet"], environment)
    argv = [str(TOOLS / "aws"), "s3", "sync", "--quiet", "--exclude", ".cache/*", str(target), f"s3://{bucket}/models/"]
    run(argv, environment)
    seconds = time.monotonic() - started
    shutil.rmtree(target)
    return seconds


def memory(work: Path, runs: int, gigabytes: float) -> None:
    """Peak memory of the process for one file of 1 GB and one of 20 GB."""
    del gigabytes
    peaks: dict[int, float] = {}
    for size, times in ((20, 1), (1, runs)):
        source = model(work / f"model-{size}", size * GB, 1, sparse=True)
        with site(work) as at:
            entries: list[float] = []
            for _ in range(times):
                with at.bucket() as bucket:
                    entries.append(with_coldstart(at, source, bucket).peak_mib)
                    say(f"  {size} GB: {entries[-1]:.0f} MiB")
        peaks[size] = statistics.median(entries)
    print(f"peak memory: {peaks[1]:.0f} MiB at 1 GB, {peaks[20]:.0f} MiB at 20 GB ({peaks[20] / peaks[1] - 1:+.1%})")


def kills(work: Path, runs: int, gigabytes: float) -> None:
    """Kill -9 at a random moment, run again: bytes sent twice, and whether the manifest is the same."""
    del runs
    source = model(work / "model", int(gigabytes * GB), FILES)
    total = sum(file.stat().st_size for file in source.iterdir())
    generator = random.Random()  # noqa: S311 - moments
    shares: list[float] = []
    texts: set[bytes] = set()
    with site(work) as plain, Relay.running(plain.server.port, None) as relay:
        at = Site(plain.server, relay.endpoint)
        for number in range(10):
            with at.bucket() as bucket:
                before, moment = relay.sent_bytes, generator.uniform(0.02, 0.98)
                kill_at(at, source, bucket, lambda b=before, m=moment: relay.sent_bytes - b > m * total)
                ended = with_coldstart(at, source, bucket)
                key = f"manifests/bench/model/{json.loads(ended.out)['revision']}.json"
                texts.add(at.server.client().get_object(Bucket=bucket, Key=key)["Body"].read())
                left = at.server.client().list_multipart_uploads(Bucket=bucket).get("Uploads", [])
                shares.append((relay.sent_bytes - before) / total - 1)
            say(f"  kill {number + 1} at {moment:.0%}: {shares[-1]:+.1%} sent twice, {len(left)} uploads left")
            if left:
                raise RuntimeError(f"uploads left behind: {left}")
    print(f"{total / GB:.1f} GB, ten kills: sent twice {statistics.median(shares):.1%} median, {max(shares):.1%} most")
    print(f"that is {max(shares) * total / 1e6:.0f} MB at most: what was in flight, whatever the model's size")
    print(f"manifests: {'identical' if len(texts) == 1 else 'DIFFERENT'}")


def kill_at(at: Site, source: Path, bucket: str, moment: Callable[[], bool]) -> None:
    """Starts a staging and kills it at the moment."""
    argv = [str(COLDSTART), "stage", "--source", str(source), "--name", "bench/model", "--to", f"s3://{bucket}"]
    process = subprocess.Popen(argv, env=at.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not moment() and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()


def clients(work: Path, runs: int, gigabytes: float) -> None:
    """Three ways to send the same parts while hashing: a multipart of our own, s3transfer, the CRT client."""
    source = model(work / "model", int(gigabytes * GB), FILES)
    found: defaultdict[str, list[float]] = defaultdict(list)
    with site(work) as at:
        environment = {**at.environment, "PYTHONPATH": str(ROOT)}
        for _ in range(runs):
            for kind in ("own", "s3transfer", "crt"):
                with at.bucket() as bucket:
                    argv = [str(CRT_PYTHON), str(ROOT / "benchmarks" / "clients.py"), kind, str(source), bucket]
                    found[kind].append(float(run(argv, environment).out))
                say(f"  {kind}: {found[kind][-1]:.1f} s")
    print(f"{gigabytes:g} GB in {FILES} files, {runs} runs in turn, seconds without start-up")
    for kind, entries in found.items():
        print(f"{kind:12} {statistics.median(entries):.1f}")


def say(line: str) -> None:
    """Progress."""
    print(line, file=sys.stderr, flush=True)


PARTS: Mapping[str, tuple[Callable[[Path, int, float], None], float]] = {
    "folder": (folder, 4),
    "paced": (paced, 0.5),
    "hub": (hub, 1),
    "memory": (memory, 1),
    "kills": (kills, 1),
    "clients": (clients, 1),
}
"""Part → what runs it, and how many gigabytes it moves unless told otherwise."""


def main() -> None:
    """Runs the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all without one")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--gigabytes", type=float)
    parser.add_argument("--work", type=Path, default=ROOT / ".cache" / "bench-stage", help="emptied afterwards")
    options = parser.parse_args()
    for name in options.parts or PARTS:
        part, gigabytes = PARTS[name]
        work = options.work / name
        shutil.rmtree(work, ignore_errors=True)
        print(f"== {name}", flush=True)
        try:
            part(work, options.runs, options.gigabytes or gigabytes)
        finally:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
