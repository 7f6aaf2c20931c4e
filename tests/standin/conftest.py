"""Fixtures of the stand-in's own tests: they need moto, but neither the engine nor a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.standin.cloud import Cloud
from tests.standin.processes import Moto
from tests.standin.records import Records
from tests.standin.resources import World


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    with Moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def world(moto: Moto, tmp_path: Path) -> World:
    moto.reset()
    return make_world(moto, tmp_path)


def make_world(moto: Moto, folder: Path) -> World:
    """A world of the stand-in without a cluster behind it."""
    return World(
        cloud=Cloud(moto.endpoint, "us-west-2"),
        records=Records(folder / "world"),
        default_tags={"application": "tests"},
    )
