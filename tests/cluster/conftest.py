"""Fixtures of the tests on a real API server: the control plane, and what a shipped model stack renders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.toolchain.control_plane import ControlPlane
from tests.toolchain.engines import TOOLS


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that knows KEDA's objects."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as running:
        running.define(TOOLS / "definitions")
        yield running
