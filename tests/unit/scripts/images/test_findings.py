"""What does not belong in an image: one image with all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.images.findings import ECR_LAYER_BYTES, Finding, findings, rule_of
from scripts.images.layer import Layer
from scripts.images.root import Root, merged
from tests.images.synthetic import MadeImage, Tar, image
from tests.unit.scripts.images.test_root import layers_of

SITE = "opt/venv/lib/python3.12/site-packages"
BIG = bytes(range(256)) * 8_000  # 2 MB


def waste() -> MadeImage:
    base = Tar().file("app/server.py", b"print()").file("usr/lib/x86_64-linux-gnu/libcublas.so.12.4", BIG)
    base.file("var/lib/apt/lists/deb.example_dists", b"list" * 9000).file("later/gone.bin", BIG)
    engine = (
        Tar()
        .file(f"{SITE}/nvidia/cublas/lib/libcublas.so.12", BIG + b"more")
        .file(f"{SITE}/torch/test/x.py", b"t" * 999)
    )
    engine.file("usr/bin/gcc-12", b"cc" * 5000).file("usr/include/stdio.h", b"h" * 5000).file(
        "usr/lib/libfoo.a", b"a" * 500
    )
    engine.file("usr/local/cuda-12.4/bin/nvcc", b"n" * 7000).file("usr/local/cuda-12.6/include/cuda.h", b"c" * 50)
    engine.file("models/llama/model-00001-of-00002.safetensors", BIG * 6).file("root/.cache/pip/http/a", b"p" * 4000)
    engine.file("usr/share/man/man1/gcc.1", b"m" * 300).file("usr/share/doc/gcc/copyright", b"free")
    engine.file("usr/share/doc/gcc/changelog.gz", b"log" * 100)
    for tag in ("cpython-311", "cpython-312"):
        engine.file(f"{SITE}/torch/__pycache__/nn.{tag}.pyc", tag.encode() * 100)
    engine.file("etc/open", b"o", mode=0o666).file("root/.ssh/id_rsa", b"no", mode=0o600).file("app/.env", b"A=b")
    upper = Tar().white_out("later/gone.bin").file(f"{SITE}/torch/lib/libtorch.so", BIG * 3)
    return image(base, engine, upper)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    made, folder = waste(), tmp_path_factory.mktemp("waste")
    layers = layers_of(made, folder)
    found = findings(layers, merged(layers, "it"), {"config": {"WorkingDir": "/srv/thing"}})
    assert list(found) == sorted(found, key=lambda each: (-each.bytes, each.kind))
    return {each.kind: each for each in found}


@pytest.mark.parametrize(
    ("kind", "files", "layer", "example"),
    [
        ("weights", 1, 1, "models/llama/model-00001-of-00002.safetensors"),
        ("toolchain", 3, 1, "usr/bin/gcc-12"),
        ("cuda-development", 2, 1, "usr/local/cuda-12.4/bin/nvcc"),
        ("package-cache", 2, 0, "var/lib/apt/lists/deb.example_dists"),
        ("tests", 1, 1, f"{SITE}/torch/test/x.py"),
        ("documentation", 2, 1, "usr/share/man/man1/gcc.1"),
        ("hidden", 1, 0, "later/gone.bin"),
        ("library-twice", 1, 0, "usr/lib/x86_64-linux-gnu/libcublas.so.12.4"),
        ("cuda-versions", 1, 1, "usr/local/cuda-12.4/bin/nvcc"),
        ("byte-code-twice", 1, 1, f"{SITE}/torch/__pycache__/nn.cpython-311.pyc"),
        ("world-writable", 1, 1, "etc/open"),
        ("secret-like", 2, 1, "app/.env"),
    ],
)
def test_each_kind_is_found_where_it_is(
    seen: dict[str, Finding], kind: str, files: int, layer: int, example: str
) -> None:
    finding = seen[kind]
    assert finding.files == files
    assert layer in finding.layers
    assert example in finding.examples
    assert finding.remedy.endswith(".")


def test_application_code_below_large_layers_says_what_a_change_pulls_again(
    seen: dict[str, Finding], tmp_path: Path
) -> None:
    layers = layers_of(waste(), tmp_path)
    assert seen["early-application"].layers[0] == sum(layer.bytes for layer in layers[1:])
    assert "app/server.py" in seen["early-application"].examples


def test_bytes_are_those_of_the_compressed_layer(seen: dict[str, Finding], tmp_path: Path) -> None:
    layers = layers_of(waste(), tmp_path)
    weights = seen["weights"]
    assert weights.unpacked_bytes == len(BIG) * 6
    assert 0 < weights.bytes <= layers[1].bytes


def test_licences_stay() -> None:
    assert rule_of("usr/share/doc/gcc/copyright", 10) is None
    assert rule_of("usr/share/doc/gcc/README", 10).kind == "documentation"


@pytest.mark.parametrize(
    "path",
    [
        "opt/venv/lib/python3.12/site-packages/torch/testing/__init__.py",
        "usr/bin/python3",
        "usr/lib/x86_64-linux-gnu/libc.so.6",
        "opt/venv/lib/python3.12/site-packages/vllm/model_executor/models/llama.py",
        "usr/bin/asciidoc",
        "usr/local/cuda/lib64/libcudart.so.12",
    ],
)
def test_what_an_engine_needs_is_no_waste(path: str) -> None:
    assert rule_of(path, 50_000_000) is None


@pytest.mark.parametrize("kind", ["package-cache", "documentation"])
def test_only_what_nothing_reads_is_safe_to_drop(seen: dict[str, Finding], kind: str) -> None:
    assert seen[kind].safe
    assert not any(seen[other].safe for other in ("weights", "toolchain", "cuda-development", "tests", "library-twice"))


def test_limits_of_registries_and_runtimes() -> None:
    layer = Layer(digest="d", diff_id="i", codec="gzip", bytes=ECR_LAYER_BYTES + 1, unpacked_bytes=1, entries=())
    kinds = {each.kind for each in findings([layer] * 130, Root(), {})}
    assert kinds == {"layer-too-large", "too-many-layers"}
