"""A real closure, cut again: `python -m tests.images.lab.closure FOLDER [ENGINE]`, a virtual environment.

The environment becomes two layers, engine apart from what it needs, on a base made here: a real image's one fat layer.
`coldstart image repack` cuts it for a node; umoci unpacks both and its records are compared; containerd with SOCI pulls
both and runs the environment's own interpreter from the new one. Needs about five times the environment's size on disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.images.lab.build import LAB, tool
from tests.images.lab.node import NodeSettings, PullingNode
from tests.images.lab.registry import LabRegistry
from tests.images.python_base import python_base
from tests.images.synthetic import LAYER, compress, digest, write_layout_of
from tests.images.unpacked import mtree

INSIDE = "opt/venv"
QUESTION = "import importlib.metadata as m; print(m.version('{engine}'), 'of', len(list(m.distributions())))"
PIECE = 1 << 20


def write_image(environment: Path, engine: str, folder: Path) -> None:
    """Three layers: the base, what the engine needs, the engine."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    base = python_base().folder("opt").bytes()
    stored = compress(base, "gzip")
    (blobs / digest(stored).partition(":")[2]).write_bytes(stored)
    listed: list[dict[str, Any]] = [{"mediaType": f"{LAYER}+gzip", "digest": digest(stored), "size": len(stored)}]
    diff_ids = [digest(base)]
    (packages,) = environment.glob("lib/python3*/site-packages")
    apart = str(packages.relative_to("/") / engine)
    for paths in ([f"--exclude={apart}", str(environment.relative_to("/"))], [apart]):
        entry, diff_id = _layer(environment, paths, blobs)
        listed.append(entry)
        diff_ids.append(diff_id)
    write_layout_of(folder, listed, diff_ids, config={"Env": [f"PATH=/{INSIDE}/bin:/bin"]})


def _layer(environment: Path, paths: list[str], blobs: Path) -> tuple[dict[str, Any], str]:
    """A folder of this machine as a layer; hard links stay links, owners become root."""
    argv = ["tar", "-C", "/", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]
    argv += [f"--transform=s,^{environment.relative_to('/')},{INSIDE},S", "-c", *paths]
    partial, unpacked, packed = blobs / "partial", hashlib.sha256(), hashlib.sha256()
    with (
        partial.open("wb") as file,
        subprocess.Popen(argv, stdout=subprocess.PIPE) as tar,
        subprocess.Popen([tool("igzip"), "-1", "-c"], stdin=subprocess.PIPE, stdout=file) as packer,
    ):
        while piece := tar.stdout.read(PIECE):
            unpacked.update(piece)
            packer.stdin.write(piece)
        packer.stdin.close()
    if tar.returncode or packer.returncode:
        raise RuntimeError(f"tar ended with {tar.returncode}, igzip with {packer.returncode}")
    with partial.open("rb") as file:
        while piece := file.read(PIECE):
            packed.update(piece)
    size = partial.stat().st_size
    partial.rename(blobs / packed.hexdigest())
    entry = {"mediaType": f"{LAYER}+gzip", "digest": f"sha256:{packed.hexdigest()}", "size": size}
    return entry, f"sha256:{unpacked.hexdigest()}"


def repacked(folder: Path) -> dict[str, Any]:
    """The command, in a process of its own."""
    argv = [str(Path(sys.executable).with_name("coldstart")), "image", "repack", f"oci:{folder}/from:v1"]
    argv += ["--to", f"oci:{folder}/to:v2", "--json"]
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder)}
    began = time.monotonic()
    with (folder / "out.json").open("w") as out:
        process = subprocess.Popen(argv, stdout=out, env=environment)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"repack ended with {process.returncode}")
    return {
        "seconds": round(time.monotonic() - began, 1),
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "peak_mb": round(used.ru_maxrss * 1024 / 1e6, 1),
        "answer": json.loads((folder / "out.json").read_text()),
    }


def same_root(folder: Path) -> dict[str, Any]:
    """Whether umoci records the same of both; one is unpacked at a time."""
    records = []
    for layout, tag in (("from", "v1"), ("to", "v2")):
        records.append(mtree(folder / layout, tag, folder / "bundle"))
        shutil.rmtree(folder / "bundle")
    return {"same": records[0] == records[1], "records": len(records[0])}


def pulled(engine: str, folder: Path) -> dict[str, Any]:
    """Both pulled by containerd with SOCI on a fresh node each, and a command run from the second."""
    seconds: dict[str, float] = {}
    with LabRegistry(folder / "registry") as registry:
        for layout, tag in (("from", "v1"), ("to", "v2")):
            copy = [tool("skopeo"), "copy", "--quiet", "--dest-tls-verify=false", f"oci:{folder}/{layout}:{tag}"]
            subprocess.run([*copy, f"docker://{registry.push}/closure:{tag}"], check=True)
        for tag in ("v1", "v2"):
            with PullingNode(folder / "node", NodeSettings()) as node:
                seconds[tag] = round(node.pull(f"{registry.pull}/closure:{tag}"), 1)
                if tag == "v2":
                    said = node.run(
                        f"{registry.pull}/closure:v2", f"/{INSIDE}/bin/python", "-c", QUESTION.format(engine=engine)
                    )
    return {"before_s": seconds["v1"], "after_s": seconds["v2"], "command_says": said.strip()}


def main(environment: Path, engine: str) -> int:
    """Prints one JSON document; 1 if the roots differ."""
    LAB.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=LAB, prefix="c") as name:
        folder = Path(name)
        write_image(environment.resolve(), engine, folder / "from")
        made = {"repack": repacked(folder)}
        print(json.dumps(made, indent=2), flush=True)  # noqa: T201 - a console program
        compared = same_root(folder)
        print(json.dumps(compared), flush=True)  # noqa: T201
        print(json.dumps(pulled(engine, folder)), flush=True)  # noqa: T201
    return 0 if compared["same"] else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2] if sys.argv[2:] else "vllm"))
