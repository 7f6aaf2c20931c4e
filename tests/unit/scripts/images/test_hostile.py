"""Images, layouts and caches of strangers: shown but not obeyed, refused in words, never in a traceback."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from scripts.cli import run
from scripts.images.index import LayerIndex
from scripts.plain_text import plain
from tests.images.loopback_registry import LoopbackRegistry
from tests.images.synthetic import Tar, image

RED = "\x1b[31m"
BACKWARDS = "\u202e"
GOOD = image(Tar().file("a", b"x" * 5_000))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_a_terminal_would_act_on_is_shown_as_an_escape() -> None:
    assert plain(f"a{RED}b{BACKWARDS}c\ud800é\n") == r"a\x1b[31mb\u202ec\ud800é\n"
    assert plain("two\nlines", keep="\n") == "two\nlines"


def test_names_and_commands_of_an_image_are_not_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = {"history": [{"created_by": f"RUN {RED}hidden"}]}
    name = f"usr/share/doc/{RED}{BACKWARDS}x.txt"
    image(Tar().file(name, b"y" * 2_000), config=history).write_layout(tmp_path / "image")
    page = tmp_path / "page.html"
    assert run(["image", "inspect", f"oci:{tmp_path}/image:v1", "--html", str(page)]) == 0
    said = capsys.readouterr()
    for text in (said.out, said.err, page.read_text()):
        assert RED not in text
        assert BACKWARDS not in text
    assert r"\x1b[31m" in said.out


def test_the_name_of_a_bad_file_is_not_obeyed_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image(Tar().file("a").file(f"a/{RED}x")).write_layout(tmp_path / "image")
    assert run(["image", "inspect", f"oci:{tmp_path}/image:v1"]) == 1
    said = capsys.readouterr().err
    assert RED not in said
    assert r"\x1b[31mx" in said


@pytest.mark.parametrize(
    "index",
    [
        {"manifests": None},
        {"manifests": [1]},
        {"manifests": [{}]},
        {"manifests": [{"digest": 5}]},
        {"manifests": [{"digest": "sha256:" + "0" * 64, "annotations": {"org.opencontainers.image.ref.name": 1}}]},
        [],
        None,
    ],
)
def test_an_index_of_another_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str], index: object) -> None:
    GOOD.write_layout(tmp_path / "image")
    (tmp_path / "image" / "index.json").write_text(json.dumps(index))
    assert run(["image", "inspect", f"oci:{tmp_path}/image:v1"]) == 1
    assert "the index" in capsys.readouterr().err


@pytest.mark.parametrize("head", [b"null\n", b"1\n", b"[]\n", b'{"diff_id": 1}\n', b""])
def test_a_damaged_cache_is_no_cache(cache: Path, head: bytes) -> None:
    path = cache / "coldstart" / "layers" / f"sha256-{'a' * 64}.v1.jsonl.gz"
    path.parent.mkdir(parents=True)
    whole = gzip.compress(head)
    for damaged in (whole, whole[:-3], *(bytes([*whole[:at], whole[at] ^ 4, *whole[at + 1 :]]) for at in range(10))):
        path.write_bytes(damaged)
        assert LayerIndex().find(f"sha256:{'a' * 64}", "sha256:b") is None


@pytest.mark.parametrize("spelled", ["image/../image:v1", "link:v1", "./image:v1"])
def test_the_source_is_known_however_it_is_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spelled: str
) -> None:
    GOOD.write_layout(tmp_path / "image")
    (tmp_path / "link").symlink_to("image")
    before = (tmp_path / "image" / "index.json").read_bytes()
    monkeypatch.chdir(tmp_path)
    assert run(["image", "repack", f"oci:{tmp_path}/image:v1", "--to", f"oci:{spelled}", "--layers", "3"]) == 2
    assert "is the source itself" in capsys.readouterr().err
    assert (tmp_path / "image" / "index.json").read_bytes() == before


def test_a_tag_that_stands_for_the_source_is_not_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with LoopbackRegistry() as registry:
        reference = registry.add("team/engine", "v1", GOOD)
        by_digest = f"{reference.rpartition(':')[0]}@{GOOD.digest}"
        assert run(["image", "repack", by_digest, "--to", reference, "--layers", "2"]) == 2
    assert "is the source itself" in capsys.readouterr().err


def test_an_image_of_another_architecture_is_not_mirrored(capsys: pytest.CaptureFixture[str]) -> None:
    with LoopbackRegistry() as registry:
        reference = registry.add("team/engine", "v1", GOOD)
        to = f"{reference.partition('/')[0]}/mirror"
        assert run(["image", "mirror", reference, "--to", to, "--architecture", "arm64"]) == 1
    assert "is made for amd64, not for arm64" in capsys.readouterr().err


def test_a_hard_linked_file_is_there_as_long_as_a_name_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = Tar().file("f1", b"z" * 100_000).link("f2", "f1")
    image(both, Tar().white_out("f1")).write_layout(tmp_path / "one-left")
    image(both, Tar().white_out("f1").white_out("f2")).write_layout(tmp_path / "none-left")
    found = {}
    for name in ("one-left", "none-left"):
        assert run(["image", "inspect", f"oci:{tmp_path}/{name}:v1", "--json"]) == 0
        kinds = {each["kind"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
        found[name] = kinds.get("hidden", {}).get("files", 0)
    assert found == {"one-left": 0, "none-left": 1}


@pytest.mark.parametrize("tag", ["bad tag", "t@sha256:abc", "-t", ""])
def test_a_new_layout_gets_a_tag_that_tools_can_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tag: str
) -> None:
    GOOD.write_layout(tmp_path / "image")
    code = run(["image", "repack", f"oci:{tmp_path}/image:v1", "--to", f"oci:{tmp_path}/new:{tag}"])
    assert code == (2 if tag else 0)
    assert ("is not a tag" in capsys.readouterr().err) == bool(tag)
