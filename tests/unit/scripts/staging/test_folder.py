"""A folder as a source: what it lists, what it refuses, and when it has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from budget.problems import BadInput
from scripts.failure import Failure
from scripts.staging.folder import FolderSource, open_folder, sample
from scripts.staging.source import read
from tests.aws.made_models import model_files, write

MIB = 2**20


def opened(folder: Path, files: dict[str, bytes] | None = None) -> FolderSource:
    return open_folder(write(folder, files or model_files()), name="org/tuned")


def test_files_are_listed_with_their_sizes(tmp_path: Path) -> None:
    source = opened(tmp_path, {"b.json": b"xyz", "a/c.json": b""})
    assert [(file.path, file.bytes) for file in source.files] == [("a/c.json", 0), ("b.json", 3)]
    assert read(source, source.files[1], 1, 2) == b"yz"


def test_the_same_content_elsewhere_is_the_same_revision(tmp_path: Path) -> None:
    first, second = opened(tmp_path / "one"), opened(tmp_path / "two")
    assert first.revision == second.revision
    assert len(first.revision) == 40
    assert first.identity == f"folder:{first.revision}"


def test_what_no_engine_reads_does_not_change_the_revision(tmp_path: Path) -> None:
    before = opened(tmp_path).revision
    write(tmp_path, {"README.md": b"new words", "optimizer.pt": b"x", "train.log": b"y"})
    assert open_folder(tmp_path, name="org/tuned").revision == before


@pytest.mark.parametrize("path", ["config.json", "model-00002-of-00002.safetensors"])
def test_one_byte_of_what_engines_read_changes_it(tmp_path: Path, path: str) -> None:
    files = model_files()
    before = opened(tmp_path / "one", files).revision
    changed = bytearray(files[path])
    changed[-1] ^= 1
    assert opened(tmp_path / "two", files | {path: bytes(changed)}).revision != before


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 100 * 2**30))
@example(17_179_869_185)  # a size at which rounding in floating point loses the last byte
def test_pieces_of_a_file_lie_within_it_and_are_few(file_bytes: int) -> None:
    pieces = list(sample(file_bytes))
    assert all(offset >= 0 and offset + length <= file_bytes for offset, length in pieces)
    assert pieces[0][0] == 0
    assert pieces[-1][0] + pieces[-1][1] == file_bytes
    assert sum(length for _, length in pieces) <= 16 * MIB


def test_links_inside_the_folder_are_followed(tmp_path: Path) -> None:
    source_files = {"blobs.json": b"{}"}
    write(tmp_path, source_files)
    (tmp_path / "config.json").symlink_to("blobs.json")
    assert [file.path for file in open_folder(tmp_path, name="org/x").files] == ["blobs.json", "config.json"]


def test_everything_that_is_no_file_of_the_folder_is_told(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", {"secret.json": b"{}"})
    folder = write(tmp_path / "model", {"config.json": b"{}"})
    (folder / "leaves.json").symlink_to(outside / "secret.json")
    (folder / "leaves-too").symlink_to(outside)
    (folder / "dangling.json").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.json")
    with pytest.raises(BadInput) as error:
        open_folder(folder, name="org/x")
    said = str(error.value)
    assert "'leaves.json': a link that leaves the folder" in said
    assert "'leaves-too': a link that leaves the folder" in said
    assert "'dangling.json': a link to nothing" in said
    assert "'pipe.json': not a regular file" in said
    assert "cp -rL" in said


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a folder"):
        open_folder(tmp_path / "nowhere", name="org/x")
    with pytest.raises(BadInput, match="is empty"):
        open_folder(tmp_path, name="org/x")


@pytest.mark.parametrize("change", ["write", "add", "remove"])
def test_a_folder_that_changes_is_noticed(tmp_path: Path, change: str) -> None:
    source = opened(tmp_path)
    source.check_unchanged()
    if change == "write":
        os.utime(tmp_path / "config.json", ns=(1, 1))
    elif change == "add":
        write(tmp_path, {"more.json": b"{}"})
    else:
        (tmp_path / "generation_config.json").unlink()
    with pytest.raises(Failure, match="changed while it was staged"):
        source.check_unchanged()


def test_a_file_that_becomes_shorter_is_noticed(tmp_path: Path) -> None:
    source = opened(tmp_path, {"config.json": b"0123456789"})
    (tmp_path / "config.json").write_bytes(b"01234")
    with pytest.raises(Failure, match="became shorter"):
        read(source, source.files[0], 0, 10)


def test_a_file_that_is_gone_is_noticed(tmp_path: Path) -> None:
    source = opened(tmp_path, model_files())
    source.close()
    (tmp_path / "config.json").unlink()
    file = next(file for file in source.files if file.path == "config.json")
    with pytest.raises(Failure, match="cannot be opened: No such file"):
        read(source, file, 0, 1)
