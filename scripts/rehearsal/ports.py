"""Loopback ports that nobody listens on."""

from __future__ import annotations

import contextlib
import socket


def free_ports(count: int) -> tuple[int, ...]:
    """So many different ports; all are held until the last one is found."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return tuple(probe.getsockname()[1] for probe in probes)
