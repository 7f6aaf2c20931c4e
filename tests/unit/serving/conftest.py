"""Fixtures of the tests of the objects."""

from __future__ import annotations

import pytest


@pytest.fixture
def short_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the launcher's text back takes longer than all the rest; only the tests of it need it."""
    monkeypatch.setattr("serving.manifests.launcher_source", lambda: "raise SystemExit\n")
