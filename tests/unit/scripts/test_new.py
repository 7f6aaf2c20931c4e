"""`coldstart new`: a stack file that `pulumi up` would take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx2 as httpx
import pytest
import yaml
from huggingface_hub import HfApi

from budget.problems import BadInput
from infra.rules import check
from infra.specs import model_specs
from infra.stack_file import STACKS, read
from scripts import model_facts, new
from scripts.cli import run
from scripts.new import Request, write_stack

SHA = "0e9e39f249a16976918f6564b8830bc894c89659"
CLOSED = "http://127.0.0.1:9"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    (tmp_path / "Pulumi.dev.yaml").write_text((STACKS / "Pulumi.dev.yaml").read_text())
    return tmp_path


def hub() -> Any:
    return Mock(model_info=Mock(return_value=Mock(sha=SHA)))


def test_the_cheapest_instance_is_written_with_its_revision(stacks: Path) -> None:
    written = write_stack(Request(environment="dev", model=LLAMA, directory=stacks), api=hub())
    stack = read(written["stack"], stacks)
    assert written["stack"] == "dev-llama-3-1-8b"
    assert stack.model is not None
    assert stack.model.nodes.instance == written["instance"]
    assert stack.model.revision == SHA
    assert stack.model.source == LLAMA
    assert len(Path(written["path"]).read_text().splitlines()) <= 20


def test_a_model_that_does_not_ship_brings_its_facts(stacks: Path, tmp_path: Path) -> None:
    facts = tmp_path / "own.json"
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32}
    config |= {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8}
    config |= {"vocab_size": 128256, "max_position_embeddings": 8192}
    facts.write_text(json.dumps({"name": "acme/own-8b", "config": config, "bytes_by_dtype": {"BF16": 16_060_522_496}}))
    written = write_stack(Request(environment="dev", model=str(facts), directory=stacks), api=hub())
    stack = read(written["stack"], stacks)
    assert stack.model is not None
    check(stack)
    assert model_specs(stack, stack.model).weights_bytes == 16_060_522_496


def test_an_objective_goes_into_the_file(stacks: Path) -> None:
    written = write_stack(Request(environment="dev", model=LLAMA, directory=stacks, slo_s=250), api=hub())
    stack = read(written["stack"], stacks)
    assert stack.model is not None
    assert stack.model.slo.cold_start_s == 250
    assert written["cold_start_s"] <= 250


def test_a_named_row_is_taken(stacks: Path) -> None:
    request = Request(environment="dev", model=LLAMA, directory=stacks, instance="g6e.12xlarge", name="big")
    written = write_stack(request, api=hub())
    config = yaml.safe_load(Path(written["path"]).read_text())["config"]["coldstart:model"]
    assert config["nodes"]["instance"] == "g6e.12xlarge"
    assert config["engine"]["tensor_parallel"] == 1


@pytest.mark.parametrize(
    "error", [OSError("no route"), httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.InvalidURL("no")]
)
def test_without_the_hub_the_file_is_unpinned_and_says_so(stacks: Path, error: Exception) -> None:
    api = Mock()
    api.model_info.side_effect = error
    written = write_stack(Request(environment="dev", model=LLAMA, directory=stacks), api=api)
    assert written["revision"] is None
    stack = read(written["stack"], stacks)
    assert stack.model is not None
    assert stack.model.revision is None


def test_a_hub_behind_a_closed_port(
    stacks: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the hub's own client: its errors are those of the HTTP library below it."""
    monkeypatch.setattr(new, "STACKS", stacks)
    monkeypatch.setattr(new, "HfApi", lambda: HfApi(endpoint=CLOSED))
    monkeypatch.setattr(model_facts, "HfApi", lambda: HfApi(endpoint=CLOSED))
    assert run(["new", "dev", "--model", "Qwen/Qwen3-32B-FP8", "--name", "big"]) == 0
    assert "the revision is not pinned: the hub could not be asked; `coldstart pin dev-big`" in capsys.readouterr().err
    assert run(["new", "dev", "--model", "Foo/Bar"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("failed: 127.0.0.1:9 does not answer for Foo/Bar (")
    assert line.endswith("; give a folder or a facts file")


@pytest.mark.parametrize("name", ["\u00dc b/../x", "", "Big", "-big", "big-", "a" * 60, "big\n"])
def test_a_name_no_stack_can_have_is_refused_before_the_hub_is_asked(stacks: Path, name: str) -> None:
    api = hub()
    with pytest.raises(BadInput, match=r"--name: .* is not a valid stack name\. Give 1 to 59 lower-case letters"):
        write_stack(Request(environment="dev", model="Foo/Bar", name=name, directory=stacks), api=api)
    assert api.mock_calls == []
    assert sorted(path.name for path in stacks.iterdir()) == ["Pulumi.dev.yaml"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"environment": "prod"}, "is not an environment stack"),
        ({"instance": "g4dn.xlarge"}, "does not fit"),
        ({"instance": "g6e.4xlage"}, "g6e.4xlarge"),
        ({"slo_s": 10}, "The fastest that fits"),
        ({"model": "no model"}, "is not a model"),
    ],
)
def test_what_cannot_be_written(stacks: Path, changes: dict[str, Any], words: str) -> None:
    asked = {"environment": "dev", "model": LLAMA, "directory": stacks} | changes
    with pytest.raises(BadInput, match=words):
        write_stack(Request(**asked), api=hub())


def test_a_file_is_not_overwritten_unasked(stacks: Path) -> None:
    request = Request(environment="dev", model=LLAMA, directory=stacks)
    write_stack(request, api=hub())
    with pytest.raises(BadInput, match="is there already"):
        write_stack(request, api=hub())
    write_stack(Request(environment="dev", model=LLAMA, directory=stacks, force=True), api=hub())
