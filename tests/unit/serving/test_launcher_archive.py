"""Archives of the compile cache: what is written comes back, and nothing else is believed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.launcher import archive, compile_cache
from serving.launcher.archive import Damaged, archive_errors, open_archive, pack, unpack
from serving.launcher.compile_cache import CacheJob, restore
from serving.launcher.refusal import Refused, explain

KEY = "k" * 64
INCLUDE = ("vllm/torch_compile_cache", "triton")
SUFFIXES = ("zst", "gz")


def cache(root: Path) -> Path:
    """What an engine may leave."""
    files = {
        "vllm/torch_compile_cache/aot/rank_0_0/model": b"artefact" * 1000,
        "vllm/torch_compile_cache/aot/inductor_cache/x/kernel.so": b"\x7fELF",
        "triton/abc/kernel.cubin": b"\0" * 4096,
        "vllm/assets/model_streamer/config.json": b"not kept",
    }
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (root / "vllm/torch_compile_cache/aot/inductor_cache/x/kernel.so").chmod(0o755)
    (root / "triton/link").symlink_to("/etc/passwd")
    return root


def tree(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_was_packed_comes_back(tmp_path: Path, suffix: str) -> None:
    root, packed = cache(tmp_path / "root"), tmp_path / f"archive.tar.{suffix}"
    assert pack(root, INCLUDE, KEY, packed, 10**6) == (3, 8 * 1000 + 4 + 4096)
    assert unpack(packed, tmp_path / "new", INCLUDE, KEY, 10**6) == 8 * 1000 + 4 + 4096
    kept = tree(tmp_path / "new")
    assert kept == {name: content for name, content in tree(root).items() if name in kept}
    assert sorted(kept) == [
        "triton/abc/kernel.cubin",
        "vllm/torch_compile_cache/aot/inductor_cache/x/kernel.so",
        "vllm/torch_compile_cache/aot/rank_0_0/model",
    ]
    assert os.access(tmp_path / "new/vllm/torch_compile_cache/aot/inductor_cache/x/kernel.so", os.X_OK)
    assert not os.access(tmp_path / "new/triton/abc/kernel.cubin", os.X_OK) or os.geteuid() == 0


def test_more_than_may_be_kept_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="12100 bytes of compile artefacts, more than max_bytes"):
        pack(cache(tmp_path / "root"), INCLUDE, KEY, tmp_path / "a.tar.zst", 12_000)


def test_nothing_to_keep(tmp_path: Path) -> None:
    assert pack(tmp_path, INCLUDE, KEY, tmp_path / "a.tar.zst", 1) == (0, 0)


def written(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], *, key: str = KEY) -> Path:
    """An archive with a right header and any members."""
    with open_archive(path, "wb") as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
        header = json.dumps({"format": 1, "key": key}).encode()
        info = tarfile.TarInfo("coldstart.json")
        info.size = len(header)
        tar.addfile(info, io.BytesIO(header))
        for member, content in members:
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


HOSTILE: dict[str, Callable[[], tarfile.TarInfo]] = {
    "climbs out": lambda: member("triton/../../../etc/cron.d/x"),
    "climbs out at once": lambda: member("../x"),
    "absolute": lambda: member("/etc/passwd"),
    "beside what is kept": lambda: member("vllm/assets/config.json"),
    "name that only begins like it": lambda: member("tritonic/x"),
    "symbolic link": lambda: member("triton/x", tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": lambda: member("triton/x", tarfile.LNKTYPE, "/etc/passwd"),
    "device": lambda: member("triton/x", tarfile.CHRTYPE),
    "pipe": lambda: member("triton/x", tarfile.FIFOTYPE),
    "directory": lambda: member("triton/x", tarfile.DIRTYPE),
    "backslash": lambda: member("triton\\..\\x"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_foreign_members_end_it(tmp_path: Path, what: str) -> None:
    packed = written(tmp_path / "a.tar.zst", [(member("triton/good"), b"good"), (HOSTILE[what](), b"bad")])
    with pytest.raises(Damaged, match="foreign: it holds"):
        unpack(packed, tmp_path / "deep" / "er" / "new", INCLUDE, KEY, 10**6)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {
        packed,
        tmp_path / "deep" / "er" / "new" / "triton" / "good",
    }


def test_a_link_that_waits_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "new/triton").mkdir(parents=True)
    (tmp_path / "new/triton/x").symlink_to(tmp_path / "victim")
    packed = written(tmp_path / "a.tar.zst", [(member("triton/x"), b"bad")])
    with pytest.raises(OSError, match="exists"):
        unpack(packed, tmp_path / "new", INCLUDE, KEY, 10**6)
    assert not (tmp_path / "victim").exists()


def test_a_member_twice(tmp_path: Path) -> None:
    packed = written(tmp_path / "a.tar.zst", [(member("triton/x"), b"one"), (member("triton/x"), b"two")])
    with pytest.raises(OSError, match="exists"):
        unpack(packed, tmp_path / "new", INCLUDE, KEY, 10**6)


def test_another_key(tmp_path: Path) -> None:
    packed = written(tmp_path / "a.tar.zst", [], key="other")
    with pytest.raises(Damaged, match="made for 'other', not for 'kkkkkkkkkkkkkkkk'"):
        unpack(packed, tmp_path / "new", INCLUDE, KEY, 10**6)


def test_no_header(tmp_path: Path) -> None:
    with open_archive(tmp_path / "a.tar.zst", "wb") as stream, tarfile.open(fileobj=stream, mode="w|") as tar:
        tar.addfile(member("triton/x"))
    with pytest.raises(Damaged, match="foreign: made for"):
        unpack(tmp_path / "a.tar.zst", tmp_path / "new", INCLUDE, KEY, 10**6)


def test_empty(tmp_path: Path) -> None:
    with open_archive(tmp_path / "a.tar.zst", "wb") as stream, tarfile.open(fileobj=stream, mode="w|"):
        pass
    with pytest.raises(Damaged, match="it is empty"):
        unpack(tmp_path / "a.tar.zst", tmp_path / "new", INCLUDE, KEY, 10**6)


def test_more_than_it_may_be(tmp_path: Path) -> None:
    """A few packed bytes that become many."""
    packed = written(tmp_path / "a.tar.zst", [(member(f"triton/{n}"), b"\0" * 10**6) for n in range(5)])
    assert packed.stat().st_size < 10**5
    with pytest.raises(Damaged, match="unpacks to more than 3000000 bytes"):
        unpack(packed, tmp_path / "new", INCLUDE, KEY, 3 * 10**6)


@dataclass(frozen=True)
class OneArchive:
    """S3 with one object in it: an archive and the SHA-256 that its writer recorded."""

    body: bytes
    sha256: str

    def head_object(self, **_: str) -> dict[str, Any]:
        return {"ETag": "e", "ContentLength": len(self.body), "Metadata": {"sha256": self.sha256}}

    def get_object(self, **asked: str) -> dict[str, Any]:
        first, _, last = asked["Range"].removeprefix("bytes=").partition("-")
        return {"Body": io.BytesIO(self.body[int(first) : int(last) + 1])}


def damaged(data: st.DataObject, good: bytes) -> bytes:
    """Cut short, or with one byte changed."""
    at = data.draw(st.integers(0, len(good) - 1))
    if data.draw(st.booleans()):
        return good[:at]
    return good[:at] + bytes([good[at] ^ data.draw(st.integers(1, 255))]) + good[at + 1 :]


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_unpacking_a_damaged_archive_fails_only_in_known_ways(tmp_path: Path, suffix: str, data: st.DataObject) -> None:
    """Nor does it write outside its folder. That nothing wrong comes out is the work of the SHA-256, below."""
    good = tmp_path / f"good.tar.{suffix}"
    if not good.exists():
        pack(cache(tmp_path / "root"), INCLUDE, KEY, good, 10**6)
    with tempfile.TemporaryDirectory(dir=tmp_path) as name:
        bad, out = Path(name) / f"bad.tar.{suffix}", Path(name) / "out"
        bad.write_bytes(damaged(data, good.read_bytes()))
        with contextlib.suppress(Damaged, OSError, *archive_errors()):
            unpack(bad, out, INCLUDE, KEY, 10**6)
        assert {path.name for path in Path(name).iterdir()} <= {bad.name, out.name}
        assert all(path.startswith(INCLUDE) for path in tree(out))


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_archive_is_never_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, data: st.DataObject
) -> None:
    """Tar stops at a header it can't read, and zstd as written here has no checksum: the recorded SHA-256 tells."""
    if suffix == "gz":
        monkeypatch.setattr(archive, "_zstd", lambda: None)
    good = tmp_path / f"good.tar.{suffix}"
    if not good.exists():
        pack(cache(tmp_path / "root"), INCLUDE, KEY, good, 10**6)
    body = good.read_bytes()
    stored = OneArchive(damaged(data, body), hashlib.sha256(body).hexdigest())
    monkeypatch.setattr(compile_cache, "s3_client", lambda _: stored)
    restored = tmp_path / "restored"
    job = CacheJob(uri="s3://bucket/", key=KEY, root=str(restored), include=INCLUDE, max_bytes=10**6, max_s=10.0)
    found = restore(job)
    assert (found["restore"], found["etag"]) == ("skipped", "e")
    assert str(found["reason"]).endswith("its SHA-256 is not the one recorded")
    assert not tree(restored)


def test_one_image_always_answers_the_same_codec() -> None:
    assert archive.codec() == "zst"


def test_without_zstd_it_is_gzip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(archive, "_zstd", lambda: None)
    assert archive.codec() == "gz"
    packed = tmp_path / f"archive.tar.{archive.codec()}"
    pack(cache(tmp_path / "root"), INCLUDE, KEY, packed, 10**6)
    assert packed.read_bytes()[:2] == b"\x1f\x8b"
    assert unpack(packed, tmp_path / "new", INCLUDE, KEY, 10**6) == 12100


def test_a_full_disk_is_told_as_one() -> None:
    assert explain(OSError(errno.ENOSPC, "No space left on device", "/cache/x")) == "no space left on /cache/x"
