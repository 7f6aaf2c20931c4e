"""An unpacked image as umoci sees it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.images.lab.build import tool


def mtree(layout: Path, tag: str, bundle: Path) -> list[list[str]]:
    """What umoci records of an unpacked root: type, mode, owner, links, size, content, xattrs and time of each path."""
    subprocess.run(
        [tool("umoci"), "unpack", "--image", f"{layout}:{tag}", str(bundle)], check=True, capture_output=True
    )
    (record,) = bundle.glob("*.mtree")
    lines = [line for line in record.read_text().splitlines() if line and not line.startswith("#")]
    return [sorted(line.split(" ")) for line in lines]
