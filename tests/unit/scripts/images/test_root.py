"""Layers applied one over another."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.failure import Failure
from scripts.images.layer import Layer, read_layer
from scripts.images.layout import LayoutSource
from scripts.images.root import Root, merged
from tests.images.synthetic import MadeImage, Tar, image
from tests.images.traps import TRAPS


def layers_of(made: MadeImage, folder: Path) -> list[Layer]:
    source = LayoutSource(made.write_layout(folder), "v1")
    found = source.image("amd64")
    return [read_layer(source, blob, f"layer {index}", meter=lambda _: None) for index, blob in enumerate(found.layers)]


def root_of(folder: Path, *tars: Tar) -> Root:
    return merged(layers_of(image(*tars), folder), "it")


def paths(root: Root) -> list[str]:
    return [path for path, _ in root.walk()][1:]


def test_a_whiteout_hides_what_lies_below_and_never_its_own_layer(tmp_path: Path) -> None:
    root = root_of(
        tmp_path, Tar().file("a", b"1").file("b", b"22"), Tar().file("a", b"333").white_out("a").white_out("b")
    )
    assert paths(root) == ["a"]
    assert dict(root.walk())["a"].entry.content_bytes == 3
    assert [(hidden.entry.path, hidden.layer, hidden.by_layer) for hidden in root.hidden] == [("a", 0, 1), ("b", 0, 1)]


def test_an_opaque_folder_keeps_only_what_its_layer_brings(tmp_path: Path) -> None:
    root = merged(layers_of(TRAPS["opaque"](tmp_path), tmp_path / "image"), "it")
    assert paths(root) == ["d", "d/after", "d/before", "d/sub", "d/sub/mine", "e"]


def test_a_folder_merges_and_takes_the_last_attributes(tmp_path: Path) -> None:
    root = root_of(tmp_path, Tar().folder("d", mode=0o700).file("d/a"), Tar().folder("d", mode=0o711).file("d/b"))
    assert paths(root) == ["d", "d/a", "d/b"]
    assert dict(root.walk())["d"].entry.mode == 0o711


def test_anything_else_replaces(tmp_path: Path) -> None:
    root = merged(layers_of(TRAPS["kinds"](tmp_path), tmp_path / "image"), "it")
    kinds = {path: node.entry.kind for path, node in root.walk() if node.entry}
    assert kinds["file-to-folder"] == "dir"
    assert kinds["folder-to-file"] == "file"
    assert "folder-to-file/inside" not in kinds
    assert kinds["link-to-folder"] == "dir"
    assert kinds["folder-to-link"] == "symlink"
    assert kinds["folder-to-fifo"] == "fifo"


def test_a_parent_that_is_a_symlink_is_followed_within_the_root(tmp_path: Path) -> None:
    root = merged(layers_of(TRAPS["through_symlinks"](tmp_path), tmp_path / "image"), "it")
    below = [path for path in paths(root) if path.startswith("usr/lib/")]
    assert below == ["usr/lib/absolute", "usr/lib/nested", "usr/lib/new", "usr/lib/old"]


def test_a_symlink_never_leads_out_of_the_root(tmp_path: Path) -> None:
    root = root_of(tmp_path, Tar().symlink("out", "../../../../etc").file("out/passwd"))
    assert paths(root) == ["etc", "etc/passwd", "out"]


def test_hard_links_share_an_inode_across_layers(tmp_path: Path) -> None:
    nodes = dict(merged(layers_of(TRAPS["hard_links"](tmp_path), tmp_path / "image"), "it").walk())
    assert nodes["l/a-third"] is nodes["l/c-second"]
    assert nodes["l/b-first"] is not nodes["l/a-third"]
    assert nodes["m/across"] is nodes["l/single"]


def test_a_folder_that_no_layer_lists_is_there_all_the_same(tmp_path: Path) -> None:
    nodes = dict(root_of(tmp_path, Tar().file("a/b/c")).walk())
    assert nodes["a/b"].is_folder
    assert nodes["a/b"].entry is None


def test_what_no_runtime_could_apply_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="layer 1: a/b: a is not a folder"):
        root_of(tmp_path, Tar().file("a"), Tar().file("a/b"))
