"""What the rehearsals share: one S3 server with a staged model, and a cold and a warm start of the rendered pod."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from infra.specs import model_specs
from infra.stack_file import read
from scripts.rehearsal.engine_env import EngineEnv, engine_env
from scripts.rehearsal.site import Site, open_site
from scripts.rehearsal.starts import Start, cold_and_warm
from scripts.rehearse import DEFAULT_STACK
from serving.manifests import objects

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def env() -> EngineEnv:
    """The engine environment; `make test-rehearsal` makes it."""
    return engine_env(ROOT / ".cache" / "rehearse")


def rendered(stack: str = DEFAULT_STACK) -> Sequence[Any]:
    """The Kubernetes objects of a model stack."""
    found = read(stack)
    assert found.model is not None
    return objects(model_specs(found, found.model).serving)


@pytest.fixture(scope="session")
def site(env: EngineEnv, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One for the whole run: an engine start is the dear thing here, and every test makes its own pods."""
    with open_site(env, tmp_path_factory.mktemp("rehearsal"), rendered()) as opened:
        yield opened


@pytest.fixture(scope="session")
def starts(site: Site) -> tuple[Start, Start]:
    """The first start ever, and the second one on a fresh node."""
    return cold_and_warm(site)
