"""The processes around the stand-in: moto's server, and the launchers that the engine and kubectl find on PATH."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.toolchain.engines import Server, free_port
from tests.toolchain.waiting import wait_until

HERE = Path(__file__).resolve().parent
ACCOUNT = "111122223333"
"""The account that moto plays: the one of the shipped stack files, an example number of AWS."""
LAUNCHERS = {"pulumi-resource-aws": "__main__.py", "aws": "aws_command.py"}


class Moto:
    """moto's server on loopback: the AWS APIs that the stand-in and the project's own verbs call.

    Attributes:
        endpoint: its address, for AWS_ENDPOINT_URL.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        self._server = Server(
            "moto",
            [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)],
            folder=folder,
            env={**os.environ, "MOTO_ACCOUNT_ID": ACCOUNT, "MOTO_IAM_LOAD_MANAGED_POLICIES": "true"},
        )

    def __enter__(self) -> Self:
        """Waits until it answers."""
        try:
            wait_until(self._answers, what="moto answers")
        except BaseException:
            self._server.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stops it."""
        self._server.stop()

    def reset(self) -> None:
        """Forgets everything in every account."""
        request = urllib.request.Request(f"{self.endpoint}/moto-api/reset", method="POST")  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=30):  # noqa: S310 - loopback
            pass

    def _answers(self) -> bool:
        self._server.check()
        try:
            with urllib.request.urlopen(f"{self.endpoint}/moto-api/data.json", timeout=5):  # noqa: S310 - loopback
                return True
        except (urllib.error.URLError, ConnectionError):
            return False


def write_launchers(folder: Path) -> None:
    """Puts the stand-in's commands into a folder for PATH, run by the Python of the tests."""
    folder.mkdir(parents=True, exist_ok=True)
    for command, program in LAUNCHERS.items():
        launcher = folder / command
        launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -W ignore "{HERE / program}" "$@"\n')
        launcher.chmod(0o755)
