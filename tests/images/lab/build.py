"""Builds what pulls images on a node, from published Go modules: `python -m tests.images.lab.build`.

containerd with its runc shim and client, the SOCI snapshotter, and crictl, which speaks the kubelet's own calls.
Binaries go to .cache/pull-lab/bin. About 6 minutes on two cores from nothing. Needs Go and a C compiler with zlib
(Debian's zlib1g-dev).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LAB = Path(os.environ.get("COLDSTART_PULL_LAB", HERE.parents[2] / ".cache" / "pull-lab"))
CONTAINERD = "2.2.9"
SOCI = "0.16.1"
SOCI_COMMAND = "v0.0.0-20260930233240-61147fe7c929"
"""The snapshotter's command is a module of its own without release tags: this is release 0.16.1's commit."""
CRICTL = "1.34.0"
GO = {"GOFLAGS": "-p=2 -buildvcs=false -mod=mod -trimpath", "GOWORK": "off"}

_CONTAINERD_COMMANDS = "github.com/containerd/containerd/v2/cmd"
_SOCI_MODULE = "github.com/awslabs/soci-snapshotter"
RECIPES: dict[str, dict[str, object]] = {
    "containerd": {
        "get": [
            f"{_CONTAINERD_COMMANDS}/{name}@v{CONTAINERD}" for name in ("containerd", "ctr", "containerd-shim-runc-v2")
        ],
        "build": [f"{_CONTAINERD_COMMANDS}/{name}" for name in ("containerd", "ctr", "containerd-shim-runc-v2")],
        "tags": "no_btrfs no_devmapper no_zfs",
        "cgo": "0",
        "makes": ["containerd", "ctr", "containerd-shim-runc-v2"],
    },
    "soci": {
        "get": [
            f"{_SOCI_MODULE}@v{SOCI}",
            f"{_SOCI_MODULE}/cmd@{SOCI_COMMAND}",
            f"{_SOCI_MODULE}/cmd/soci-snapshotter-grpc",
        ],
        "build": [f"{_SOCI_MODULE}/cmd/soci-snapshotter-grpc"],
        "tags": "",
        "cgo": "1",
        "makes": ["soci-snapshotter-grpc"],
    },
    "pace": {
        "get": [],
        "build": ["."],
        "tags": "",
        "cgo": "0",
        "makes": ["pace"],
        "source": "pace/main.go",
    },
    "crictl": {
        "get": [f"sigs.k8s.io/cri-tools/cmd/crictl@v{CRICTL}"],
        "build": ["sigs.k8s.io/cri-tools/cmd/crictl"],
        "tags": "",
        "cgo": "0",
        "makes": ["crictl"],
    },
}
NEEDS = ("umoci", "skopeo", "docker-registry", "runc", "igzip")
"""Debian packages of the same names; igzip is in isal."""


class MissingTool(RuntimeError):  # noqa: N818 - it is the tool that is missing
    """Something the lab needs is not on this machine."""


def tool(name: str) -> str:
    """Path of a built binary, or of an installed one.

    Raises:
        MissingTool: neither is there.
    """
    built = LAB / "bin" / name
    found = str(built) if built.exists() else shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise MissingTool(f"{name} is missing: run `make pull-lab`, and install {', '.join(NEEDS)} (isal has igzip)")
    return found


def build(name: str) -> None:
    """Builds one part unless it is there from the same recipe."""
    recipe = RECIPES[name]
    stamp = LAB / "stamps" / name
    source = (HERE / str(recipe["source"])).read_bytes() if "source" in recipe else b""
    wanted = hashlib.sha256(json.dumps([recipe, GO]).encode() + source).hexdigest()
    if (
        stamp.is_file()
        and stamp.read_text() == wanted
        and all((LAB / "bin" / made).exists() for made in recipe["makes"])
    ):
        return
    module = LAB / "src" / name
    module.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **GO, "CGO_ENABLED": str(recipe["cgo"])}

    def go(*arguments: str) -> None:
        subprocess.run(["nice", "go", *arguments], cwd=module, env=environment, check=True, stdout=sys.stderr)

    print(f"pull lab: building {name}", file=sys.stderr, flush=True)  # noqa: T201 - a console program
    if not (module / "go.mod").exists():
        go("mod", "init", f"tools.local/{name}")
    if source:
        (module / "main.go").write_bytes(source)
    else:
        go("get", *recipe["get"])
    (LAB / "bin").mkdir(exist_ok=True)
    for package, made in zip(recipe["build"], recipe["makes"], strict=True):
        target = str(LAB / "bin" / made)
        go("build", "-ldflags", "-s -w", "-tags", str(recipe["tags"]), "-o", target, package)
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(wanted)


def main() -> int:
    """Builds everything; one build at a time."""
    LAB.mkdir(parents=True, exist_ok=True)
    with (LAB / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in RECIPES:
            build(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
