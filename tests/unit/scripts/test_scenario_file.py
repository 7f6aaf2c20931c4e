"""The scenario file: the contract's shape, every mistake at once, and the way back."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budget.problems import BadInput
from budget.scenario import LayerCase
from scripts.scenario import parse, read
from scripts.scenario_document import document_of

CONTRACT: dict[str, Any] = {
    "instance": "g6e.4xlarge",
    "node": {"warm": False},
    "image": {
        "bytes": 10_778_000_000, "layers": None, "unpack_ratio": None, "registry": "ecr", "cached": False,
    },
    "pull": {
        "snapshotter": "soci", "downloads": 20, "unpacks": 12, "chunk_bytes": 16_000_000, "decompressor": "igzip",
    },
    "disk": {"kind": "nvme", "throughput_mib_s": 1000, "iops": 16_000},
    "model": {"weights_bytes": 15_000_000_000, "layers": 32, "parameters": 8_030_000_000, "tensor_parallel": 1},
    "weights": {"path": "stream", "source": "s3", "concurrency": 32, "distributed": False},
    "engine": {"compile_cache": "hit", "eager": False, "capture_sizes": 67, "cpu_factor": 1.0},
    "warmup": {"requests": 5},
    "host": {
        "cores": 2, "memory_bytes": None, "network_mb_s": 62.5, "connection_mb_s": 4.25, "unpack_layer_mb_s": 22,
        "unpack_cpu_s_per_gb": None, "disk_mb_s": 2789, "dirty_bytes": None,
    },
}  # fmt: skip


def changed(**parts: Any) -> dict[str, Any]:
    document = deepcopy(CONTRACT)
    for path, value in parts.items():
        *outer, last = path.split("__")
        node = document
        for key in outer:
            node = node[key]
        node[last] = value
    return document


def test_the_contract_parses() -> None:
    scenario = parse(CONTRACT)
    assert scenario.instance.name == "g6e.4xlarge"
    assert scenario.pull.chunk_bytes == 16_000_000
    assert scenario.host.network_mb_s == 62.5
    assert scenario.engine.cpu_factor == 1.0


def test_layers_may_tell_both_sizes() -> None:
    sizes = [{"bytes": 5_000_000_000, "unpacked_bytes": 9_000_000_000}, 5_778_000_000]
    layers = parse(changed(image__layers=sizes)).image.layers
    assert layers == (
        LayerCase(bytes=5_000_000_000, unpacked_bytes=9_000_000_000),
        LayerCase(bytes=5_778_000_000),
    )


def test_discard_and_whole_layers_and_containerds_own_parallel_pull() -> None:
    document = changed(pull__chunk_bytes=None, pull__discard=False)
    assert parse(document).pull.chunk_bytes is None
    assert parse(changed(pull__chunk_bytes=0)).pull.chunk_bytes is None
    assert not parse(document).pull.discards
    parallel = changed(pull__snapshotter="overlayfs", pull__unpacks=12, pull__chunk_bytes=1_048_576)
    assert parse(parallel).pull.unpacks == 12
    assert parse(CONTRACT).pull.discards


def test_parts_may_be_left_out() -> None:
    small = parse({"instance": "g6.xlarge", "model": {"name": "Qwen/Qwen2.5-0.5B-Instruct"}})
    assert small.model.weights_bytes == 988_065_536
    assert small.model.attention_heads == 14
    assert small.disk.kind == "nvme"
    assert small.engine.cpu_factor is None


def test_numbers_may_be_written_with_exponents() -> None:
    assert parse(changed(image__bytes="1.0778e10")).image.bytes == 10_778_000_000


def problems(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(BadInput) as caught:
        parse(document)
    return {problem.where: f"{problem.found}. {problem.fix}" for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("change", "where", "words"),
    [
        ({"image__byts": 3}, "image.byts", "Did you mean bytes?"),
        ({"imag": {}}, "imag", "Did you mean image?"),
        ({"image__bytes": -1}, "image.bytes", "greater than 0"),
        ({"image__bytes": 1e15}, "image.bytes", "less than or equal to 1000000000000"),
        ({"image__registry": "quay"}, "image.registry", "'ecr' or 'docker-hub'"),
        ({"image__layers": [1, 2, 3]}, "image.layers", "the layers sum to 6 bytes"),
        ({"image__layers": []}, "image.layers", "at least 1"),
        ({"image__unpack_ratio": 1000}, "image.unpack_ratio", "less than or equal to 200"),
        ({"pull__snapshotter": "stargz"}, "pull.snapshotter", "'soci' or 'overlayfs'"),
        ({"pull__downloads": 0}, "pull.downloads", "greater than or equal to 1"),
        ({"pull__downloads": True}, "pull.downloads", "not a number"),
        ({"pull__unpacks": 2.5}, "pull.unpacks", "integer"),
        ({"pull__chunk_bytes": 1}, "pull.chunk_bytes", "65536"),
        ({"disk__kind": "st1"}, "disk.kind", "'nvme', 'gp3' or 'io2'"),
        ({"model__tensor_parallel": 3}, "model.tensor_parallel", "1, 2, 4, 8, 16"),
        ({"model__parameters": 1e9}, "model.parameters", "15 bytes each"),
        ({"model__layers": "many"}, "model.layers", "integer"),
        ({"model__name": "Qwen/Qwen3-8"}, "model.name", "Qwen/Qwen3-8B"),
        ({"weights__source": "hub"}, "weights.source", "s3, disk"),
        ({"weights__path": "teleport"}, "weights.path", "'stream'"),
        ({"weights__path": "shared-fs"}, "weights.shared_mb_s", "cold throughput"),
        ({"engine__compile_cache": "warm"}, "engine.compile_cache", "'hit', 'miss' or 'none'"),
        ({"engine__cpu_factor": 0}, "engine.cpu_factor", "0.05"),
        ({"host__cores": -2}, "host.cores", "greater than 0"),
        ({"instance": "g6e.4xlage"}, "instance", "g6e.4xlarge"),
        ({"instance": "m7i.large"}, "instance", "has no GPU"),
        ({"instance": "g5g.xlarge", "host": {}}, "disk.kind", "no local NVMe"),
    ],
)
def test_each_mistake_has_its_place_and_its_mend(change: dict[str, Any], where: str, words: str) -> None:
    found = problems(changed(**change))
    assert where in found
    assert words in found[where]


def test_heads_decide_about_parallel_sizes() -> None:
    odd = changed(model__tensor_parallel=3, model__attention_heads=8, instance="g6e.12xlarge")
    assert "does not divide 8 attention heads" in problems(odd)["model.tensor_parallel"]
    assert "1, 2, 4" in problems(odd)["model.tensor_parallel"]
    fine = changed(model__tensor_parallel=3, model__attention_heads=24, instance="g6e.12xlarge")
    assert parse(fine).ranks == 3


def test_more_ranks_than_gpus() -> None:
    assert "g6e.4xlarge has 1" in problems(changed(model__tensor_parallel=2))["model.tensor_parallel"]


def test_every_mistake_at_once_contradictions_included() -> None:
    document = changed(
        image__byts=1, image__layers=[5, 5], pull__downloads=-1, model__tensor_parallel=3, host__cores="two"
    )
    found = problems(document)
    expected = {"image.byts", "image.layers", "pull.downloads", "model.tensor_parallel", "host.cores"}
    assert expected <= set(found)


def test_missing_parts_are_named() -> None:
    assert set(problems({})) == {"instance", "model"}
    assert set(problems({"instance": "g6.xlarge", "model": {}})) == {"model.weights_bytes", "model.layers"}


def test_a_layer_bomb_is_refused() -> None:
    bomb = [{"bytes": 10_778_000_000, "unpacked_bytes": 9e12}]
    assert "image.layers[0].unpacked_bytes" in problems(changed(image__layers=bomb))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("instance: [", "is no YAML"),
        ("- a\n- b\n", "is not a mapping"),
        ("instance: g6.xlarge\ninstance: g5.xlarge\n", "stands twice"),
        ("", "is not a mapping"),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "case.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=words):
        read(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read(tmp_path / "none.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="UTF-8"):
        read(binary)


@settings(max_examples=60, deadline=None)
@given(
    image=st.floats(1e6, 9e11),
    weights=st.floats(1e8, 1e13),
    cores=st.one_of(st.none(), st.floats(0.5, 512)),
    chunk=st.one_of(st.none(), st.floats(2**16, 1e10)),
    layers=st.one_of(st.none(), st.integers(1, 20)),
    version=st.sampled_from([None, "0.33", "0.10", 0.25]),
)
def test_units_survive_the_round_trip(
    image: float, weights: float, cores: float | None, chunk: float | None, layers: int | None, version: object
) -> None:
    document = changed(
        image__bytes=image,
        image__layers=None if layers is None else [image / layers] * layers,
        model__weights_bytes=weights,
        model__parameters=max(weights / 2, 1000000.0),
        host__cores=cores,
        pull__chunk_bytes=chunk,
        engine__version=version,
    )
    scenario = parse(document)
    assert parse(document_of(scenario)) == scenario
    assert scenario.image.bytes == image
    assert scenario.model.weights_bytes == weights
