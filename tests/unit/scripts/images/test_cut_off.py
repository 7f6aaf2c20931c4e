"""A repack that is ended half-way: its exit code says by what, and its scratch space is free again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.images.loopback_registry import Faults, LoopbackRegistry
from tests.images.synthetic import Tar, image
from tests.toolchain.waiting import wait_until


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_nothing_is_left(tmp_path: Path, how: signal.Signals, code: int) -> None:
    scratch, held = tmp_path / "scratch", threading.Event()
    scratch.mkdir()
    environment = os.environ | {"TMPDIR": str(scratch), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with LoopbackRegistry(Faults(hold=held)) as registry:
        reference = registry.add("team/engine", "v1", image(Tar().file("a", os.urandom(1_000_000))))
        program = Path(sys.executable).with_name("coldstart")
        argv = [str(program), "image", "repack", reference, "--to", f"oci:{tmp_path}/new:v2"]
        # Neither signal is ignored in the child, whatever this process was started with.
        with subprocess.Popen(
            [sys.executable, "-c", RUN, *argv], env=environment, stderr=subprocess.PIPE, text=True
        ) as process:
            wait_until(lambda: any(scratch.iterdir()), what="scratch space")
            process.send_signal(how)
            held.set()
            _, said = process.communicate()
    assert (process.returncode, "interrupted" in said, "Traceback" in said) == (code, True, False), said
    assert list(scratch.iterdir()) == []
    assert not (tmp_path / "new").exists()


RUN = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
