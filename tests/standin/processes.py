"""The processes around the stand-in: moto's server, and the launchers that the engine and kubectl find on PATH."""

from __future__ import annotations

import os
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.toolchain.engines import Server, free_port
from tests.toolchain.waiting import wait_until

HERE = Path(__file__).resolve().parent
ACCOUNT = "111122223333"
"""The account that moto plays: the one of the shipped stack files, an example number of AWS."""
BIND_ATTEMPTS = 3
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Loopback is never behind a proxy, whatever the environment says."""
LAUNCHERS = {"pulumi-resource-aws": "__main__.py", "aws": "aws_command.py"}


class Moto:
    """moto's server on loopback: the AWS APIs that the stand-in and the project's own verbs call.

    Attributes:
        endpoint: its address, for AWS_ENDPOINT_URL.
    """

    endpoint: str

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._server: Server | None = None

    def __enter__(self) -> Self:
        """Waits until it answers. Its port was free a moment ago; if somebody was quicker, others are tried."""
        for attempt in range(1, BIND_ATTEMPTS + 1):
            try:
                self._start()
            except RuntimeError as error:
                if "already in use" not in str(error) or attempt == BIND_ATTEMPTS:
                    raise
            else:
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stops it."""
        self._stop()

    def reset(self) -> None:
        """Forgets everything in every account."""
        request = urllib.request.Request(f"{self.endpoint}/moto-api/reset", method="POST")  # noqa: S310 - loopback
        with DIRECT.open(request, timeout=30):
            pass

    def _start(self) -> None:
        port = free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        self._server = Server(
            "moto",
            [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)],
            folder=self._folder,
            env={**os.environ, "MOTO_ACCOUNT_ID": ACCOUNT, "MOTO_IAM_LOAD_MANAGED_POLICIES": "true"},
        )
        try:
            wait_until(self._answers, what="moto answers")
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        if self._server is not None:
            self._server.stop()

    def _answers(self) -> bool:
        assert self._server is not None
        self._server.check()
        try:
            with DIRECT.open(f"{self.endpoint}/moto-api/data.json", timeout=5):
                return True
        except OSError:
            return False


def write_launchers(folder: Path) -> None:
    """Puts the stand-in's commands into a folder for PATH, run by the Python of the tests."""
    folder.mkdir(parents=True, exist_ok=True)
    for command, program in LAUNCHERS.items():
        launcher = folder / command
        launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" -W ignore "{HERE / program}" "$@"\n')
        launcher.chmod(0o755)
