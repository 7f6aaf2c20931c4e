"""The recorder in an environment stack: off unless asked for, and refused where it could not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from budget.problems import BadInput
from infra.offline import evaluate
from infra.rules import check
from infra.stack_file import read

PINNED = "111122223333.dkr.ecr.us-west-2.amazonaws.com/python:3.13@sha256:" + "a" * 64


def with_recorder(stacks: Path, recorder: Any, **more: Any) -> None:
    path = stacks / "Pulumi.dev.yaml"
    document = yaml.safe_load(path.read_text())
    document["config"]["coldstart:environment"] |= {"recorder": recorder, **more}
    path.write_text(yaml.safe_dump(document))


def test_it_is_off_unless_asked_for(stacks: Path) -> None:
    assert not [resource for resource in evaluate("dev", directory=stacks).resources if "recorder" in resource.name]


def test_one_key_turns_it_on(stacks: Path) -> None:
    with_recorder(stacks, {})
    found = [resource for resource in evaluate("dev", directory=stacks).resources if "recorder" in resource.name]
    kinds = [resource.type.rpartition(":")[2] for resource in found if resource.custom]
    assert sorted(kinds) == sorted(
        [
            *("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
            *("ConfigMap", "Service", "NetworkPolicy", "Deployment"),
        ]
    )
    namespace = next(resource.urn for resource in found if resource.type.endswith(":Namespace"))
    for resource in found:
        if resource.custom and resource.urn != namespace:
            assert namespace in resource.depends_on


@pytest.mark.parametrize(
    ("recorder", "more", "why"),
    [
        (
            {},
            {"network": {"egress": "none"}, "addons": {"keda": "present", "cluster_autoscaler": "present"}},
            "public registry",
        ),
        ({}, {"production": True}, "has no digest, in a production environment"),
    ],
)
def test_where_it_could_not_run_it_is_refused(stacks: Path, recorder: Any, more: dict[str, Any], why: str) -> None:
    with_recorder(stacks, recorder, **more)
    with pytest.raises(BadInput, match=why):
        check(read("dev", stacks))


def test_a_pinned_private_image_runs_anywhere(stacks: Path) -> None:
    with_recorder(stacks, {"image": PINNED}, production=True)
    assert not [problem for problem in problems(stacks) if "recorder" in problem]


def problems(stacks: Path) -> list[str]:
    try:
        check(read("dev", stacks))
    except BadInput as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.parametrize(
    "recorder", [{"keep": 1}, {"replicas": 3}, {"otlp_endpoint": "collector:4318"}, {"imaeg": "x"}]
)
def test_wrong_values_name_their_key(stacks: Path, recorder: dict[str, Any]) -> None:
    with_recorder(stacks, recorder)
    with pytest.raises(BadInput, match=f"environment.recorder.{next(iter(recorder))}"):
        read("dev", stacks)
