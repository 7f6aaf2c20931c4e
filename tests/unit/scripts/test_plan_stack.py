"""A stack's plan: what it counts with is what its pod is given, and what it says is in the stack file's own keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from budget.cost import Terms
from budget.findings import Finding
from budget.plan import Plan
from budget.price import prices
from budget.problems import BadInput
from infra.forecast import scenario
from infra.model_settings import Model
from infra.specs import model_specs
from infra.stack_file import Stack, config_of, names, parse, read
from scripts.plan_stack import SCENARIO_KEYS, STACK_KEYS, in_stack_keys, model_plan, stack_plan
from serving.engine import environment

LLAMA, QWEN = "dev-llama-3-1-8b", "dev-qwen3-32b"
MODELS = [name for name in names() if read(name).model is not None]


def changed(name: str, **settings: object) -> tuple[Stack, Model]:
    """A shipped stack with some settings of its model replaced, dots in their keys."""
    config: dict[str, Any] = {**config_of(name)}
    model = dict(config["coldstart:model"])
    for key, value in settings.items():
        *parts, last = key.split("__")
        place = model
        for part in parts:
            place[part] = dict(place.get(part, {}))
            place = place[part]
        place[last] = value
    config["coldstart:model"] = model
    stack = parse(name, config)
    assert stack.model is not None
    return stack, stack.model


def plan(name: str, **settings: object) -> Plan:
    stack, model = changed(name, **settings)
    return model_plan(stack, model, terms=Terms(), slo_s=None)


# --- the pod's streamer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [LLAMA, QWEN])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"image": "vllm/vllm-openai:v0.33.0"},
        {"image": "vllm/vllm-openai:v0.32.0"},
        {"nodes__instance": "g6e.48xlarge", "engine__tensor_parallel": 4},
        {"nodes__instance": "p5.48xlarge", "engine__tensor_parallel": 2, "weights__distributed": False},
        {"nodes__instance": "g6e.12xlarge", "engine__tensor_parallel": 1},
        {"weights__streamer_memory_gib": 3},
    ],
)
def test_the_plan_counts_with_the_streamer_that_the_pod_has(name: str, settings: Mapping[str, object]) -> None:
    stack, model = changed(name, **settings)
    specs = model_specs(stack, model)
    found, planned = environment(specs.serving.engine), scenario(stack, model, specs.node).weights
    new = "RUNAI_STREAMER_OBJ_CONCURRENCY" in found
    assert (planned.streamer >= (0, 17)) is new
    assert str(planned.clients) == found["RUNAI_STREAMER_OBJ_CONCURRENCY" if new else "RUNAI_STREAMER_CONCURRENCY"]
    assert str(planned.memory_limit_bytes) == found["RUNAI_STREAMER_MEMORY_LIMIT"]
    assert planned.distributed is specs.serving.engine.distributed


# --- keys -------------------------------------------------------------------------------------------------------------


def in_tree(key: str) -> bool:
    """Whether a stack file has this key."""
    annotation: Any = Model
    for part in key.split(".")[1:]:
        kinds = [annotation, *getattr(annotation, "__args__", ())]
        tree = next((kind for kind in kinds if hasattr(kind, "model_fields")), None)
        if tree is None or part not in tree.model_fields:
            return False
        annotation = tree.model_fields[part].annotation
    return True


@pytest.mark.parametrize("key", sorted(STACK_KEYS.values()))
def test_what_a_key_becomes_is_a_key_of_a_stack_file(key: str) -> None:
    assert in_tree(key)


@pytest.mark.parametrize("key", sorted(SCENARIO_KEYS - {"instance"}))
def test_no_key_of_a_scenario_stands_for_one_of_the_stack(key: str) -> None:
    words = in_stack_keys(f"Give {key}, or another.")
    assert words in {f"Give {STACK_KEYS.get(key)}, or another.", f"Give a scenario file's {key}, or another."}
    assert in_stack_keys(words.replace("a scenario file's ", "")) == words


def test_other_dots_stay() -> None:
    for words in ("model.image_facts.layers", "vllm 0.27.1", "g6e.2xlarge", "model.revision", "model.safetensors"):
        assert in_stack_keys(words) == words


@pytest.mark.parametrize("name", MODELS)
def test_findings_of_a_shipped_stack_name_keys_it_has(name: str) -> None:
    for finding in plan(name).findings:
        for key in re.findall(r"(?<!file's )\bmodel(?:\.[a-z_]+)+", f"{finding.message} {finding.fix}"):
            assert in_tree(key), finding


def test_unknown_layers_and_an_estimated_disk_say_where_to_write_them() -> None:
    fixes = {finding.code: finding.fix for finding in plan(LLAMA).findings}
    assert "model.image_facts.layers" in fixes["layers-unknown"]
    assert "a scenario file's host.disk_mb_s" in fixes["nvme-estimated"]


def test_a_contradiction_is_told_in_the_stack_s_keys() -> None:
    with pytest.raises(BadInput) as caught:
        plan("dev-qwen2-5-0-5b", nodes__instance="g6e.48xlarge", engine__tensor_parallel=4)
    assert [problem.where for problem in caught.value.problems] == ["model.engine.tensor_parallel"]


# --- region -----------------------------------------------------------------------------------------------------------


def regional(region: str) -> list[Finding]:
    stack, model = changed(LLAMA)
    settings = stack.environment.model_copy(update={"region": region})
    moved = Stack(name=stack.name, environment=settings, model=model, facts=stack.facts)
    found = model_plan(moved, model, terms=Terms(), slo_s=None).findings
    return [finding for finding in found if finding.code == "price-region"]


def test_prices_of_another_region_are_said_to_be() -> None:
    (finding,) = regional("eu-central-1")
    assert finding.level == "info"
    assert prices().region in finding.message
    assert "`coldstart prices --refresh --region eu-central-1`" in finding.fix


def test_prices_of_the_stack_s_own_region_are_no_finding() -> None:
    assert regional(prices().region) == []


def test_where_no_list_reaches_the_price_is_asked_for() -> None:
    (finding,) = regional("us-gov-west-1")
    assert "--usd-per-hour" in finding.fix


# --- compared ---------------------------------------------------------------------------------------------------------


def test_the_untuned_start_beside_it_is_bought_and_told_alike() -> None:
    stack, model = changed("dev-qwen2-5-0-5b")
    tuned = model_plan(stack, model, terms=Terms(), slo_s=None)
    untuned = model_plan(stack, model, terms=Terms(), slo_s=None, untuned=True)
    assert untuned.cost.around_usd_per_hour == pytest.approx(tuned.cost.around_usd_per_hour)
    assert untuned.terms == tuned.terms
    assert untuned.terms.purchase == "spot"
    assert untuned.budget.total.expected_s > tuned.budget.total.expected_s
    assert not any("Give image.layers" in finding.fix for finding in untuned.findings)


# --- what a plan refuses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"scaling__min_replicas": 9, "scaling__max_replicas": 2}, "model.scaling.min_replicas"),
        ({"nodes__volume": {"snapshot_id": "snap-0123456789abcdef0"}}, "model.nodes.volume.snapshot_id"),
        ({"engine__args": ["--no-such-flag"]}, "model.engine.args[0]"),
        ({"nodes__gpu_sharing": {"mig_profile": "1g.10gb"}}, "model.nodes.gpu_sharing.mig_profile"),
        ({"image": "vllm/vllm-openai:v0.6.0"}, "model.engine.version"),
        ({"cost": {"max_usd_per_hour": 1}}, "model.cost.max_usd_per_hour"),
    ],
)
def test_a_plan_refuses_what_up_would_refuse(
    settings: Mapping[str, object], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.plan_stack.read", lambda _: changed(LLAMA, **settings)[0])
    with pytest.raises(BadInput) as caught:
        stack_plan(LLAMA, terms=Terms(), slo_s=None)
    assert where in {problem.where for problem in caught.value.problems}


def test_that_a_model_does_not_fit_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.plan_stack.read", lambda _: changed(LLAMA, engine__context_tokens=200_000)[0])
    assert not stack_plan(LLAMA, terms=Terms(), slo_s=None).fits
