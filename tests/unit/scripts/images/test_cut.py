"""Which file goes into which layer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budget.instances import gpu_instance
from scripts.images.cut import COUNTS, GRAIN, even_cut
from scripts.images.entry import Entry
from scripts.images.prediction import Sizes, puller
from scripts.images.root import Node, Root

NODE = puller(gpu_instance("g6e.4xlarge"))
MB = 1_000_000


def root_of(files: dict[str, int]) -> Root:
    root = Root()
    for path, size in files.items():
        *folders, name = path.split("/")
        node = root.top
        for folder in folders:
            node = node.children.setdefault(folder, Node(Entry(path=folder, kind="dir"), 0, {}))
        entry = Entry(path=path, kind="file", content_bytes=size, stored_bytes=size, packed_bytes=size // 2)
        node.children[name] = Node(entry, 0)
    return root


FILES = st.dictionaries(
    st.lists(st.sampled_from(["torch", "lib", "nvidia", "cublas", "a", "b"]), min_size=1, max_size=4).flatmap(
        lambda parts: st.integers(0, 50).map(lambda number: "/".join([*parts, f"f{number}"]))
    ),
    st.integers(0, 400 * MB),
    min_size=1,
    max_size=60,
)


@settings(max_examples=40, deadline=None)
@given(files=FILES, count=st.integers(1, 40))
def test_every_file_is_in_exactly_one_layer(files: dict[str, int], count: int) -> None:
    cut = even_cut(root_of(files), NODE, "gzip", packed=sum(files.values()) / 2 + 1, count=count)
    assert sorted(path for layer in cut.layers for inode in layer for path in inode.paths) == sorted(files)
    assert len(cut.layers) <= count


@settings(max_examples=40, deadline=None)
@given(files=FILES, count=st.integers(1, 40))
def test_no_layer_is_much_larger_than_it_must_be(files: dict[str, int], count: int) -> None:
    cut = even_cut(root_of(files), NODE, "gzip", packed=1.0, count=count)
    sizes = [each.unpacked_bytes for each in cut.sizes]
    largest_file = max(-(-size // 512) * 512 + 512 for size in files.values())
    mean = sum(sizes) / count
    assert max(sizes) <= max(largest_file, mean) + max(mean / GRAIN, largest_file)


@settings(max_examples=40, deadline=None)
@given(files=FILES)
def test_the_same_files_are_cut_the_same_way(files: dict[str, int]) -> None:
    first = even_cut(root_of(files), NODE, "gzip", packed=1e9)
    again = even_cut(root_of(dict(reversed(files.items()))), NODE, "gzip", packed=1e9)
    assert [[inode.paths for inode in layer] for layer in first.layers] == [
        [inode.paths for inode in layer] for layer in again.layers
    ]


def test_shares_sum_to_what_the_layers_are_known_to_take() -> None:
    cut = even_cut(root_of({"a": 10 * MB, "b": 30 * MB}), NODE, "gzip", packed=8e6, count=2)
    assert sum(each.bytes for each in cut.sizes) == pytest.approx(8e6)


def test_names_of_one_inode_stay_together_and_are_paid_for_once() -> None:
    root = root_of({"a/one": 100 * MB, "b/two": 100 * MB})
    root.top.children["b"].children["link"] = root.top.children["a"].children["one"]
    cut = even_cut(root, NODE, "gzip", packed=1e8, count=2)
    assert sorted(tuple(inode.paths) for layer in cut.layers for inode in layer) == [("a/one", "b/link"), ("b/two",)]
    assert sum(each.unpacked_bytes for each in cut.sizes) < 201 * MB


def test_a_package_that_fits_stays_whole() -> None:
    files = {f"site-packages/p{package:02d}/f{file}": MB for package in range(60) for file in range(5)}
    cut = even_cut(root_of(files), NODE, "gzip", packed=1e8, count=4)
    for layer in cut.layers:
        packages = [inode.paths[0].split("/")[1] for inode in layer]
        assert all(packages.count(package) == 5 for package in packages)


def test_the_simulator_decides_how_many_layers() -> None:
    files = {f"lib/f{index}": 50 * MB for index in range(200)}
    cut = even_cut(root_of(files), NODE, "gzip", packed=5e9)
    one = NODE.soci([Sizes(bytes=5e9, unpacked_bytes=1e10)], "gzip")
    assert len(cut.layers) in COUNTS
    assert cut.estimate.expected_s < one.expected_s / 2


def test_a_file_that_rules_alone_makes_more_layers_pointless() -> None:
    files = {"one": 4_000 * MB} | {f"small/f{index}": MB for index in range(100)}
    cut = even_cut(root_of(files), NODE, "gzip", packed=2e9)
    assert len(cut.layers) <= 3


def test_nothing_gives_no_cut() -> None:
    assert even_cut(Root(), NODE, "gzip", packed=1.0) is None
