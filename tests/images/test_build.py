"""The slim image, built by a real builder from a base made here: no registry of the world is reached."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts.cli import run
from tests.images.lab.build import MissingTool, tool
from tests.images.loopback_registry import LoopbackRegistry
from tests.images.synthetic import Tar, image

STACK = "dev-qwen2-5-0-5b"


def buildah() -> str:
    found = shutil.which("buildah")
    if found is None:
        raise MissingTool("buildah is missing: install the Debian package")
    return found


def base_image() -> object:
    """Python of this machine with the libraries it loads, and busybox for a shell."""
    tar, prefix = Tar(), Path(sys.base_prefix)
    tar.folder("bin").file("bin/busybox", Path("/bin/busybox").read_bytes(), mode=0o755).symlink("bin/sh", "busybox")
    for applet in ("mkdir", "rm", "ls", "cat"):
        tar.symlink(f"bin/{applet}", "busybox")
    tar.folder("tmp", mode=0o1777).folder("usr").folder("usr/local").folder("usr/local/bin").folder("etc")
    tar.file("etc/passwd", b"root:x:0:0::/root:/bin/sh\n")
    python = (prefix / "bin" / "python3").resolve()
    inside = str(python).lstrip("/")
    _folders(tar, inside)
    tar.file(inside, python.read_bytes(), mode=0o755).symlink("usr/local/bin/python3", str(python))
    for library in _libraries(python):
        _folders(tar, library.lstrip("/"))
        tar.file(library.lstrip("/"), Path(library).read_bytes(), mode=0o755)
    home = prefix / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    skipped = {"test", "site-packages", "__pycache__", "idlelib", "tkinter", "lib2to3"}
    for folder, names, files in os.walk(home):
        names[:] = sorted(set(names) - skipped)
        _folders(tar, f"{folder.lstrip('/')}/x")
        for name in sorted(files):
            tar.file(f"{folder.lstrip('/')}/{name}", (Path(folder) / name).read_bytes())
    return image(tar, config={"config": {"Env": ["PATH=/usr/local/bin:/bin"]}})


def _folders(tar: Tar, path: str, seen: dict[int, set[str]] = {}) -> None:  # noqa: B006 - a memory by design
    known = seen.setdefault(id(tar), set())
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        folder = "/".join(parts[:depth])
        if folder not in known:
            known.add(folder)
            tar.folder(folder)


def _libraries(python: Path) -> list[str]:
    extensions = list((Path(sys.base_prefix) / "lib").glob("python3*/lib-dynload/*.so"))
    found: set[str] = set()
    for binary in [python, *extensions]:
        said = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False).stdout
        found |= {word for word in said.split() if word.startswith("/") and ".so" in word}
    return sorted(found)


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


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    big = {f"vllm/part{index}/data.bin": os.urandom(400_000) for index in range(36)}
    program = b"import sys\n\ndef main():\n    print('served by', sys.executable, *sys.argv[1:])\n"
    wheel(
        folder,
        "vllm",
        "0.33.0",
        {"vllm/__init__.py": b"", "vllm/cli.py": program, **big},
        "[console_scripts]\nvllm=vllm.cli:main\n",
    )
    wheel(folder, "runai-model-streamer", "0.17.1", {"runai_model_streamer/__init__.py": b""})
    return folder


def test_a_real_builder_builds_it_in_even_layers_and_it_runs(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = tmp_path / "storage.conf"
    storage.write_text(f'[storage]\ndriver = "overlay"\nrunroot = "{tmp_path}/run"\ngraphroot = "{tmp_path}/graph"\n')
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(storage))
    monkeypatch.setenv("BUILDAH_ISOLATION", "chroot")
    program = buildah()
    base = base_image()
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
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
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
    assert said.stdout.strip() == "served by /opt/venv/bin/python3 serve x", said.stderr
    config = json.loads(
        subprocess.run([program, "inspect", container], capture_output=True, text=True, check=True).stdout
    )
    assert config["OCIv1"]["config"]["User"] == "65532:65532"
    assert config["OCIv1"]["config"]["Entrypoint"] == ["/opt/venv/bin/vllm"]
