"""The launcher as the ConfigMap ships it, and the configuration it is told."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.manifests import (
    Phase,
    ServingSpec,
    launcher_config,
    startup_seconds,
)
from tests.unit.serving.made_specs import (
    BUDGET,
    ENGINE,
    EVERYTHING,
    SPEC,
    WEIGHTS,
    by_kind,
    container_of,
    pod_of,
    scaled,
)


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The launcher as the ConfigMap carries it, imported."""
    path = tmp_path_factory.mktemp("launcher") / "launch.py"
    path.write_text(by_kind()["ConfigMap"]["data"]["launch.py"], encoding="utf-8")
    loader = importlib.util.spec_from_file_location("shipped_launcher", path)
    assert loader is not None
    assert loader.loader is not None
    module = importlib.util.module_from_spec(loader)
    sys.modules[loader.name] = module
    try:
        loader.loader.exec_module(module)
    finally:
        del sys.modules[loader.name]
    return module


def test_the_config_map_holds_the_launcher_and_its_configuration() -> None:
    config_map = by_kind()["ConfigMap"]
    assert set(config_map["data"]) == {"launch.py", "launcher.json"}
    assert config_map["immutable"] is True
    compile(config_map["data"]["launch.py"], "launch.py", "exec")
    # The API server refuses more than 1 MiB.
    assert sum(len(text.encode()) for text in config_map["data"].values()) < 2**20


def test_the_pod_mounts_the_config_map_of_the_same_rendering() -> None:
    (volume,) = [volume for volume in pod_of()["volumes"] if volume["name"] == "launcher"]
    assert volume["configMap"]["name"] == by_kind()["ConfigMap"]["metadata"]["name"]
    command = container_of()["command"]
    assert command[:5] == ["python3", "/etc/coldstart/launch.py", "--config", "/etc/coldstart/launcher.json", "--"]


@pytest.mark.parametrize(
    "changed",
    [
        replace(SPEC, revision="c" * 40),
        replace(SPEC, gpus=2),
        replace(SPEC, budget=BUDGET | {"warmup": Phase(low_s=1, expected_s=2, high_s=99)}),
        replace(SPEC, weights=replace(WEIGHTS, uri="s3://other/")),
    ],
    ids=["revision", "gpus", "budget", "weights"],
)
def test_a_changed_configuration_is_another_config_map(changed: ServingSpec) -> None:
    """Pods that run keep reading the one they started with."""
    assert by_kind(changed)["ConfigMap"]["metadata"]["name"] != by_kind()["ConfigMap"]["metadata"]["name"]


def test_a_changed_launcher_is_another_config_map(monkeypatch: pytest.MonkeyPatch) -> None:
    before = by_kind()["ConfigMap"]["metadata"]["name"]
    monkeypatch.setattr("serving.manifests.launcher_source", lambda: "print('another')\n")
    after = by_kind()["ConfigMap"]
    assert after["data"]["launch.py"] == "print('another')\n"
    assert after["metadata"]["name"] != before


def test_what_does_not_concern_the_launcher_keeps_the_config_map() -> None:
    """A change of replicas must not roll every pod."""
    before = by_kind()["ConfigMap"]["metadata"]["name"]
    assert by_kind(scaled(max_replicas=9))["ConfigMap"]["metadata"]["name"] == before


def test_the_launcher_understands_what_it_is_told(launcher: ModuleType) -> None:
    for spec in (
        SPEC,
        replace(SPEC, revision="unpinned", image="vllm/vllm-openai:v0.33.0"),
        replace(SPEC, engine=replace(ENGINE, eager=True, context_tokens=128, concurrency=1)),
        replace(SPEC, engine=replace(ENGINE, distributed=True, tensor_parallel=8, concurrency=4096), gpus=8),
        EVERYTHING,
    ):
        config = launcher.Config.from_json(json.loads(by_kind(spec)["ConfigMap"]["data"]["launcher.json"]))
        command = container_of(spec)["command"][5:]
        launcher.check_engine_argv(command, config)
        assert [path.kind for path in config.paths] == list(spec.weights.order)
        path = config.paths[-1]
        assert path.source == spec.weights.uri
        assert (config.compile_cache is not None) == (spec.compile_cache is not None)
        assert config.gpus == spec.gpus
        assert config.served_model_name == spec.name
        assert config.drain_timeout_s == spec.engine.shutdown_timeout_s + 10
        assert set(config.budget) == set(BUDGET)
        filled = launcher.engine_arguments(command, path, None)
        assert filled[:5] == ["vllm", "serve", spec.engine.weights_uri, "--load-format", "runai_streamer"]
        assert "{weights}" not in filled


@given(context=st.integers(128, 10**7), concurrency=st.integers(1, 4096), eager=st.booleans())
def test_warm_up_asks_nothing_the_engine_would_refuse(*, context: int, concurrency: int, eager: bool) -> None:
    spec = replace(SPEC, engine=replace(ENGINE, context_tokens=context, concurrency=concurrency, eager=eager))
    warmup = launcher_config(spec)["warmup"]
    assert all(1 <= size <= context - warmup["output_tokens"] for size in warmup["prompt_tokens"])
    assert warmup["prompt_tokens"] == sorted(set(warmup["prompt_tokens"]))
    assert all(1 <= size <= min(concurrency, 64) for size in warmup["batch_sizes"])
    assert warmup["batch_sizes"]
    assert (warmup["batch_sizes"] == [1]) or not eager


def test_warm_up_ends_within_what_the_probe_allows() -> None:
    assert launcher_config(SPEC)["warmup"]["cap_s"] == 42
    assert launcher_config(SPEC)["warmup"]["cap_s"] < startup_seconds(SPEC)


def test_the_ledger_is_told_the_digest_of_the_image() -> None:
    labels = launcher_config(SPEC)["labels"]
    assert labels == {
        "model": "org/name",
        "revision": "a" * 40,
        "instance": "g6e.2xlarge",
        "image": "sha256:" + "b" * 64,
    }
    tagged = replace(SPEC, image="vllm/vllm-openai:v0.33.0")
    assert launcher_config(tagged)["labels"]["image"] == "vllm/vllm-openai:v0.33.0"
