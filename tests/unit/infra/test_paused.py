"""What the program does while a stack is paused: it leaves held sizes alone, and makes nothing that is awake."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from budget.problems import BadInput
from infra.offline import Evaluation, evaluate
from infra.stack_file import read
from scripts.pause_mark import mark

LLAMA = "dev-llama-3-1-8b"


@pytest.fixture
def paused(stacks: Path) -> Path:
    assert mark(LLAMA, stacks, paused=True)
    return stacks


def declared(directory: Path) -> Evaluation:
    return evaluate(LLAMA, directory=directory)


def test_the_same_resources_and_the_same_inputs_but_for_what_is_held(stacks: Path, tmp_path: Path) -> None:
    awake = {each.urn: each for each in declared(stacks).resources}
    copy = tmp_path / "paused"
    shutil.copytree(stacks, copy)
    mark(LLAMA, copy, paused=True)
    asleep = {each.urn: each for each in declared(copy).resources}
    assert awake.keys() == asleep.keys()
    changed = {urn for urn in awake if awake[urn].inputs != asleep[urn].inputs}
    assert {urn.split("::")[-2].rpartition("$")[2] for urn in changed} <= {"kubernetes:keda.sh/v1alpha1:ScaledObject"}
    ignoring = {
        urn: asleep[urn].ignore_changes for urn in awake if awake[urn].ignore_changes != asleep[urn].ignore_changes
    }
    assert sorted(ignoring.values()) == [("metadata.annotations",), ("scalingConfig", "warmPoolConfig")]


def test_what_is_made_meanwhile_is_made_asleep(paused: Path) -> None:
    found = declared(paused)
    (group,) = found.of_type("nodeGroup:NodeGroup")
    assert group.inputs["scalingConfig"]["desiredSize"] == group.inputs["scalingConfig"]["minSize"] == 0
    assert group.inputs["scalingConfig"]["maxSize"] == 4, "EKS takes no maximum of zero; the hold is Auto Scaling's"
    (scaled,) = found.of_type("ScaledObject")
    assert scaled.inputs["metadata"]["annotations"] == {"autoscaling.keda.sh/paused-replicas": "0"}


def test_the_mark_is_one_line_and_comes_and_goes(stacks: Path) -> None:
    path = stacks / f"Pulumi.{LLAMA}.yaml"
    path.write_text("# why this model\n" + path.read_text().replace("nodes:", "nodes: # the smallest that fits"))
    before = path.read_text()
    assert mark(LLAMA, stacks, paused=True)
    marked = path.read_text()
    assert [line.strip() for line in marked.splitlines() if line not in before.splitlines()] == [
        "coldstart:paused: true"
    ]
    assert mark(LLAMA, stacks, paused=True)
    assert path.read_text() == marked
    assert read(LLAMA, stacks).paused
    assert mark(LLAMA, stacks, paused=False)
    assert yaml.safe_load(path.read_text()) == yaml.safe_load(before)
    assert "# why this model" in path.read_text()
    assert "# the smallest that fits" in path.read_text()
    assert not read(LLAMA, stacks).paused


def test_a_file_that_is_gone_or_no_longer_parses_is_left_alone(stacks: Path) -> None:
    assert not mark("dev-nothing", stacks, paused=True)
    path = stacks / f"Pulumi.{LLAMA}.yaml"
    for text in ("config: [\n", "just words\n", "config: {\n  a: b\n"):
        path.write_text(text)
        assert not mark(LLAMA, stacks, paused=True)
        assert path.read_text() == text


@pytest.mark.parametrize("value", ["yes please", 1, ["true"]])
def test_anything_but_true_and_false_is_refused(stacks: Path, value: object) -> None:
    path = stacks / f"Pulumi.{LLAMA}.yaml"
    document = yaml.safe_load(path.read_text())
    document["config"]["coldstart:paused"] = value
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(BadInput, match="coldstart:paused: found"):
        read(LLAMA, stacks)


def test_an_environment_is_not_paused(stacks: Path) -> None:
    path = stacks / "Pulumi.dev.yaml"
    document = yaml.safe_load(path.read_text())
    document["config"]["coldstart:paused"] = True
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(BadInput, match="Only a model has GPU nodes"):
        read("dev", stacks)
