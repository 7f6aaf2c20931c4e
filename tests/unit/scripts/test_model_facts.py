"""Facts from folders, files and the hub."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import httpx2 as httpx
import pytest
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    NotASafetensorsRepoError,
    RepositoryNotFoundError,
)

from budget.models import known_models
from budget.problems import BadInput
from scripts.failure import Failure
from scripts.model_facts import facts_at

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 16, "max_position_embeddings": 64,
}  # fmt: skip


def safetensors(path: Path, header: dict[str, Any]) -> None:
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(32))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    safetensors(tmp_path / "model-1.safetensors", {"a": {"dtype": "BF16", "shape": [4, 4], "data_offsets": [0, 32]}})
    safetensors(tmp_path / "model-2.safetensors", {"b": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}})
    return tmp_path


def test_a_folder(folder: Path) -> None:
    facts = facts_at(str(folder))
    assert (facts.weights_bytes, facts.parameters, facts.files, facts.layers) == (36, 18, 2, 2)


def test_an_index_without_its_files(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        path.unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 64}}))
    assert facts_at(str(folder)).weights_bytes == 64


def test_a_known_name_needs_no_network() -> None:
    name = next(iter(known_models()))
    assert facts_at(name).name == name


def test_a_facts_file(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    path.write_text(json.dumps({"name": "x/y", "config": CONFIG, "bytes_by_dtype": {"BF16": 1000}}))
    facts = facts_at(str(path))
    assert (facts.name, facts.parameters) == ("x/y", 500)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is no JSON"),
        ("[]", "is no JSON object"),
        ("{}", "lacks name, config, bytes_by_dtype"),
        (json.dumps({"name": "x", "config": CONFIG, "bytes_by_dtype": {"BF16": -1}}), "bytes_by_dtype"),
        (json.dumps({"name": "x", "config": {}, "bytes_by_dtype": {"BF16": 10}}), "num_hidden_layers"),
    ],
)
def test_facts_files_that_are_none(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "facts.json"
    path.write_text(content)
    with pytest.raises(BadInput, match=words):
        facts_at(str(path))


def test_a_cut_off_file_is_told(folder: Path) -> None:
    (folder / "model-1.safetensors").write_bytes(struct.pack("<Q", 10_000) + b"{}")
    with pytest.raises(BadInput, match="cut off"):
        facts_at(str(folder))


def test_a_folder_without_config_or_weights(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no config\.json"):
        facts_at(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(BadInput, match="neither"):
        facts_at(str(tmp_path))


def answer(status: int) -> httpx.Response:
    return httpx.Response(status, request=httpx.Request("GET", "http://hub.invalid"))


def hub(tmp_path: Path, **changes: Any) -> Any:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    tensors = {"a": SimpleNamespace(dtype="BF16", shape=(4, 4))}
    metadata = SimpleNamespace(files_metadata={"m.safetensors": SimpleNamespace(tensors=tensors)})
    return Mock(
        model_info=Mock(return_value=SimpleNamespace(sha="a" * 40)),
        get_safetensors_metadata=Mock(return_value=metadata),
        hf_hub_download=Mock(return_value=str(path)),
        **changes,
    )


def test_the_hub_by_revision(tmp_path: Path) -> None:
    api = hub(tmp_path)
    facts = facts_at("org/name@main", api=api)
    assert facts.revision == "a" * 40
    assert facts.weights_bytes == 32
    api.model_info.assert_called_once_with("org/name", revision="main")
    api.hf_hub_download.assert_called_once_with("org/name", "config.json", revision="a" * 40)


def test_a_hub_without_the_model(tmp_path: Path) -> None:
    api = hub(tmp_path)
    api.model_info.side_effect = RepositoryNotFoundError("no", response=answer(404))
    with pytest.raises(BadInput, match="the hub has no org/name"):
        facts_at("org/name", api=api)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError("no route to host"), r"hub\.invalid does not answer for org/name \(no route to host\); give a folder"),
        (httpx.ConnectError("refused"), r"hub\.invalid does not answer for org/name \(refused\); give a folder"),
        (httpx.ReadTimeout(""), r"does not answer for org/name \(ReadTimeout\); give a folder or a facts file"),
        (httpx.InvalidURL("no host"), r"does not answer for org/name \(no host\)"),
        (HfHubHTTPError("bad\n\nday", response=answer(503)), r"hub\.invalid answers 503 for org/name \(bad day\)"),
        (GatedRepoError("no", response=answer(403)), "org/name is gated: accept its licence"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_hub_that_does_not_answer(tmp_path: Path, error: Exception, words: str) -> None:
    for question in ("model_info", "get_safetensors_metadata", "hf_hub_download"):
        api = hub(tmp_path, endpoint="https://hub.invalid")
        getattr(api, question).side_effect = error
        with pytest.raises(Failure, match=words):
            facts_at("org/name", api=api)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NotASafetensorsRepoError("no safetensors"), "org/name is not a model that can be streamed: no safetensors"),
        (HFValidationError("--"), "'org/name' is not a name on the hub"),
    ],
)
def test_a_repository_that_is_no_model(tmp_path: Path, error: Exception, words: str) -> None:
    api = hub(tmp_path)
    api.get_safetensors_metadata.side_effect = error
    with pytest.raises(BadInput, match=words):
        facts_at("org/name", api=api)
