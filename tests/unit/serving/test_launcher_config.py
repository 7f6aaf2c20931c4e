"""The configuration: strict, and every problem at once."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budget.phases import PHASES as PREDICTED
from serving.launcher.command import check_engine_argv, engine_arguments, without_secrets
from serving.launcher.config import PHASES, Config, read_config
from serving.launcher.fields import is_inside
from serving.launcher.refusal import BadConfig
from tests.unit.serving.pod import launcher_config

NODE_CACHE = {
    "kind": "node-cache",
    "source": "s3://bucket/models/acme/tiny/",
    "engine_args": ["{dir}", "--load-format", "safetensors"],
    "dir": "/node-cache",
    "limit_bytes": 10**11,
    "manifest": None,
    "fill_timeout_s": 60,
    "connections": 8,
}
COMPILE_CACHE = {
    "uri": "s3://bucket/cache/acme/tiny",
    "key": {"image": "sha256:1", "gpu": "NVIDIA L40S", "model": "s3://bucket/models/acme/tiny/"},
    "root": "/cache",
    "include": ["vllm/torch_compile_cache"],
    "max_restore_s": 20,
    "max_bytes": 10**9,
}


def test_the_launcher_knows_the_phases_that_are_predicted() -> None:
    assert tuple(PREDICTED) == PHASES


def full() -> dict[str, Any]:
    """A configuration with everything in it."""
    config = launcher_config(compile_cache=copy.deepcopy(COMPILE_CACHE))
    config["weights"]["paths"].insert(0, copy.deepcopy(NODE_CACHE))
    config["answer"] = {"prompt": "a", "token_ids": [1, 2], "firm_tokens": 1, "text": "b"}
    return config


def test_an_answer_is_known_or_recorded_in_a_manifest() -> None:
    read = Config.from_json(full() | {"answer": {"manifest": "s3://bucket/manifests/acme/tiny/aa.json"}})
    assert (read.answer, read.answer_manifest) == (None, "s3://bucket/manifests/acme/tiny/aa.json")
    read = Config.from_json(full() | {"answer": None})
    assert (read.answer, read.answer_manifest) == (None, None)
    assert problems_of(full() | {"answer": {"manifest": "/a.json", "prompt": "a"}}) == (
        "answer.manifest: must be an s3:// URI, not '/a.json'",
        "answer.prompt: is unknown",
    )


def problems_of(document: object) -> tuple[str, ...]:
    with pytest.raises(BadConfig) as caught:
        Config.from_json(document)
    return caught.value.problems


def test_everything_is_read() -> None:
    read = Config.from_json(full())
    assert [path.kind for path in read.paths] == ["node-cache", "stream"]
    assert read.paths[0].directory == Path("/node-cache")
    assert read.paths[0].limit_bytes == 10**11
    assert read.compile_cache is not None
    assert read.compile_cache.uri == "s3://bucket/cache/acme/tiny/"
    assert read.compile_cache.key["gpu"] == "NVIDIA L40S"
    assert read.answer is not None
    assert read.answer.token_ids == (1, 2)
    assert read.budget["engine"].high_s == 4.0


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("format", 2, "format: must be 1: the launcher and its configuration are of one release"),
        ("port", 0, "port: must be a whole number from 1 to 65535, not 0"),
        ("port", "8001", "port: must be a whole number from 1 to 65535, not '8001'"),
        ("gpus", True, "gpus: must be a whole number of at least 0, not True"),
        ("labels.image", "", "labels.image: must be a non-empty string, not ''"),
        ("labels.colour", "red", "labels.colour: is unknown"),
        ("budget.engine.low_s", 9.0, "budget.engine: must have low_s <= expected_s <= high_s"),
        ("budget.engine.high_s", float("inf"), "budget.engine.high_s: must be a number of at least 0, not inf"),
        ("budget.lunch", {}, "budget.lunch: is unknown"),
        ("weights.paths", [], "weights.paths: must hold at least one path"),
        ("weights.paths", "stream", "weights.paths: must be a list, not 'stream'"),
        ("weights.paths.0.kind", "floppy", "weights.paths[0].kind: must be one of stream, node-cache, shared-fs, "),
        ("weights.paths.0.dir", "cache", "weights.paths[0].dir: must be an absolute path, not 'cache'"),
        (
            "weights.paths.0.source",
            "/here",
            "weights.paths[0].source: must be an s3:// URI for node-cache, not '/here'",
        ),
        ("weights.paths.1.dir", "/x", "weights.paths[1].dir: is unknown"),
        (
            "weights.paths.0.connections",
            0,
            "weights.paths[0].connections: must be a whole number from 1 to 1024, not 0",
        ),
        ("warmup.batch_sizes", [1, "2"], "warmup.batch_sizes: holds '2', not a whole number of at least 1"),
        ("warmup.window", 1, "warmup.window: must be a whole number from 2 to 100, not 1"),
        ("warmup.chat", "yes", "warmup.chat: must be true or false, not 'yes'"),
        ("answer.token_ids", [], "answer.token_ids: must hold at least one token"),
        ("answer.firm_tokens", 3, "answer.firm_tokens: must be a whole number from 1 to 2, not 3"),
        ("compile_cache.uri", "/cache", "compile_cache.uri: must be an s3:// URI, not '/cache/'"),
        ("compile_cache.include", ["../etc"], "compile_cache.include: holds '../etc', which is not a path below root"),
        ("compile_cache.root", "cache", "compile_cache.root: must be an absolute path, not 'cache'"),
        ("drain.timeout_s", -1, "drain.timeout_s: must be a number of at least 0, not -1"),
        ("surprise", 1, "surprise: is unknown"),
    ],
)
def test_each_problem_has_its_place_and_its_mend(path: str, value: object, problem: str) -> None:
    document = full()
    *parents, last = path.split(".")
    place: Any = document
    for parent in parents:
        place = place[int(parent)] if parent.isdigit() else place[parent]
    place[int(last) if last.isdigit() else last] = value
    assert any(found.startswith(problem) for found in problems_of(document)), problems_of(document)


def test_all_problems_at_once() -> None:
    document = full() | {"gpus": -1, "extra": 1, "engine_port": 0}
    del document["labels"]["model"]
    assert [problem.partition(":")[0] for problem in sorted(problems_of(document))] == [
        "engine_port",
        "extra",
        "gpus",
        "labels.model",
    ]


def test_one_port_for_two() -> None:
    document = launcher_config(port=8000, engine_port=8000)
    assert problems_of(document) == ("port: is the engine's port too (8000)",)


def test_the_same_kind_twice() -> None:
    document = launcher_config()
    document["weights"]["paths"] *= 2
    assert problems_of(document) == ("weights.paths: holds stream twice",)


@pytest.mark.parametrize("document", [None, [], "text", 7, {}])
def test_no_configuration_at_all(document: object) -> None:
    assert problems_of(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(deadline=None)
@given(JSON)
def test_any_json_is_either_read_or_refused(value: object) -> None:
    for key in full():
        document = full() | {key: value}
        with suppress(BadConfig):
            Config.from_json(document)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="can't be read"):
        read_config(tmp_path / "none.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(BadConfig, match="is no JSON"):
        read_config(tmp_path / "broken.json")
    (tmp_path / "good.json").write_text(json.dumps(full()))
    assert read_config(tmp_path / "good.json").served_model_name == "tiny"


def test_the_weights_path_is_put_into_the_command() -> None:
    node_cache, stream = Config.from_json(full()).paths
    argv = ["vllm", "serve", "{weights}", "--port", "8000"]
    assert engine_arguments(argv, node_cache, Path("/node-cache/x")) == [
        *("vllm", "serve", "/node-cache/x", "--load-format", "safetensors", "--port", "8000"),
    ]
    assert engine_arguments(argv, stream, None) == ["vllm", "serve", "s3://bucket/tiny/", "--port", "8000"]


def test_engine_port_must_agree() -> None:
    config = Config.from_json(launcher_config(engine_port=8000, port=8001))
    check_engine_argv(["vllm", "{weights}", "--port=8000"], config)
    with pytest.raises(BadConfig, match="says --port 9000, the configuration 8000"):
        check_engine_argv(["vllm", "{weights}", "--port=9000"], config)


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["--api-key", "x"], ["--api-key", "***"]),
        (["--api-key=x", "y"], ["--api-key=***", "y"]),
        (["--api-key", "--port", "8"], ["--api-key", "--port", "8"]),
        (["--hf-token", "x", "--model", "m"], ["--hf-token", "***", "--model", "m"]),
        (["--model", "m"], ["--model", "m"]),
    ],
)
def test_secrets_are_left_out(argv: list[str], shown: list[str]) -> None:
    assert without_secrets(argv) == shown


@pytest.mark.parametrize("name", ["a", "a/b.json", "a..b", ".hidden", "a/./b"])
def test_names_that_stay_inside(name: str) -> None:
    assert is_inside(name)


@pytest.mark.parametrize("name", ["", "/a", "..", "../a", "a/../../b", "a\\b", "a\0b", "a/.."])
def test_names_that_leave(name: str) -> None:
    assert not is_inside(name)
