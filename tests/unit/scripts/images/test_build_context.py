"""The rendered build context: rules that a linter of Dockerfiles has, and what makes the image slim."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from budget.problems import BadInput
from infra.stack_file import read
from scripts.cli import run
from scripts.failure import Failure
from scripts.images.builder import Builder, builder_at_hand
from scripts.images.building import BuildWish, build
from scripts.images.dockerfile import TEMPLATES, dockerfile, recipe_of, write_context

BASE = "docker.io/library/python:3.12-slim-bookworm@sha256:" + "a" * 64
PRODUCTION, DEV = "dev-llama-3-1-8b", "dev-qwen2-5-0-5b"


def rendered(stacks: Path, name: str, **more: object) -> str:
    asked = {"base": BASE, "requirements": None, "wheels": None} | more
    return dockerfile(recipe_of(read(name, stacks), **asked))


def instructions(text: str) -> list[tuple[str, str]]:
    joined = re.sub(r"\\\n\s*", "", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    return [tuple(line.split(" ", 1)) for line in joined.splitlines() if line.strip()]


@pytest.mark.parametrize("name", [PRODUCTION, DEV])
def test_rules_of_hadolint_hold(stacks: Path, name: str) -> None:
    text = rendered(stacks, name)
    steps = instructions(text)
    froms = [value for verb, value in steps if verb == "FROM"]
    runs = [value for verb, value in steps if verb == "RUN"]
    assert all("@sha256:" in value for value in froms)  # DL3006, DL3007: pinned, never latest
    assert [value for verb, value in steps if verb == "USER"][-1] == "65532:65532"  # DL3002: the last user is not root
    assert all(value.startswith("[") for verb, value in steps if verb in ("ENTRYPOINT", "CMD"))  # DL3025: JSON notation
    assert not any(verb == "ADD" for verb, _ in steps)  # DL3020: COPY instead of ADD
    assert not any(re.search(r"\bsudo\b|\bcd\b|apt-get upgrade", value) for value in runs)  # DL3004, DL3003, DL3005
    assert all(value.startswith("/") for verb, value in steps if verb == "WORKDIR")  # DL3000: absolute
    for value in runs:
        if "pip install" in value:
            assert "--no-cache-dir" in value  # DL3042
            assert "-r requirements.txt" in value  # DL3013: versions are pinned in a file
        if "apt-get install" in value:
            assert "--no-install-recommends" in value  # DL3015
            assert " -y" in value  # DL3014
            assert "rm -rf /var/lib/apt/lists/*" in value  # DL3009
        assert "|" not in value  # DL4006: no pipe without pipefail
    if "apt-get install" in text:
        assert "# hadolint ignore=DL3008" in text  # versions of Debian come with the pinned base's own release


def test_the_wheels_come_in_even_layers(stacks: Path) -> None:
    copies = [value for verb, value in instructions(rendered(stacks, PRODUCTION)) if value.startswith("--from=wheels")]
    assert copies == [f"--from=wheels /layers/{index:02d}/ /" for index in range(12)]


def test_a_compiler_stays_only_where_triton_compiles(stacks: Path) -> None:
    assert "gcc libc6-dev" in rendered(stacks, PRODUCTION)
    assert "apt-get" not in rendered(stacks, DEV)


def test_the_engine_is_the_stacks_own_and_pinned(stacks: Path, tmp_path: Path) -> None:
    write_context(recipe_of(read(PRODUCTION, stacks), base=BASE, requirements=None, wheels=None), tmp_path / "c")
    assert (tmp_path / "c" / "requirements.txt").read_text().splitlines()[0] == "vllm==0.27.1"
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == [
        "Dockerfile",
        "cut_layers.py",
        "requirements.txt",
    ]


def test_a_lock_file_is_installed_by_its_hashes(stacks: Path, tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text("vllm==0.27.1 --hash=sha256:abc\n")
    assert "--require-hashes -r requirements.txt" in rendered(stacks, PRODUCTION, requirements=lock)


def test_wheels_of_a_folder_need_no_index(stacks: Path, tmp_path: Path) -> None:
    (tmp_path / "vllm-0.27.1-py3-none-any.whl").write_bytes(b"")
    assert "--no-index --find-links /build/wheels" in rendered(stacks, PRODUCTION, wheels=tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "vllm==0.27.1\n",
        "# why\nvllm[s3]==0.27.1 ; python_version >= '3.12'\n",
        "vllm==0.27.1 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n",
        "--extra-index-url https://wheels.example\nvllm @ https://wheels.example/vllm-0.27.1-py3-none-any.whl\n",
    ],
)
def test_requirements_are_taken_as_they_are(stacks: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    assert recipe_of(read(PRODUCTION, stacks), base=f"x@sha256:{'a' * 64}", requirements=path, wheels=None)


@pytest.mark.parametrize("text", ["vllm\n", "vllm>=0.27\n", "vllm==0.27.*\n", "import json\n"])
def test_requirements_that_pin_nothing_are_refused(stacks: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"torch==2.9.0\n{text}")
    with pytest.raises(BadInput, match="is not a pinned wheel"):
        recipe_of(read(PRODUCTION, stacks), base=f"x@sha256:{'a' * 64}", requirements=path, wheels=None)


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("dev", {}, "is an environment"),
        (PRODUCTION, {"base": "python:3.12-slim"}, "has no digest"),
        (PRODUCTION, {"requirements": Path("/nowhere")}, "cannot be read"),
        (PRODUCTION, {"wheels": Path("/nowhere")}, "holds no wheels"),
    ],
)
def test_bad_wishes(stacks: Path, name: str, more: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        rendered(stacks, name, **more)


def test_an_image_that_names_no_version(stacks: Path) -> None:
    path = stacks / f"Pulumi.{DEV}.yaml"
    path.write_text(path.read_text().replace("vllm/vllm-openai:v0.33.0", "vllm/vllm-openai:nightly"))
    with pytest.raises(BadInput, match=r"model\.engine\.version: unset"):
        rendered(stacks, DEV)


def test_render_only_writes_the_context_and_needs_no_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    made = build(PRODUCTION, BuildWish(base=BASE, output=tmp_path / "c", render_only=True))
    assert made["image"] is None
    assert (tmp_path / "c" / "Dockerfile").is_file()
    with pytest.raises(BadInput, match="--render-only"):
        build(PRODUCTION, BuildWish(base=BASE, render_only=True))


def test_without_a_builder_it_says_which_are_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert run(["image", "build", PRODUCTION, "--base", BASE]) == 1
    assert "Known: docker, podman, buildah" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "verb"),
    [("docker", ["buildx", "build", "--load"]), ("podman", ["build"]), ("buildah", ["build", "--layers"])],
)
def test_each_builder_has_its_own_verb(name: str, verb: list[str], tmp_path: Path) -> None:
    command = Builder(name=name, program=f"/bin/{name}", options=("--isolation=chroot",)).command(
        tmp_path, "x:1", "arm64"
    )
    assert command[: 1 + len(verb)] == [f"/bin/{name}", *verb]
    assert command[1 + len(verb) :] == [
        "--platform", "linux/arm64", "--isolation=chroot", "--tag", "x:1",
        "--file", f"{tmp_path}/Dockerfile", str(tmp_path),
    ]  # fmt: skip


def test_the_first_builder_on_the_path_is_taken_and_its_failure_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "podman"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    builder = builder_at_hand(None)
    assert builder.name == "podman"
    with pytest.raises(Failure, match="podman ended with exit code 3"):
        builder.build(tmp_path, "x:1", "amd64")


def test_the_cutting_program_moves_every_file_once_into_even_folders(tmp_path: Path) -> None:
    source = tmp_path / "venv"
    for package in range(20):
        (source / f"p{package}").mkdir(parents=True)
        for file in range(5):
            (source / f"p{package}" / f"f{file}").write_bytes(bytes(10_000 + 100 * package))
    (source / "large").write_bytes(bytes(300_000))
    (source / "link").symlink_to("large")
    source.chmod(0o750)
    before = {str(path.relative_to(source)) for path in source.rglob("*") if not path.is_dir() or path.is_symlink()}
    layers = tmp_path / "layers"
    program = TEMPLATES / "cut_layers.py.txt"
    subprocess.run([sys.executable, str(program), str(source), str(layers), "4"], check=True, capture_output=True)
    after: list[str] = []
    sizes = []
    for folder in sorted(layers.iterdir()):
        root = folder / str(source).lstrip("/")
        assert root.stat().st_mode & 0o7777 == 0o750
        files = [path for path in root.rglob("*") if path.is_symlink() or path.is_file()]
        after += [str(path.relative_to(root)) for path in files]
        sizes.append(sum(path.lstat().st_size for path in files))
    assert sorted(after) == sorted(before)
    assert len(sizes) == 4
    assert max(sizes) < 1.2 * sum(sizes) / 4
