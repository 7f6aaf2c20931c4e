"""A base layer made here: the interpreter that runs this, what it loads, and a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.images.synthetic import Tar

ENVIRONMENT = {"Env": ["PATH=/usr/local/bin:/bin"]}


def python_base() -> Tar:
    """Python of this machine with the libraries it loads, and busybox for a shell."""
    tar, prefix = Tar(), Path(sys.base_prefix)
    known: set[str] = set()
    tar.folder("bin").file("bin/busybox", Path("/bin/busybox").read_bytes(), mode=0o755).symlink("bin/sh", "busybox")
    for applet in ("mkdir", "rm", "ls", "cat"):
        tar.symlink(f"bin/{applet}", "busybox")
    tar.folder("tmp", mode=0o1777).folder("usr").folder("usr/local").folder("usr/local/bin").folder("etc")
    tar.file("etc/passwd", b"root:x:0:0::/root:/bin/sh\n")
    python = (prefix / "bin" / "python3").resolve()
    inside = str(python).lstrip("/")
    _folders(tar, inside, known)
    tar.file(inside, python.read_bytes(), mode=0o755).symlink("usr/local/bin/python3", str(python))
    if python.name != "python3":  # the name that virtual environments link to
        tar.symlink(f"{inside.rpartition('/')[0]}/python3", python.name)
    for library in _libraries(python):
        _folders(tar, library.lstrip("/"), known)
        tar.file(library.lstrip("/"), Path(library).read_bytes(), mode=0o755)
    home = prefix / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    skipped = {"test", "site-packages", "__pycache__", "idlelib", "tkinter", "lib2to3"}
    for folder, names, files in os.walk(home):
        names[:] = sorted(set(names) - skipped)
        _folders(tar, f"{folder.lstrip('/')}/x", known)
        for name in sorted(files):
            tar.file(f"{folder.lstrip('/')}/{name}", (Path(folder) / name).read_bytes())
    return tar


def _folders(tar: Tar, path: str, known: set[str]) -> None:
    """Adds the folders above a path that are not `known` yet."""
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
