"""A real containerd pulls and runs what was cut, with the SOCI snapshotter and without; a real registry takes it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.cli import run
from tests.images.lab.build import LAB, tool
from tests.images.lab.content import laid_out
from tests.images.lab.node import NodeSettings, PullingNode
from tests.images.lab.registry import LabRegistry

MB = 1_000_000


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LabRegistry]:
    """The registry with an image whose sixth layer has most of the bytes."""
    laid_out("fat", 12 * MB).write_layout(tmp_path / "image")
    with LabRegistry(tmp_path / "registry") as registry:
        copy = [tool("skopeo"), "copy", "--quiet", "--dest-tls-verify=false", f"oci:{tmp_path}/image:v1"]
        subprocess.run([*copy, f"docker://{registry.push}/lab/image:before"], check=True)
        yield registry


@pytest.fixture
def node_folder(request: pytest.FixtureRequest) -> Path:
    """Outside pytest's folder: the path of a socket may have 107 characters."""
    return LAB / "nodes" / f"{abs(hash(request.node.nodeid)) % 10**8}"


def repacked(lab: LabRegistry, *more: str) -> str:
    target = f"{lab.push}/lab/image:after"
    assert run(["image", "repack", f"{lab.push}/lab/image:before", "--to", target, "--layers", "6", *more]) == 0
    return f"{lab.pull}/lab/image:after"


@pytest.mark.parametrize("snapshotter", ["soci", "overlayfs"])
@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_command_runs_from_the_repacked_image(
    lab: LabRegistry, node_folder: Path, snapshotter: str, codec: str
) -> None:
    reference = repacked(lab, "--codec", codec)
    with PullingNode(node_folder, NodeSettings(snapshotter=snapshotter)) as node:
        node.pull(f"{lab.pull}/lab/image:before")
        node.pull(reference)
        # Every layer listed each folder above its files, so all of them are there whatever the order of unpacking.
        listing = (
            "/bin/busybox",
            "sh",
            "-c",
            "cd /opt && /bin/busybox find . -type f | /bin/busybox sort | /bin/busybox xargs /bin/busybox sha256sum",
        )
        before = node.run(f"{lab.pull}/lab/image:before", *listing)
        after = node.run(reference, *listing)
    assert after == before
    assert len(after.splitlines()) == 12


def test_a_kept_layer_is_pulled_on_top(lab: LabRegistry, node_folder: Path) -> None:
    reference = repacked(lab, "--keep", "2")
    with PullingNode(node_folder, NodeSettings()) as node:
        node.pull(reference)
        assert node.run(reference, "/bin/busybox", "sh", "-c", "ls /opt | /bin/busybox head -1").strip() == "d00"


def test_skopeo_and_the_registry_agree_about_what_was_written(
    lab: LabRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    repacked(lab)
    capsys.readouterr()
    said = subprocess.run(
        [tool("skopeo"), "inspect", "--tls-verify=false", f"docker://{lab.push}/lab/image:after"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = json.loads(said.stdout)
    assert run(["image", "inspect", f"{lab.push}/lab/image:after", "--json"]) == 0
    ours = json.loads(capsys.readouterr().out)
    assert found["Digest"] == ours["digest"]
    assert found["Layers"] == [layer["digest"] for layer in ours["layers"]]
    assert found["Labels"] == {"who": "me"}


def test_a_mirror_between_real_registries(lab: LabRegistry, tmp_path: Path) -> None:
    with LabRegistry(tmp_path / "other") as other:
        assert run(["image", "mirror", f"{lab.push}/lab/image:before", "--to", f"{other.push}/mine"]) == 0
        assert run(["image", "mirror", f"{lab.push}/lab/image:before", "--to", f"{other.push}/mine"]) == 0
