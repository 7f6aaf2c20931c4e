"""Ten images, each with one kind of trap for whoever cuts layers again. Every one is valid for containerd and umoci."""

from __future__ import annotations

import gzip
import hashlib
import random
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

from tests.images.synthetic import MadeImage, Tar, image

DICE = random.Random(20261130)  # noqa: S311 - repeatable noise, nothing secret


def noise(size: int) -> bytes:
    return DICE.randbytes(size)


def plain(_: Path) -> MadeImage:
    """Modes, owners, times with fractions, symlinks of every sort, devices, set-id bits."""
    base = (
        Tar()
        .folder("./", mode=0o755)
        .folder("./usr/", mode=0o755, mtime=1_600_000_000)
        .folder("./tmp", mode=0o1777)
        .file("./usr/tool", noise(30_000), mode=0o4755, uid=0, gid=0)
        .file("./usr/group", noise(10), mode=0o2755, gid=50)
        .file("./usr/data", noise(50_000), mode=0o640, uid=1000, gid=1001, mtime=1_500_000_000.25)
        .file("./usr/empty", b"")
        .file("./usr/old", b"before 1970", mtime=-86_400)
        .symlink("./usr/relative", "data")
        .symlink("./usr/absolute", "/usr/data")
        .symlink("./usr/dangling", "../nowhere/at/all", uid=7, gid=8)
        .add("./usr/fifo", tarfile.FIFOTYPE, mode=0o600)
        .add("./usr/null", tarfile.CHRTYPE, mode=0o666, devmajor=1, devminor=3)
        .add("./usr/disk", tarfile.BLKTYPE, mode=0o660, devmajor=8, devminor=17, gid=6)
        .folder("./empty/", mode=0o700, uid=33)
    )
    return image(base, Tar().folder("usr/", mode=0o711, mtime=1_650_000_000).file("usr/more", noise(20_000)))


def whiteouts(_: Path) -> MadeImage:
    """Deleted, deleted and made again, deleted though never there, a folder deleted with all it held."""
    base = Tar().folder("a/").file("a/gone", noise(9_000)).file("a/stays").file("a/again", b"first")
    base.folder("a/tree").folder("a/tree/deep").file("a/tree/deep/file", noise(5_000)).file("top", b"top")
    upper = Tar().folder("a/").white_out("a/gone").white_out("a/again").file("a/again", b"second", mode=0o600)
    upper.white_out("a/tree").white_out("top")
    third = Tar().folder("a/").folder("a/tree/", mode=0o750).file("a/tree/new", b"another tree")
    return image(base, upper, third)


def opaque(_: Path) -> MadeImage:
    """An opaque folder hides what lies below, wherever its mark stands among its own layer's entries."""
    base = Tar().folder("d/").file("d/below", noise(3_000)).folder("d/sub").file("d/sub/below").folder("e/").file("e/x")
    upper = Tar().folder("d/", mode=0o710).file("d/before", b"1").opaque("d").file("d/after", b"2")
    upper.folder("d/sub", mode=0o701).file("d/sub/mine", b"3")
    return image(base, upper, Tar().folder("e/").opaque("e"))


def hard_links(_: Path) -> MadeImage:
    """Links within a layer, across layers, and one whose first name is replaced later."""
    base = Tar().folder("l/").file("l/b-first", noise(40_000), mode=0o755).link("l/c-second", "l/b-first", mode=0o755)
    base.link("l/a-third", "l/b-first", mode=0o755).file("l/single", noise(100))
    upper = Tar().folder("l/").file("l/b-first", b"replaced, the others stay linked")
    return image(base, upper, Tar().folder("m/").link("m/across", "l/single").symlink("m/sym", "across"))


def sparse(folder: Path) -> MadeImage:
    """Files with holes, in each of the three formats that containerd and umoci take (neither knows GNU's oldest)."""
    layers = [sparse_tar(folder, index, ["posix", version]) for index, version in enumerate(("0.0", "0.1", "1.0"))]
    return image(*layers)


def sparse_tar(folder: Path, index: int, form: list[str]) -> bytes:
    """A tar stream with files with holes, as GNU tar writes it in this format."""
    root = folder / f"sparse-{index}" / "s"
    root.mkdir(parents=True)
    with (root / f"holes-{index}").open("wb") as file:
        for place in range(3 + 20 * (index == 0)):  # over four segments need more map blocks in the old format
            file.seek(200_000 * place + 100_000)
            file.write(noise(8_192))
        file.truncate(5_000_000)
    with (root / f"ends-in-data-{index}").open("wb") as file:
        file.seek(300_000)
        file.write(noise(5_000))
    (root / f"only-hole-{index}").touch()
    with (root / f"only-hole-{index}").open("r+b") as file:
        file.truncate(1_000_000)
    version = [f"--sparse-version={form[1]}"] if form[1:] else []
    command = ["tar", "--sparse", f"--format={form[0]}", *version, "--sort=name", "--mtime=@1700000000", "--owner=0"]
    return subprocess.run([*command, "--group=0", "-c", "s"], cwd=root.parent, check=True, capture_output=True).stdout


