"""What is written can be read, here, by Python and by GNU tar; what others write is read as they meant it."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.failure import Failure
from scripts.images.entry import Entry
from scripts.images.tar_reader import TarReader
from scripts.images.tar_writer import sparse_map, stream
from tests.images.synthetic import Tar
from tests.images.traps import sparse_tar

NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=120).filter(
    lambda name: name not in (".", "..")
)
PATHS = st.lists(NAMES, min_size=1, max_size=5).map("/".join)
ENTRIES = st.builds(
    Entry,
    path=PATHS,
    kind=st.sampled_from(["file", "dir", "fifo"]),
    mode=st.integers(0, 0o7777),
    uid=st.integers(0, 2**31),
    gid=st.integers(0, 2**31),
    mtime_ns=st.integers(-(10**18), 10**20),
    xattrs=st.dictionaries(
        st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1).map("user.{}".format),
        st.binary(max_size=200),
        max_size=3,
    ),
)


def read(content: bytes) -> list[Entry]:
    return list(TarReader(iter([content]), "here"))


def written(entries: list[tuple[Entry, bytes]]) -> bytes:
    return b"".join(stream((entry, iter([content])) for entry, content in entries))


@settings(max_examples=40, deadline=None)
@given(entry=ENTRIES, content=st.binary(max_size=2000))
def test_every_entry_comes_back_as_it_was(entry: Entry, content: bytes) -> None:
    if entry.kind == "file":
        entry.content_bytes = entry.stored_bytes = len(content)
    (found,) = read(written([(entry, content)]))
    entry.offset = found.offset
    assert found == entry


@settings(max_examples=40, deadline=None)
@given(entry=ENTRIES, content=st.binary(max_size=2000))
def test_python_reads_what_we_write(entry: Entry, content: bytes) -> None:
    if entry.kind == "file":
        entry.content_bytes = entry.stored_bytes = len(content)
    with tarfile.open(fileobj=io.BytesIO(written([(entry, content)])), encoding="utf-8") as archive:
        (member,) = archive.getmembers()
        assert member.name == entry.path
        assert (member.uid, member.gid, member.mode) == (entry.uid, entry.gid, entry.mode)
        assert member.mtime == pytest.approx(entry.mtime_ns / 1e9, abs=1e-3)
        if entry.kind == "file":
            assert archive.extractfile(member).read() == content


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 5000), max_size=6), st.integers(0, 4000))
def test_pieces_of_any_size_read_the_same(sizes: list[int], rest: int) -> None:
    tar = Tar().file("a", b"1" * 3000).folder("b").file("b/c", b"2" * rest).bytes()
    pieces, at = [], 0
    for size in sizes:
        pieces.append(tar[at : at + size])
        at += size
    assert list(TarReader(iter([*filter(None, pieces), tar[at:]] if at < len(tar) else pieces), "here")) == read(tar)


@pytest.mark.parametrize("form", [["gnu"], ["posix", "0.0"], ["posix", "0.1"], ["posix", "1.0"]])
def test_every_sparse_format_gives_the_file_that_gnu_tar_saw(form: list[str], tmp_path: Path) -> None:
    tar = sparse_tar(tmp_path, 0, form)
    found = {entry.path: entry for entry in read(tar)}
    for name in ("holes-0", "ends-in-data-0", "only-hole-0"):
        entry, original = found[f"s/{name}"], (tmp_path / "sparse-0" / "s" / name).read_bytes()
        assert entry.content_bytes == len(original)
        assert expanded(entry, tar) == original
    assert len(found["s/holes-0"].segments) == 23


def expanded(entry: Entry, tar: bytes) -> bytes:
    content, at = bytearray(entry.content_bytes), entry.offset
    whole = ((0, entry.content_bytes),)
    for start, length in whole if entry.segments is None else entry.segments:
        content[start : start + length] = tar[at : at + length]
        at += length
    return bytes(content)


def test_gnu_tar_restores_the_sparse_files_that_we_write(tmp_path: Path) -> None:
    tar = sparse_tar(tmp_path, 0, ["gnu"])
    entries = [(entry, tar[entry.offset : entry.offset + entry.stored_bytes]) for entry in read(tar)]
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run(["tar", "-x"], cwd=out, input=written(entries), check=True)
    for name in ("holes-0", "ends-in-data-0", "only-hole-0"):
        assert (out / "s" / name).read_bytes() == (tmp_path / "sparse-0" / "s" / name).read_bytes()


def test_a_map_of_a_file_that_ends_in_a_hole_says_so() -> None:
    entry = Entry(path="f", kind="file", content_bytes=1000, segments=((10, 5),), stored_bytes=5)
    assert sparse_map(entry).rstrip(b"\0") == b"2\n10\n5\n1000\n0\n"


def test_paths_have_one_spelling() -> None:
    tar = Tar().file("./a//b/./c").folder("d/").folder("./").bytes()
    assert [entry.path for entry in read(tar)] == ["a/b/c", "d", ""]


def test_names_that_are_no_utf8_survive() -> None:
    tar = Tar(tarfile.GNU_FORMAT).file("caf\udce9").file("x" * 150 + "\udcff").bytes()
    entries = read(tar)
    again = read(written([(entry, tar[entry.offset : entry.offset + entry.stored_bytes]) for entry in entries]))
    assert [entry.path for entry in again] == ["caf\udce9", "x" * 150 + "\udcff"]


@pytest.mark.parametrize("end", [0, 512, 1024, 10_000])
def test_an_archive_may_end_with_or_without_its_mark(end: int) -> None:
    tar = Tar().file("a", b"").bytes()[:512] + bytes(end // 512 * 512)
    assert [entry.path for entry in read(tar)] == ["a"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (Tar().file("a").bytes()[:700], "truncated"),
        (Tar().file("a", b"").bytes()[:512] + bytes(512) + b"x" * 512, "something follows the tar stream's end"),
        (Tar().file("a", pax_headers={"mtime": "soon"}).bytes(), "is not a time"),
        (Tar().file("a", pax_headers={"uid": "me"}).bytes(), "is not a number"),
        (Tar().file("a", pax_headers={"SCHILY.xattr.user.big": "x" * (2 << 20)}).bytes(), "not trusted"),
    ],
)
def test_what_cannot_be_trusted_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(Failure, match=words):
        read(content)
