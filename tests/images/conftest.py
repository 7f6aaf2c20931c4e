"""What the tests of this folder share: a cache of one's own for what an inspection has read."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers that another test has read are read again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
