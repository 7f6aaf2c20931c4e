"""Whatever is wrong with an image ends in words and a number, and nothing is written."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from scripts.cli import run
from tests.images.lab.large import GzipLayer, tiny_files
from tests.images.loopback_registry import Faults, LoopbackRegistry
from tests.images.synthetic import LAYER, MadeImage, Tar, digest, image, write_layout_of


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def with_layer(
    stored: bytes, *, tar: bytes | None = None, media_type: str | None = None, size: int | None = None
) -> MadeImage:
    """An image whose only layer is stored as these bytes."""
    made = image(tar if tar is not None else Tar().file("a").bytes())
    manifest = json.loads(made.manifest)
    made.blobs[digest(stored)] = stored
    manifest["layers"][0] |= {"digest": digest(stored), "size": size or len(stored)}
    if media_type:
        manifest["layers"][0]["mediaType"] = media_type
    made.manifest = json.dumps(manifest).encode()
    return made


def named(name: str, **attributes: object) -> bytes:
    """A tar stream with one entry of any name, which Python's own writer would not mind either."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo(name)
        for key, value in attributes.items():
            setattr(member, key, value)
        archive.addfile(member)
    return buffer.getvalue()


GOOD = Tar().file("a", b"x" * 5_000).file("b", bytes(range(256)) * 40).bytes()
PACKED = gzip.compress(GOOD, mtime=0)
CASES: dict[str, tuple[MadeImage, str]] = {
    "truncated gzip": (with_layer(PACKED[:-40], tar=GOOD), "truncated: the gzip stream ends in the middle"),
    "truncated tar": (
        with_layer(gzip.compress(GOOD[:6000]), tar=GOOD[:6000]),
        "truncated: the tar stream ends in the middle",
    ),
    "other tar stream": (with_layer(PACKED, tar=Tar().file("c").bytes()), "the configuration says sha256:"),
    "no gzip": (with_layer(b"this is no gzip at all"), "broken gzip"),
    "garbage behind gzip": (with_layer(PACKED + b"more than a header", tar=GOOD), "broken gzip"),
    "the beginning of a member behind gzip": (
        with_layer(PACKED + b"more", tar=GOOD),
        "truncated: the gzip stream ends",
    ),
    "broken zstd": (
        with_layer(b"this is no zstd", media_type="application/vnd.oci.image.layer.v1.tar+zstd"),
        "broken zstd",
    ),
    "unknown media type": (
        with_layer(PACKED, media_type="application/x-lz4"),
        "unknown media type 'application/x-lz4'",
    ),
    "encrypted": (
        with_layer(PACKED, media_type="application/vnd.oci.image.layer.v1.tar+gzip+encrypted"),
        "unknown media type",
    ),
    "foreign": (
        with_layer(PACKED, media_type="application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"),
        "unknown media type",
    ),
    "absolute path": (image(named("/etc/passwd")), "'/etc/passwd': an absolute path: refused"),
    "path upwards": (image(named("a/../../etc/passwd")), "leads out of the root: refused"),
    "hard link upwards": (image(named("a", type=tarfile.LNKTYPE, linkname="../b")), "leads out of the root: refused"),
    "hard link to nothing": (image(named("a", type=tarfile.LNKTYPE, linkname="b")), "leads to b, which is not a file"),
    "no tar": (
        image(b"these five hundred and twelve bytes are no tar header".ljust(1024, b"!")),
        "its checksum is wrong",
    ),
    "bomb": (image(Tar().file("zeros", bytes(80 << 20)).bytes()), "over 200 times as many, a layer bomb"),
    "circle of symlinks": (
        image(Tar().symlink("a", "b").symlink("b", "a").file("a/x")),
        "symlinks that lead in a circle",
    ),
    "parent is a file": (image(Tar().file("a").file("a/x")), "a is not a folder"),
    "more layers than the configuration": (
        image(GOOD, config={"rootfs": {"type": "layers", "diff_ids": []}}),
        "the manifest lists 1 layers, the configuration 0",
    ),
    "other platform": (image(GOOD, config={"architecture": "arm64"}), "made for linux/arm64, not for linux/amd64"),
    "windows": (image(GOOD, config={"os": "windows"}), "made for windows/amd64"),
    "no layer at all": (image(config={"rootfs": {"type": "layers", "diff_ids": []}}), "has no layers"),
    "a history that is no list": (image(GOOD, config={"history": {"created_by": "x"}}), "history: input should be a"),
    "a step that is no object": (image(GOOD, config={"history": ["x"]}), "history.0: input should be"),
    "a whiteout of no name": (image(GOOD, Tar().file(".wh.")), "a whiteout of no name: refused"),
    "a whiteout of the folder itself": (image(GOOD, Tar().file("a/.wh..")), "a whiteout of no name: refused"),
    "no configuration to speak of": (image(GOOD, config={"rootfs": None}), "is it a container image?"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("verb", ["inspect", "repack"])
def test_a_bad_image_is_refused_in_words(
    name: str, verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, words = CASES[name]
    made.write_layout(tmp_path / "image")
    out = tmp_path / "out"
    more = ["--to", f"oci:{out}:new"] if verb == "repack" else []

    code = run(["image", verb, f"oci:{tmp_path}/image:v1", *more])

    error = capsys.readouterr().err
    assert code == 1
    assert words in error
    assert "Traceback" not in error
    assert not out.exists()


def test_bytes_that_are_not_those_of_the_digest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = image(GOOD)
    folder = made.write_layout(tmp_path / "image")
    blob = folder / "blobs" / "sha256" / json.loads(made.manifest)["layers"][0]["digest"].removeprefix("sha256:")
    # The operating system in gzip's header: another blob of the same size that unpacks to the same stream.
    stored = blob.read_bytes()
    blob.write_bytes(stored[:9] + bytes([stored[9] ^ 1]) + stored[10:])

    assert run(["image", "inspect", f"oci:{folder}:v1"]) == 1
    assert "the manifest says sha256:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspect", "dev-lama-3-1-8b"], "Did you mean dev-llama-3-1-8b?"),
        (["inspect", "dev"], "is an environment"),
        (["inspect", "host.example/UPPER:tag"], "neither a stack nor an image"),
        (["inspect", "x:1", "--instance", "g6e.2xlarg"], "g6e.2xlarge"),
        (["inspect", "x:1", "--instance", "m7i.large"], "m7i.large"),
        (["inspect", "oci:/nowhere:v1"], "is not an OCI layout folder"),
        (["inspect", "oci:"], "names no path"),
        (["inspect", "docker-archive:/nowhere.tar"], "cannot be read"),
        (["inspect", "127.0.0.1:9/x:1", "--write"], "is an image, not a stack"),
        (["repack", "127.0.0.1:9/x:1", "--to", "127.0.0.1:9/x:1"], "is the source itself"),
        (["repack", "127.0.0.1:9/x:1", "--to", "docker-archive:x.tar"], "cannot be written to"),
        (["repack", "127.0.0.1:9/x:1", "--to", "x@sha256:" + "0" * 64], "names a digest"),
        (["repack", "127.0.0.1:9/x:1", "--to", "y:2", "--layers", "0"], "Allowed: auto, or 1 to 127"),
        (["repack", "127.0.0.1:9/x:1", "--to", "y:2", "--codec", "lz4"], "'gzip', 'zstd'"),
        (["repack", "127.0.0.1:9/x:1"], "--to"),
    ],
)
def test_bad_arguments_exit_with_2(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["image", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_registry_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["image", "inspect", "127.0.0.1:9/x:1"]) == 1
    assert "does not answer" in capsys.readouterr().err


def test_a_tag_that_moves_while_its_image_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = image(GOOD), image(Tar().file("other"))
    with LoopbackRegistry() as registry:
        registry.add("team/engine", "other", second)
        reference = registry.add("team/engine", "v1", first)
        registry.faults.moves_to = second.digest
        assert run(["image", "repack", reference, "--to", f"oci:{tmp_path}/out:new"]) == 1
    assert "the tag moved while its image was read" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_digest_cannot_move() -> None:
    first, second = image(GOOD), image(Tar().file("other"))
    with LoopbackRegistry(Faults(moves_to=second.digest)) as registry:
        registry.add("team/engine", "other", second)
        registry.add("team/engine", "v1", first)
        assert run(["image", "inspect", f"{registry.host}/team/engine@{first.digest}"]) == 0


def test_no_permission_to_push(capsys: pytest.CaptureFixture[str]) -> None:
    with LoopbackRegistry(Faults(refuse_push=403)) as registry:
        reference = registry.add("team/engine", "v1", image(GOOD))
        assert run(["image", "repack", reference, "--to", f"{registry.host}/team/engine:v2", "--layers", "2"]) == 1
        assert ("team/engine", "v2") not in registry.manifests
    assert "refuses access" in capsys.readouterr().err


def test_no_permission_to_pull(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with LoopbackRegistry(Faults(basic="bm9ib2R5OmtleQ==")) as registry:
        reference = registry.add("team/engine", "v1", image(GOOD))
        assert run(["image", "repack", reference, "--to", f"oci:{tmp_path}/out:new"]) == 1
    error = capsys.readouterr().err
    assert "refuses access" in error
    assert "bm9ib2R5OmtleQ==" not in error
    assert not (tmp_path / "out").exists()


def test_a_layer_that_ends_early_on_its_way(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    made = image(GOOD)
    name = json.loads(made.manifest)["layers"][0]["digest"]
    with LoopbackRegistry() as registry:
        reference = registry.add("team/engine", "v1", made)
        registry.blobs["team/engine", name] = registry.blobs["team/engine", name][:-100]
        assert run(["image", "repack", reference, "--to", f"oci:{tmp_path}/out:new"]) == 1
    assert "truncated" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    image(GOOD).write_layout(tmp_path / "image")
    (tmp_path / "file").write_text("in the way")
    assert run(["image", "repack", f"oci:{tmp_path}/image:v1", "--to", f"oci:{tmp_path}/file/out:new"]) in (1, 2)
    error = capsys.readouterr().err
    assert str(tmp_path / "file") in error
    assert "Traceback" not in error


def test_a_hundred_thousand_tiny_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blobs = tmp_path / "image" / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    with (blobs / "partial").open("wb") as file:
        layer = GzipLayer(file)
        for piece in tiny_files(100_000):
            layer.add(*piece)
        layer.close()
    (blobs / "partial").rename(blobs / layer.packed.hexdigest())
    listed = [{"mediaType": f"{LAYER}+gzip", "digest": f"sha256:{layer.packed.hexdigest()}", "size": layer.bytes}]
    write_layout_of(tmp_path / "image", listed, [f"sha256:{layer.unpacked.hexdigest()}"])
    assert run(["image", "inspect", f"oci:{tmp_path}/image:v1", "--json"]) == 0
    # Besides the files: usr/lib/python3/dist-packages, and a folder for every five hundred.
    assert json.loads(capsys.readouterr().out)["files"] == 100_000 + 4 + 200
