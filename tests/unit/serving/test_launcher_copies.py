"""Copies of weights on a node: whole or not there, locked while used, removed oldest first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.launcher import copies, room
from serving.launcher.copies import (
    MARKER,
    Lock,
    boot_id,
    entry_name,
    flush_copy,
    is_complete,
    lock_path,
    partial_path,
    read_marker,
    safetensors_bytes,
    write_marker,
)
from serving.launcher.refusal import Refused
from serving.launcher.room import copies_of, make_room, remove_copy, tree_bytes

SOURCE = "s3://bucket/models/acme/tiny/aaaa/"


def make_copy(
    root: Path, name: str, size: int, *, used_at: float = 0.0, flushed: bool = True, source: str = SOURCE
) -> Path:
    """A complete copy of one file."""
    copy = root / name
    copy.mkdir(parents=True)
    (copy / "model.safetensors").write_bytes(b"x" * size)
    files = {"model.safetensors": size}
    write_marker(copy, {"format": 1, "source": source, "files": files, "flushed": flushed, "boot_id": boot_id()})
    Lock(lock_path(copy)).close()
    os.utime(lock_path(copy), (used_at, used_at))
    return copy


def test_a_whole_copy(tmp_path: Path) -> None:
    copy = make_copy(tmp_path, "a", 10)
    assert is_complete(copy, SOURCE)
    assert is_complete(copy)
    assert not is_complete(copy, SOURCE + "other/")
    assert safetensors_bytes(copy) == 10


@pytest.mark.parametrize(
    "damage", ["no marker", "broken marker", "file gone", "file short", "other format", "no files"]
)
def test_anything_less_is_not_there(tmp_path: Path, damage: str) -> None:
    copy = make_copy(tmp_path, "a", 10)
    marker = read_marker(copy)
    assert marker is not None
    match damage:
        case "no marker":
            (copy / MARKER).unlink()
        case "broken marker":
            (copy / MARKER).write_text("{")
        case "file gone":
            (copy / "model.safetensors").unlink()
        case "file short":
            (copy / "model.safetensors").write_bytes(b"x" * 9)
        case "other format":
            write_marker(copy, marker | {"format": 2})
        case _:
            write_marker(copy, marker | {"files": {}})
    assert not is_complete(copy, SOURCE)


def test_a_copy_that_was_never_flushed_ends_with_the_machines_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut files may have their size but not their content."""
    copy = make_copy(tmp_path, "a", 10, flushed=False)
    assert is_complete(copy, SOURCE)
    monkeypatch.setattr(copies, "boot_id", lambda: "another run")
    assert not is_complete(copy, SOURCE)
    flush_copy(copy)
    assert is_complete(copy, SOURCE)


@given(st.text(min_size=1), st.text(min_size=1))
def test_every_source_has_a_name_of_its_own(one: str, other: str) -> None:
    names = [entry_name(f"s3://b/{text}/") for text in (one, other)]
    assert (names[0] == names[1]) == (one == other)
    assert all("/" not in name and not name.startswith(".") and len(name) < 200 for name in names)


def test_names_are_readable() -> None:
    assert entry_name("s3://b/models/acme/tiny/0123/").startswith("acme-tiny-0123-")


def test_oldest_goes_first_and_no_more_than_needed(tmp_path: Path) -> None:
    for age, name in enumerate(["new", "old", "oldest"]):
        make_copy(tmp_path, name, 100, used_at=1000.0 - age)
    assert [copy.name for copy in copies_of(tmp_path)] == ["oldest", "old", "new"]
    limit = 3 * tree_bytes(tmp_path / "new")[0] + 50
    assert make_room(tmp_path / "incoming", 100, limit) == ["oldest"]
    assert not (tmp_path / "oldest").exists()
    assert is_complete(tmp_path / "old")


def test_nothing_goes_while_there_is_room(tmp_path: Path) -> None:
    make_copy(tmp_path, "a", 100)
    assert make_room(tmp_path / "incoming", 100, 10**6) == []
    assert is_complete(tmp_path / "a")


def test_a_copy_in_use_stays(tmp_path: Path) -> None:
    """Held by another process, as by another pod; the next oldest goes instead."""
    used, free = make_copy(tmp_path, "used", 100, used_at=1.0), make_copy(tmp_path, "free", 100, used_at=2.0)
    code = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_SH)
print("held", flush=True)
sys.stdin.read()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(lock_path(used))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert not remove_copy(used)
        limit = 2 * tree_bytes(used)[0] + 50
        assert make_room(tmp_path / "incoming", 100, limit) == ["free"]
        with pytest.raises(Refused, match="what else it holds is in use"):
            make_room(tmp_path / "incoming", 10**6, limit)
        assert holder.stdin is not None
        holder.stdin.close()
    assert is_complete(used)
    assert not free.exists()
    assert remove_copy(used)


def test_what_a_dead_pod_left_half_filled_goes_too(tmp_path: Path) -> None:
    copy = tmp_path / "dead"
    partial_path(copy).mkdir(parents=True)
    (partial_path(copy) / "model.safetensors.part").write_bytes(b"x" * 1000)
    Lock(lock_path(copy)).close()
    assert make_room(tmp_path / "incoming", 500, 1200) == ["dead"]
    assert not partial_path(copy).exists()


def test_a_full_disk_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr(room.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(Refused, match="10 bytes are free on its disk"):
        make_room(tmp_path / "incoming", 500, 10**9)


def test_locks(tmp_path: Path) -> None:
    """Many readers, one writer, nobody waits; the kernel drops a lock with its holder."""
    one, other = Lock(tmp_path / "x.lock"), Lock(tmp_path / "x.lock")
    assert one.take(shared=True)
    assert other.take(shared=True)
    assert not other.take(shared=False)
    other.close()
    third = Lock(tmp_path / "x.lock")
    assert not third.take(shared=False)
    one.drop()
    assert third.take(shared=False)
    assert not one.take(shared=True)
    third.close()
    assert one.take(shared=False)
    one.close()


def test_a_marker_is_never_half_written(tmp_path: Path) -> None:
    write_marker(tmp_path, {"format": 1})
    assert json.loads((tmp_path / MARKER).read_text()) == {"format": 1}
    assert [path.name for path in tmp_path.iterdir()] == [MARKER]
