"""Names of staged models, and the manifest that says what was staged."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from budget.models import known_models
from budget.problems import BadInput
from budget.staged import (
    Manifest,
    StagedFile,
    StagedModel,
    model_of_manifest_key,
    parse_manifest,
    parse_reference,
    stage_command,
    staged_model,
)

REVISION = "0123456789abcdef0123456789abcdef01234567"
MODEL = StagedModel(name="org/name-7B.v1", revision=REVISION)
FILE = StagedFile(path="config.json", bytes=3, sha256="ab" * 32, crc32="0000beef")

hexes = st.text("0123456789abcdef", min_size=64, max_size=64)
staged_files = st.builds(
    StagedFile,
    path=st.builds("{}.{}".format, st.text("ab0_-", min_size=1), st.sampled_from(["json", "safetensors"])),
    bytes=st.integers(0, 10**12),
    sha256=hexes,
    crc32=st.text("0123456789abcdef", min_size=8, max_size=8),
)


def manifest(*files: StagedFile, **members: object) -> Manifest:
    given_members = {
        "model": MODEL,
        "source": f"hf:{MODEL}",
        "requested_revision": "main",
        "files": files or (FILE,),
        "facts": None,
        **members,
    }
    return Manifest(**given_members)


def test_objects_and_manifest_lie_apart() -> None:
    assert MODEL.prefix == f"models/org/name-7B.v1/{REVISION}/"
    assert MODEL.manifest_key == f"manifests/org/name-7B.v1/{REVISION}.json"
    assert not MODEL.manifest_key.startswith(MODEL.prefix)
    assert MODEL.key("1_Pooling/config.json") == f"{MODEL.prefix}1_Pooling/config.json"
    assert MODEL.uri("weights") == f"s3://weights/{MODEL.prefix}"
    assert MODEL.manifest_uri("weights") == f"s3://weights/{MODEL.manifest_key}"


def test_the_manifest_key_leads_back_to_the_model() -> None:
    assert model_of_manifest_key(MODEL.manifest_key) == MODEL
    assert model_of_manifest_key("manifests/org/name/short.json") is None
    assert model_of_manifest_key(MODEL.prefix) is None


@pytest.mark.parametrize("name", ["name", "a/b/c", "/b", "a/", "a b/c", "a/..", "a/é", "a/b*", "../x"])
def test_a_name_is_two_plain_parts(name: str) -> None:
    with pytest.raises(BadInput, match="is no ORG/NAME"):
        staged_model(name, REVISION)


def test_both_problems_are_told_at_once() -> None:
    with pytest.raises(BadInput) as error:
        staged_model("name", "main", where="model")
    assert [problem.found for problem in error.value.problems] == [
        "'name' is no ORG/NAME",
        "revision 'main' is not a commit",
    ]


def test_a_reference_is_name_and_revision() -> None:
    assert parse_reference(str(MODEL), where="target") == MODEL
    with pytest.raises(BadInput, match="names no revision"):
        parse_reference("org/name", where="target")
    with pytest.raises(BadInput, match="is not a commit"):
        parse_reference("org/name@main", where="target")


def test_the_command_names_the_stack() -> None:
    assert stage_command("dev-llama-3-1-8b") == "coldstart stage dev-llama-3-1-8b"


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(staged_files, min_size=1, max_size=5, unique_by=lambda file: file.path))
def test_what_is_written_is_what_is_read(files: list[StagedFile]) -> None:
    facts = known_models()["meta-llama/Llama-3.1-8B-Instruct"]
    written = manifest(*files, facts=facts)
    assert parse_manifest(written.text(), where="x") == written


@pytest.mark.parametrize("name", sorted(known_models()))
def test_the_facts_of_every_known_model_survive(name: str) -> None:
    written = manifest(facts=known_models()[name])
    assert parse_manifest(written.text(), where="x").facts == known_models()[name]


def test_a_manifest_reads_like_this() -> None:
    weights = StagedFile(path="model.safetensors", bytes=10, sha256="cd" * 32, crc32="00000001")
    document = json.loads(manifest(FILE, weights).text())
    assert document == {
        "format": 1,
        "name": "org/name-7B.v1",
        "revision": REVISION,
        "source": f"hf:org/name-7B.v1@{REVISION}",
        "requested_revision": "main",
        "files": [
            {"path": "config.json", "bytes": 3, "sha256": "ab" * 32, "crc32": "0000beef"},
            {"path": "model.safetensors", "bytes": 10, "sha256": "cd" * 32, "crc32": "00000001"},
        ],
        "total_bytes": 13,
        "weights_bytes": 10,
        "facts": None,
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "format 2 is unknown"),
        ({"files": []}, "do not add up"),
        ({"total_bytes": 4}, "do not add up"),
        ({"revision": "main"}, "is not a commit"),
        ({"files": [{"path": "a", "bytes": 1, "sha256": "xyz", "crc32": "00000000"}]}, "no complete manifest"),
        ({"files": [{"path": "a"}]}, "no complete manifest"),
        ({"facts": {"name": "x"}}, "no complete manifest"),
    ],
)
def test_a_manifest_that_is_not_one_says_why(change: dict[str, object], said: str) -> None:
    document = json.loads(manifest().text()) | change
    with pytest.raises(BadInput, match=said):
        parse_manifest(json.dumps(document), where="s3://weights/manifests/x.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_what_is_no_manifest_at_all(text: str) -> None:
    with pytest.raises(BadInput, match="not"):
        parse_manifest(text, where="x")
