"""Servers that answer as a registry and as the hub do."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.unit.scripts.loopback import Images, Served


@pytest.fixture
def images() -> Generator[Images]:
    """A running registry."""
    with Images().running() as served:
        assert isinstance(served, Images)
        yield served


@pytest.fixture
def served() -> Generator[Served]:
    """Another running server."""
    with Served().running() as running:
        yield running
