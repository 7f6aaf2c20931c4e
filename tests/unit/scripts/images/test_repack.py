"""The same root file system in other layers."""

from __future__ import annotations

import hashlib
import json
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from budget.instances import gpu_instance
from budget.problems import BadInput
from scripts.cli import run
from scripts.failure import Failure
from scripts.images.index import LayerIndex
from scripts.images.layer import Layer, read_layer
from scripts.images.layout import LayoutSource, LayoutTarget
from scripts.images.prediction import puller
from scripts.images.repack import FROM, Repacked, Wish, repack
from scripts.images.root import Root, merged
from tests.images.loopback_registry import Faults, LoopbackRegistry
from tests.images.synthetic import MadeImage, Tar, image
from tests.images.traps import TRAPS, noise, sparse_tar
from tests.unit.scripts.images.test_tar_stream import expanded


class Quiet:
    """A meter that nobody looks at."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, size: int) -> None:
        pass


def repacked(made: MadeImage, folder: Path, tag: str = "new", **wish: Any) -> Repacked:
    made.write_layout(folder / "from")
    return cut_again(folder, tag, **wish)


def cut_again(folder: Path, tag: str = "new", **wish: Any) -> Repacked:
    return repack(
        LayoutSource(folder / "from", "v1"),
        LayoutTarget(folder / "to", tag),
        "amd64",
        puller(gpu_instance("g6e.2xlarge")),
        Wish(**wish),
        index=LayerIndex(folder / "index"),
        meter=Quiet,
    )


def layers_at(folder: Path, tag: str) -> tuple[list[Layer], list[bytes], Mapping[str, Any]]:
    source, spools = LayoutSource(folder, tag), []
    found = source.image("amd64")
    layers = []
    for index, blob in enumerate(found.layers):
        spool = folder / f"spool-{tag}-{index}"
        layers.append(read_layer(source, blob, str(index), meter=lambda _: None, spool=spool))
        spools.append(spool.read_bytes())
    return layers, spools, found.config


def facts(root: Root, spools: list[bytes]) -> dict[str, object]:
    """Everything of a root file system that a process could see."""
    names: dict[int, list[str]] = {}
    for path, node in root.walk():
        names.setdefault(id(node), []).append(path)
    seen: dict[str, object] = {}
    for path, node in root.walk():
        entry = node.entry
        if entry is None:
            seen[path] = "a folder that no layer lists"
            continue
        content = expanded(entry, spools[node.layer]) if entry.kind == "file" else b""
        seen[path] = (
            entry.kind,
            entry.mode,
            entry.uid,
            entry.gid,
            entry.mtime_ns,
            entry.target if entry.kind == "symlink" else None,
            entry.device,
            sorted(entry.xattrs.items()),
            entry.content_bytes,
            hashlib.sha256(content).hexdigest(),
            names[id(node)],
        )
    return seen


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_the_root_file_system_is_the_same(trap: str, codec: str, tmp_path: Path) -> None:
    repacked(TRAPS[trap](tmp_path), tmp_path, layers=3, codec=codec)
    before, old, _ = layers_at(tmp_path / "from", "v1")
    after, new, _ = layers_at(tmp_path / "to", "new")
    expected, found = facts(merged(before, "old"), old), facts(merged(after, "new"), new)
    assert {path: found[path] for path in expected if expected[path] != "a folder that no layer lists"} == {
        path: value for path, value in expected.items() if value != "a folder that no layer lists"
    }
    assert found.keys() == expected.keys()


def test_gnu_tars_oldest_sparse_files_become_ones_that_containerd_reads(tmp_path: Path) -> None:
    repacked(image(sparse_tar(tmp_path, 0, ["gnu"])), tmp_path, layers=1)
    (layer,), (spool,), _ = layers_at(tmp_path / "to", "new")
    entry = next(entry for entry in layer.entries if entry.path == "s/holes-0")
    assert expanded(entry, spool) == (tmp_path / "sparse-0" / "s" / "holes-0").read_bytes()
    assert b"S" not in {
        spool[at + 156 : at + 157] for at in range(0, len(spool), 512) if spool[at + 257 : at + 262] == b"ustar"
    }


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_the_same_input_gives_the_same_digests(codec: str, tmp_path: Path) -> None:
    made = image(*[Tar().file(f"lib/f{index}", noise(20_000)) for index in range(5)])
    first = repacked(made, tmp_path / "one", layers=4, codec=codec)
    again = repacked(made, tmp_path / "two", layers=4, codec=codec)
    assert first.digest == again.digest


def test_every_layer_lists_the_folders_above_its_files(tmp_path: Path) -> None:
    base = Tar().folder("a", mode=0o711).folder("a/b", mode=0o712, uid=5)
    base.file("a/b/one", noise(50_000)).file("a/b/two", noise(50_000))
    repacked(image(base), tmp_path, layers=2)
    layers, _, _ = layers_at(tmp_path / "to", "new")
    assert len(layers) == 2
    for layer in layers:
        folders = {entry.path: (entry.mode, entry.uid) for entry in layer.entries if entry.kind == "dir"}
        assert folders == {"": (0o755, 0), "a": (0o711, 0), "a/b": (0o712, 5)}


def test_configuration_and_history_are_kept_and_marked(tmp_path: Path) -> None:
    made = image(Tar().file("a", noise(9000)), Tar().file("b", noise(9000)), Tar().file("app/c", b"code"))
    done = repacked(made, tmp_path, layers=2, keep=1)
    _, _, config = layers_at(tmp_path / "to", "new")
    old = json.loads(next(content for content in made.blobs.values() if content.startswith(b"{")))
    assert {key: value for key, value in config.items() if key not in ("rootfs", "history")} == {
        key: value for key, value in old.items() if key not in ("rootfs", "history")
    }
    steps = [(step.get("created_by", "").split(":")[0], bool(step.get("empty_layer"))) for step in config["history"]]
    assert steps == [
        ("step 0", True),
        ("step 1", True),
        ("coldstart image repack", False),
        ("coldstart image repack", False),
        ("step 2", False),
    ]
    manifest = json.loads((tmp_path / "to" / "blobs" / "sha256" / done.digest[7:]).read_text())
    assert manifest["annotations"] == {FROM: made.digest}
    assert config["rootfs"]["diff_ids"][-1] == old["rootfs"]["diff_ids"][-1]


def test_kept_layers_are_the_very_same_blobs(tmp_path: Path) -> None:
    made = image(Tar().file("a", noise(9000)).file("gone"), Tar().file("b", b"code").white_out("gone"))
    repacked(made, tmp_path, layers=2, keep=1)
    layers, _, _ = layers_at(tmp_path / "to", "new")
    assert layers[-1].digest == json.loads(made.manifest)["layers"][-1]["digest"]
    assert [path for path, _ in merged(layers, "new").walk()] == ["", "a", "b"]


def test_a_code_change_sends_the_code_alone(tmp_path: Path) -> None:
    base = Tar().file("lib/torch", noise(200_000)).file("lib/cuda", noise(200_000))
    repacked(image(base.bytes(), Tar().file("app/main", b"1")), tmp_path / "x", layers=2, keep=1)
    again = repacked(image(base.bytes(), Tar().file("app/main", b"2")), tmp_path / "x", "newer", layers=2, keep=1)
    assert again.sent_bytes < 1_000


def test_what_later_layers_hide_is_gone(tmp_path: Path) -> None:
    made = image(Tar().file("secret", noise(90_000)).file("kept", noise(10_000)), Tar().white_out("secret"))
    done = repacked(made, tmp_path, layers=1)
    assert done.hidden_bytes > 80_000
    assert sum(each.bytes for each in done.after) < 20_000


def test_waste_is_dropped_when_asked_and_licences_stay(tmp_path: Path) -> None:
    base = (
        Tar().file("bin/run", noise(9000)).file("root/.cache/pip/x", noise(50_000)).file("usr/share/man/man1/a.1", b"m")
    )
    base.file("usr/share/doc/a/copyright", b"free").file("usr/bin/gcc", noise(3000))
    done = repacked(image(base), tmp_path, drop_waste=True)
    layers, _, _ = layers_at(tmp_path / "to", "new")
    files = {entry.path for layer in layers for entry in layer.entries if entry.kind == "file"}
    assert files == {"bin/run", "usr/share/doc/a/copyright", "usr/bin/gcc"}
    assert (done.dropped_files, done.dropped_bytes) == (2, 50_001)


def test_layers_that_pull_well_stay_as_they_are(tmp_path: Path) -> None:
    made = image(*[Tar().file(f"lib/f{index}", noise(30_000)) for index in range(4)])
    done = repacked(made, tmp_path)
    layers, _, _ = layers_at(tmp_path / "to", "new")
    assert done.unchanged
    assert [layer.digest for layer in layers] == [layer["digest"] for layer in json.loads(made.manifest)["layers"]]


def test_a_fat_layer_is_cut_and_predicted_to_pull_faster(tmp_path: Path) -> None:
    fat = Tar()
    for index in range(60):
        fat.file(f"lib/f{index}", bytes(4_000_000) + noise(40_000))
    done = repacked(image(Tar().file("a"), fat), tmp_path)
    assert not done.unchanged
    assert len(done.after) > 2
    assert done.after_pull.expected_s < done.before_pull.expected_s


def test_an_image_of_nothing_but_folders(tmp_path: Path) -> None:
    done = repacked(image(Tar().folder("a").folder("a/b")), tmp_path, layers=5)
    layers, _, _ = layers_at(tmp_path / "to", "new")
    assert len(done.after) == 1
    assert [entry.path for entry in layers[0].entries] == ["", "a", "a/b"]


def test_more_layers_than_fit_or_than_there_are(tmp_path: Path) -> None:
    made = image(Tar().file("a"), Tar().file("b"))
    with pytest.raises(BadInput, match="Allowed: 0 to 1"):
        repacked(made, tmp_path, keep=2)
    with pytest.raises(BadInput, match="127 layers in all"):
        repacked(made, tmp_path, keep=1, layers=127)


def test_a_full_disk_is_said_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 10})
    monkeypatch.setattr("scripts.images.repack.shutil.disk_usage", lambda _: usage)
    with pytest.raises(Failure, match="set TMPDIR to a larger disk"):
        repacked(image(Tar().file("a")), tmp_path)


def test_a_disk_that_fills_up_meanwhile(tmp_path: Path) -> None:
    made = image(Tar().file("a", noise(3_000_000)))
    made.write_layout(tmp_path / "from")
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, most[1]))
    try:
        with pytest.raises(Failure, match=r"no room for tar streams: .*: set TMPDIR to a larger disk"):
            cut_again(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert not (tmp_path / "to").exists()


def test_docker_save_files_are_read_and_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = TRAPS["whiteouts"](tmp_path)
    archive = made.write_archive(tmp_path / "saved.tar")
    assert run(["image", "repack", f"docker-archive:{archive}", "--to", f"oci:{tmp_path}/to:new"]) == 0
    made.write_layout(tmp_path / "from")
    before, old, _ = layers_at(tmp_path / "from", "v1")
    after, new, _ = layers_at(tmp_path / "to", "new")
    assert facts(merged(after, "new"), new).keys() == facts(merged(before, "old"), old).keys()
    assert {layer.codec for layer in after} == {"gzip"}


def test_between_registries_only_what_is_missing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = image(Tar().file("lib/a", noise(50_000)), Tar().file("app/b", noise(5_000)))
    with LoopbackRegistry(Faults(token="t0k3n")) as registry:  # noqa: S106 - of this test
        reference = registry.add("team/engine", "v1", made)
        arguments = ["image", "repack", reference, "--to", f"{registry.host}/team/engine:v2", "--layers", "2", "--json"]
        assert run(arguments) == 0
        first = json.loads(capsys.readouterr().out)
        assert run(arguments) == 0
        second = json.loads(capsys.readouterr().out)
        assert registry.manifests["team/engine", "v1"] == made.manifest
        assert ("team/engine", first["digest"]) in registry.manifests
    assert first["sent_bytes"] > 50_000
    assert second["sent_bytes"] == 0
    assert first["digest"] == second["digest"]
