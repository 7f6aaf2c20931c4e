"""The machine the pod runs on, as far as it can be seen from inside."""

from __future__ import annotations

import hashlib
import platform
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from serving.launcher.refusal import Refused

if TYPE_CHECKING:
    from serving.launcher.config import Config


def gpu_models(root: Path = Path("/proc/driver/nvidia/gpus")) -> list[str]:
    """Model names of the GPUs as NVIDIA's driver gives them; empty where there are none or it says nothing."""
    names: list[str] = []
    for information in sorted(root.glob("*/information")):
        found = re.search(r"^Model:\s*(.+?)\s*$", information.read_text(), re.MULTILINE)
        if found:
            names.append(found[1])
    return names


def cpu_features() -> str:
    """A digest of the machine type and of the first CPU's feature flags."""
    try:
        found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    flags = " ".join(sorted(found[1].split())) if found else ""
    return hashlib.sha256(f"{platform.machine()} {flags}".encode()).hexdigest()[:16]


def check_machine(config: Config) -> None:
    """Refuses what is known to fail before minutes are spent on it.

    Raises:
        Refused: the engine's port is taken, or GPUs are missing.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", config.engine_port))  # noqa: S104 - only tried, never listened on
        except OSError as error:
            raise Refused(f"the engine's port {config.engine_port} is taken: {error.strerror}") from error
    found = visible_gpus() if config.gpus else 0
    if found < config.gpus:
        raise Refused(f"the pod must have {config.gpus} GPUs and sees {found} in /dev: look at its resource limits")


def visible_gpus(devices: Path = Path("/dev")) -> int:
    """GPUs whose device nodes are in this container."""
    return sum(1 for device in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", device.name))
