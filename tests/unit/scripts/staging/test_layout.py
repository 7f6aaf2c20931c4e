"""Whether the files make a model, found out before a byte moves: everything wrong is told at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from budget.problems import BadInput
from scripts.staging.folder import open_folder
from scripts.staging.layout import Checked, check, name_problems, set_problems
from scripts.staging.selection import INDEX, select
from scripts.staging.source import SourceFile
from tests.aws.made_models import model_files, safetensors, write

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def checked(folder: Path, files: dict[str, bytes]) -> Checked:
    return check(open_folder(write(folder, files), name="org/tuned"), trust_remote_code=False)


def refused(folder: Path, files: dict[str, bytes]) -> str:
    with pytest.raises(BadInput) as error:
        checked(folder, files)
    return str(error.value)


def test_a_sound_model_gives_its_facts(tmp_path: Path) -> None:
    found = checked(tmp_path, model_files(shards=2, shard_bytes=200_000))
    assert [choice.file.path for choice in found.selection.dropped] == [".gitattributes", "README.md"]
    assert found.facts is not None
    assert (found.facts.layers, found.facts.hidden_size, found.facts.parameters) == (2, 64, 200_000)
    assert found.facts.bytes_by_dtype == {"BF16": 400_000}
    assert found.facts.files == 2


def test_a_model_in_mistrals_own_format_has_no_facts(tmp_path: Path) -> None:
    files = {"params.json": b"{}", "tekken.json": b"{}", "consolidated.safetensors": safetensors({"a": 10})}
    assert checked(tmp_path, files).facts is None


def test_everything_missing_is_told_at_once(tmp_path: Path) -> None:
    said = refused(tmp_path, {"generation_config.json": b"{}"})
    assert "*.safetensors: no weights" in said
    assert "config.json: is missing" in said
    assert "tokenizer: no tokenizer file" in said


def test_an_index_that_names_a_missing_shard(tmp_path: Path) -> None:
    files = model_files()
    del files[SECOND]
    assert f"{INDEX}: names {SECOND}, which is not there" in refused(tmp_path, files)


def test_an_empty_shard(tmp_path: Path) -> None:
    assert f"{FIRST}: is empty" in refused(tmp_path, model_files() | {FIRST: b""})


def test_a_shard_that_was_cut_off(tmp_path: Path) -> None:
    files = model_files()
    said = refused(tmp_path, files | {SECOND: files[SECOND][:-1]})
    assert f"{SECOND}: is cut off" in said
    assert FIRST not in said


def test_every_broken_shard_is_named(tmp_path: Path) -> None:
    said = refused(tmp_path, model_files() | {FIRST: b"version https://git-lfs", SECOND: b"xx"})
    assert f"{FIRST}: announces a header" in said
    assert f"{SECOND}: 2 bytes are too few" in said


def test_shards_of_another_checkpoint_than_the_index(tmp_path: Path) -> None:
    said = refused(tmp_path, model_files() | {FIRST: safetensors({"other.weight": 10})})
    assert f"{FIRST}: lacks 1 tensors that {INDEX} looks for" in said


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_an_index_that_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    assert INDEX in refused(tmp_path, model_files() | {INDEX: content})


def test_an_index_without_a_map(tmp_path: Path) -> None:
    assert "has no `weight_map`" in refused(tmp_path, model_files() | {INDEX: b'{"weight_map": {}}'})


def test_a_config_that_says_no_layers(tmp_path: Path) -> None:
    config = json.dumps({"model_type": "llama"}).encode()
    assert "num_hidden_layers" in refused(tmp_path, model_files() | {"config.json": config})


def test_weights_in_a_folder_cannot_be_streamed(tmp_path: Path) -> None:
    said = refused(tmp_path, model_files() | {"vae/model.safetensors": safetensors({"a": 1})})
    assert "vae/model.safetensors: weights in a folder" in said


def test_an_adapter_alone(tmp_path: Path) -> None:
    files = {"config.json": b"{}", "tokenizer.json": b"{}", "adapter_model.safetensors": safetensors({"a": 1})}
    assert "Merge it into the model" in refused(tmp_path, files)


def test_weights_in_another_format_only(tmp_path: Path) -> None:
    files = {"config.json": b"{}", "tokenizer.json": b"{}", "pytorch_model.bin": b"x"}
    assert "Convert the checkpoint" in refused(tmp_path, files)


def test_names_that_differ_in_case_only() -> None:
    files = [SourceFile(path=path, bytes=1) for path in ("Model.safetensors", "model.safetensors", "config.json")]
    assert [str(problem) for problem in name_problems(files)] == [
        "Model.safetensors and model.safetensors: differ only in case. Keep one of them."
    ]


@pytest.mark.parametrize(
    "path", ["a\nb.json", "a\\b.json", "käse.json", "a#b.json", "../a.json", " a.json", "a\udcff.json"]
)
def test_odd_names(path: str) -> None:
    (problem,) = name_problems([SourceFile(path=path, bytes=1)])
    assert problem.where == ascii(path)
    assert "should not" in problem.found


@pytest.mark.parametrize("path", ["config.json", "1_Pooling/config.json", "model (1).safetensors", "a+b=c@d,e!'.json"])
def test_names_that_are_fine(path: str) -> None:
    assert list(name_problems([SourceFile(path=path, bytes=1)])) == []


def test_a_presharded_checkpoint_has_to_fit_one_listing() -> None:
    def problems(count: int) -> list[str]:
        weights = [SourceFile(path=f"model-rank-0-part-{part}.safetensors", bytes=1) for part in range(count - 2)]
        others = [SourceFile(path=path, bytes=1) for path in ("config.json", "tokenizer.json")]
        return [problem.found for problem in set_problems(select([*weights, *others]))]

    assert problems(1_000) == []
    assert problems(1_001) == ["1,001 objects of a pre-sharded checkpoint"]
