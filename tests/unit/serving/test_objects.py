"""All objects of a model: valid, ours, in order, and nothing of a person's text breaks out of its place."""

from __future__ import annotations

import json
from dataclasses import replace

import kubernetes_validate
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.manifests import (
    ServingSpec,
    launcher_config,
    objects,
)
from tests.unit.serving.made_specs import (
    CACHE,
    CUSTOM_KINDS,
    ENGINE,
    EVERYTHING,
    KINDS,
    SPEC,
    VERSIONS,
    WEIGHTS,
    WINDOW,
    by_kind,
    container_of,
)
from tests.unit.serving.scaled_object import check_scaled_object

pytestmark = pytest.mark.usefixtures("short_launcher")


def names(most: int = 40) -> st.SearchStrategy[str]:
    return st.from_regex(rf"[a-z]([a-z0-9-]{{0,{most}}}[a-z0-9])?", fullmatch=True)


TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=("Cs", "Cc")), min_size=1, max_size=30)
SPECS = st.builds(
    lambda name, engine, scaling, **rest: replace(
        SPEC, name=name, namespace=name, engine=engine, scaling=scaling, **rest
    ),
    name=names(),
    model=TEXT,
    instance=st.sampled_from(["g6.xlarge", "p5.48xlarge"]),
    gpus=st.integers(1, 8),
    cpu_millicores=st.integers(100, 190_000),
    memory_bytes=st.integers(2**30, 2**41),
    api_key_secret=st.sampled_from([None, "engine-api-key"]),
    weights=st.sampled_from([WEIGHTS, EVERYTHING.weights]),
    compile_cache=st.sampled_from([None, CACHE]),
    spare_replicas=st.integers(0, 2),
    pod_monitor=st.booleans(),
    engine=st.builds(
        lambda **changes: replace(ENGINE, **changes),
        eager=st.booleans(),
        distributed=st.booleans(),
        concurrency=st.integers(1, 512),
        context_tokens=st.integers(128, 10**7),
        version=st.sampled_from([(0, 27, 1), (0, 33, 0)]),
        args=st.lists(TEXT.map(lambda text: f"--flag={text}"), max_size=3).map(tuple),
    ),
    scaling=st.builds(
        lambda most, least, schedule: replace(
            SPEC.scaling, min_replicas=min(most, least), max_replicas=most, schedule=tuple(schedule)
        ),
        st.integers(1, 9),
        st.integers(0, 9),
        st.lists(st.just(WINDOW), max_size=2),
    ),
)


def check_objects(spec: ServingSpec, *versions: str) -> None:
    for manifest in objects(spec):
        if manifest["kind"] == "ScaledObject":
            check_scaled_object(manifest)
        if manifest["kind"] in CUSTOM_KINDS:
            continue
        for version in versions:
            kubernetes_validate.validate(dict(manifest), version, strict=True)


def test_every_object_is_valid_strictly() -> None:
    check_objects(SPEC, *VERSIONS)
    check_objects(EVERYTHING, *VERSIONS)


@given(spec=SPECS)
@settings(max_examples=5, deadline=None)
def test_whatever_the_spec_every_object_is_valid_strictly(spec: ServingSpec) -> None:
    check_objects(spec, VERSIONS[-1])


@given(spec=SPECS)
@settings(max_examples=10, deadline=None)
def test_whatever_the_spec_values_arrive_as_they_were(spec: ServingSpec) -> None:
    """Nothing a person writes can break out of its place in a template."""
    container = container_of(spec)
    assert container["command"][-len(spec.engine.args) :] == list(spec.engine.args) or not spec.engine.args
    config = json.loads(by_kind(spec)["ConfigMap"]["data"]["launcher.json"])
    assert config["labels"]["model"] == spec.model
    assert config == json.loads(json.dumps(launcher_config(spec)))


def test_the_plain_objects_of_a_model_in_the_order_they_are_applied() -> None:
    assert [manifest["kind"] for manifest in objects(SPEC)] == KINDS


def test_no_two_objects_are_the_same_one() -> None:
    found = [
        (manifest["kind"], manifest["metadata"].get("namespace"), manifest["metadata"]["name"])
        for manifest in objects(EVERYTHING)
    ]
    assert len(set(found)) == len(found)


def test_an_object_comes_after_the_namespace_it_lies_in() -> None:
    seen: set[str] = set()
    for manifest in objects(EVERYTHING):
        if manifest["kind"] == "Namespace":
            seen.add(manifest["metadata"]["name"])
        assert manifest["metadata"].get("namespace", "llama") in seen


def test_pods_besides_the_engines_are_not_counted_as_replicas() -> None:
    """Service, disruption budget and autoscaler go by the selector: a spare pod must not be sent requests."""
    (selector,) = {json.dumps(by_kind()[kind]["spec"]["selector"]) for kind in ("PodDisruptionBudget", "Deployment")}
    wanted = json.loads(selector)["matchLabels"].items()
    for manifest in objects(EVERYTHING):
        template = manifest.get("spec", {}).get("template")
        if template and manifest["metadata"]["name"] != "llama" and manifest["metadata"]["namespace"] == "llama":
            assert not wanted <= template["metadata"]["labels"].items(), manifest["metadata"]["name"]


def test_every_object_is_ours_and_of_this_model() -> None:
    for manifest in objects(SPEC):
        metadata = manifest["metadata"]
        assert metadata["labels"] | {} == {
            "app.kubernetes.io/name": "llama",
            "app.kubernetes.io/managed-by": "coldstart",
            "coldstart/environment": "dev",
            "coldstart/stack": "dev-llama",
            "coldstart/model": "llama",
        } | {key: value for key, value in metadata["labels"].items() if key.startswith("pod-security.kubernetes.io/")}
        assert metadata.get("namespace", "llama") == "llama"
        assert (manifest["kind"] == "Namespace") == ("namespace" not in metadata)


def test_a_label_of_the_stack_never_takes_the_place_of_the_selector() -> None:
    spec = replace(SPEC, labels={"coldstart/model": "another"})
    deployment = by_kind(spec)["Deployment"]["spec"]
    assert deployment["selector"]["matchLabels"] == {"coldstart/model": "llama"}
    assert deployment["template"]["metadata"]["labels"]["coldstart/model"] == "llama"


def test_an_emoji_arrives_whole() -> None:
    args = ("--chat-template=\N{SNOWFLAKE} \N{SNOWMAN} \N{ROCKET}",)
    assert container_of(replace(SPEC, engine=replace(ENGINE, args=args)))["command"][-1] == args[0]


def test_the_same_spec_gives_the_same_objects() -> None:
    assert json.dumps(list(objects(SPEC))) == json.dumps(list(objects(replace(SPEC))))