def attributes(_: Path) -> MadeImage:
    """Extended attributes: text, binary, capabilities, on files and folders, and lost when the file is replaced."""
    capability = "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    base = Tar().folder("x/", pax_headers={"SCHILY.xattr.user.folder": "yes"})
    base.file("x/ping", noise(2_000), mode=0o755, pax_headers={"SCHILY.xattr.security.capability": capability})
    base.file("x/note", b"n", pax_headers={"SCHILY.xattr.user.note": "grüße", "SCHILY.xattr.user.second": "a=b"})
    base.file("x/replaced", b"r", pax_headers={"SCHILY.xattr.user.lost": "1"})
    return image(base, Tar().folder("x/").file("x/replaced", b"without attributes"))


def names(_: Path) -> MadeImage:
    """Long, odd and broken names and targets."""
    long = "/".join(["folder-with-a-rather-long-name"] * 9)
    base = Tar()
    for depth in range(1, 10):
        base.folder("/".join(["folder-with-a-rather-long-name"] * depth))
    base.file(f"{long}/file", noise(500)).symlink("long-link", f"/{long}/file").file("naïve 文件", b"u")
    base.file("with space and\nnewline", b"w").file("-leading-dash", b"d").file("...", b"dots").file("a" * 100, b"a")
    base.file("b" * 101, b"b").file("quote'\"\\", b"q")
    broken = (
        Tar(tarfile.GNU_FORMAT)
        .folder("raw")
        .file("raw/latin-\udce9t\udce9", b"not UTF-8")
        .file("raw/" + "\udcff" * 120, b"l")
    )
    return image(base, broken)


def kinds(_: Path) -> MadeImage:
    """Everything becomes something else in a later layer."""
    base = (
        Tar().file("file-to-folder", noise(4_000)).folder("folder-to-file").file("folder-to-file/inside", noise(2_000))
    )
    base.symlink("link-to-folder", "folder-to-link").folder("folder-to-link").file("folder-to-link/inside")
    base.file("file-to-link", b"f").file("link-target", b"t").folder("folder-to-fifo").file("folder-to-fifo/x")
    upper = Tar().folder("file-to-folder").file("file-to-folder/inside", b"i").file("folder-to-file", b"a file now")
    upper.folder("link-to-folder", mode=0o711).file("link-to-folder/inside", b"l").symlink(
        "folder-to-link", "/var/elsewhere"
    )
    upper.link("file-to-link", "link-target").add("folder-to-fifo", tarfile.FIFOTYPE)
    return image(base, upper)


def through_symlinks(_: Path) -> MadeImage:
    """Entries whose parents are symlinks in a lower layer, as builders without a real file system write them."""
    base = Tar().folder("usr").folder("usr/lib").file("usr/lib/old", noise(1_000)).file("usr/lib/gone", b"g")
    base.symlink("lib", "usr/lib").symlink("abs", "/usr/lib").folder("opt").symlink("opt/up", "../usr")
    upper = (
        Tar()
        .file("lib/new", noise(2_000))
        .file("abs/absolute", b"a")
        .file("opt/up/lib/nested", b"n")
        .white_out("lib/gone")
    )
    return image(base, upper)


def stored_oddly(_: Path) -> MadeImage:
    """A layer twice, an empty one, a plain one, gzip in several members, huge owners, doubled entries."""
    twice = Tar().folder("z/").file("z/file", noise(7_000), uid=3_000_000, gid=4_000_000).bytes()
    doubled = Tar().folder("z/").folder("./z/dots").folder("z//dots/./in/").file("z/./dots//in/name", b"n")
    doubled.file("z/double", b"first").file("z/double", b"second").folder("z/")
    empty = Tar().bytes()
    made = MadeImage([(twice, "gzip"), (empty, "gzip"), (twice, "gzip"), (doubled.bytes(), "none")])
    member = len(twice) // 2
    split = gzip.compress(twice[:member], mtime=0) + gzip.compress(twice[member:], mtime=0)
    plain_name, split_name = (
        f"sha256:{hashlib.sha256(gzip.compress(twice, 6, mtime=0)).hexdigest()}",
        f"sha256:{hashlib.sha256(split).hexdigest()}",
    )
    size = len(made.blobs.pop(plain_name))
    made.blobs[split_name] = split
    made.manifest = made.manifest.replace(plain_name.encode(), split_name.encode()).replace(
        f'"size": {size}'.encode(), f'"size": {len(split)}'.encode()
    )
    return made


TRAPS: dict[str, Callable[[Path], MadeImage]] = {
    trap.__name__: trap
    for trap in (plain, whiteouts, opaque, hard_links, sparse, attributes, names, kinds, through_symlinks, stored_oddly)
}
