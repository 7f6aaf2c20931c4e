"""Fixtures of every test: nothing of the user's own, and nothing of the network beyond loopback, is ever read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_CREDENTIALS = ("AWS_", "PULUMI_", "KUBE", "HF_", "HUGGING", "GOOGLE_", "AZURE_", "COLDSTART_")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


@pytest.fixture(autouse=True)
def hermetic(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No profile, no instance metadata, no kubeconfig, no token: a test that needs one makes its own."""
    for name in list(os.environ):
        if name.startswith(_CREDENTIALS):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    nowhere = str(home / "nowhere")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_CONFIG_FILE", nowhere)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", nowhere)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("KUBECONFIG", nowhere)
    monkeypatch.setenv("HF_HOME", str(home / "hub"))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("COLUMNS", "120")


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    """A copy of the shipped stack files that a test may change."""
    source = Path(__file__).parents[1] / "infra" / "stacks"
    copy = tmp_path / "stacks"
    shutil.copytree(source, copy)
    return copy
