"""The repacked root is the original's: umoci unpacks both, and what its mtree says of them is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.cli import run
from tests.images.traps import TRAPS
from tests.images.unpacked import mtree


@pytest.mark.parametrize("trap", TRAPS)
def test_every_trap_comes_back(trap: str, tmp_path: Path) -> None:
    TRAPS[trap](tmp_path).write_layout(tmp_path / "from")
    assert run(["image", "repack", f"oci:{tmp_path}/from:v1", "--to", f"oci:{tmp_path}/to:v2", "--layers", "3"]) == 0
    assert mtree(tmp_path / "to", "v2", tmp_path / "after") == mtree(tmp_path / "from", "v1", tmp_path / "before")


@pytest.mark.parametrize("trap", ["hard_links", "whiteouts", "opaque"])
def test_layers_that_are_kept_still_apply(trap: str, tmp_path: Path) -> None:
    TRAPS[trap](tmp_path).write_layout(tmp_path / "from")
    arguments = ["--to", f"oci:{tmp_path}/to:v2", "--layers", "2", "--keep", "1"]
    assert run(["image", "repack", f"oci:{tmp_path}/from:v1", *arguments]) == 0
    assert mtree(tmp_path / "to", "v2", tmp_path / "after") == mtree(tmp_path / "from", "v1", tmp_path / "before")


def test_a_repack_of_a_repack_changes_nothing_more(tmp_path: Path) -> None:
    TRAPS["plain"](tmp_path).write_layout(tmp_path / "from")
    for source, target in (("from:v1", "one:v2"), ("one:v2", "two:v3")):
        assert (
            run(["image", "repack", f"oci:{tmp_path}/{source}", "--to", f"oci:{tmp_path}/{target}", "--layers", "3"])
            == 0
        )
    assert mtree(tmp_path / "two", "v3", tmp_path / "after") == mtree(tmp_path / "from", "v1", tmp_path / "before")
