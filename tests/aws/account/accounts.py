"""moto's server with several accounts in it: the front says with each request whose it is."""

from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.toolchain.engines import Server, free_port
from tests.toolchain.waiting import wait_until


@dataclass(frozen=True)
class Accounts:
    """A running server.

    Attributes:
        endpoint: its address.
    """

    endpoint: str

    def reset(self) -> None:
        """Forgets everything in every account."""
        request = urllib.request.Request(f"{self.endpoint}/moto-api/reset", method="POST")  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=30):  # noqa: S310 - loopback
            pass


@contextmanager
def accounts(folder: Path) -> Iterator[Accounts]:
    """Runs a server while the block runs. Unlike the engine's one it is bound to no account."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if name != "MOTO_ACCOUNT_ID"}
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    server = Server("moto", command, folder=folder, env=environment)
    endpoint = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        server.check()
        try:
            with urllib.request.urlopen(f"{endpoint}/moto-api/data.json", timeout=5):  # noqa: S310 - loopback
                return True
        except OSError:
            return False

    try:
        wait_until(answers, what="moto answers")
        yield Accounts(endpoint)
    finally:
        server.stop()
