"""Tags that say when, limits that say how much: in the settings, and held against what is really declared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from budget.price import total_usd_per_hour
from budget.problems import BadInput
from infra.accounts import environment_tags
from infra.bill import bill
from infra.guardrails import GUARDRAILS, REQUIRED_TAGS, TAGGED_TYPES
from infra.hourly_maximum import most, violation
from infra.offline import Evaluation
from infra.rules import check, warnings
from infra.specs import model_specs
from infra.stack_file import read
from tests.unit.infra.changed_stacks import change

Declared = Callable[..., Evaluation]
STACKS = ("dev", "dev-llama-3-1-8b", "dev-qwen2-5-0-5b", "dev-qwen3-32b")
LLAMA = "dev-llama-3-1-8b"
SURGE_AND_WEIGHTS_USD = 0.15
"""The bill counts weights at rest, which the resources don't show; they may differ by that much."""


def declared_resources(found: Evaluation) -> list[tuple[str, str, Any]]:
    return [(resource.type, resource.name, resource.inputs) for resource in found.resources if resource.custom]


@pytest.mark.parametrize("name", STACKS)
def test_what_is_declared_costs_what_the_settings_promise(declared: Declared, name: str) -> None:
    stack = read(name)
    promised = bill(stack, model_specs(stack, stack.model) if stack.model else None).most_usd_per_hour
    counted = total_usd_per_hour(most(declared_resources(declared(name))))
    assert counted is not None
    assert promised is not None
    assert abs(counted - promised) <= SURGE_AND_WEIGHTS_USD


def test_groups_at_their_maximum_and_warm_pools_beside_them() -> None:
    template = {
        "instanceType": "g6e.2xlarge",
        "blockDeviceMappings": [{"ebs": {"volumeType": "gp3", "volumeSize": 73, "iops": 3000, "throughput": 125}}],
    }
    group = {"scalingConfig": {"maxSize": 3}}
    disk = 73 * 0.08 / 730

    def usd(pool: dict[str, Any] | None) -> float | None:
        resources = [
            ("aws:ec2/launchTemplate:LaunchTemplate", "m", template),
            ("aws:eks/nodeGroup:NodeGroup", "m", group | ({"warmPoolConfig": pool} if pool else {})),
        ]
        return total_usd_per_hour(most(resources))

    assert usd(None) == pytest.approx(3 * (2.24208 + disk))
    assert usd({"minSize": 2, "poolState": "STOPPED"}) == pytest.approx(3 * 2.24208 + 5 * disk)
    assert usd({"minSize": 2, "poolState": "RUNNING"}) == pytest.approx(5 * (2.24208 + disk))


def test_a_stack_that_can_cost_more_is_a_violation(declared: Declared) -> None:
    resources = declared_resources(declared(LLAMA))
    assert violation(resources, None) is None
    assert violation(resources, 9.5) is None
    assert violation(resources, 8.9) == "can cost $8.98 per hour; cost.max_usd_per_hour is 8.9"


def test_an_unknown_price_can_not_be_held_against_a_limit() -> None:
    resources = [
        ("aws:ec2/launchTemplate:LaunchTemplate", "m", {"instanceType": "p9.48xlarge"}),
        ("aws:eks/nodeGroup:NodeGroup", "m", {"scalingConfig": {"maxSize": 1}}),
        ("aws:ec2/natGateway:NatGateway", "n", {}),
    ]
    assert violation(resources, 100) == "no price is known for 1 x p9.48xlarge; cost.max_usd_per_hour can't be kept"
    assert violation(resources, 0.01) == "can cost at least $0.05 per hour; cost.max_usd_per_hour is 0.01"


@pytest.mark.parametrize(
    ("volume", "words"),
    [({"volumeType": "st1", "volumeSize": 500}, "1 x st1 500 GiB"), ({"volumeSize": 20}, "no stated kind 20 GiB")],
)
def test_a_volume_without_a_price_can_not_be_held_against_a_limit(volume: dict[str, Any], words: str) -> None:
    template = {"instanceType": "g6e.2xlarge", "blockDeviceMappings": [{"ebs": volume}]}
    resources = [
        ("aws:ec2/launchTemplate:LaunchTemplate", "m", template),
        ("aws:eks/nodeGroup:NodeGroup", "m", {"scalingConfig": {"maxSize": 1}}),
    ]
    assert words in (violation(resources, 100) or "")


def test_the_same_limit_stops_the_program(stacks: Path) -> None:
    change(stacks, LLAMA, {"model.cost": {"max_usd_per_hour": 5}})
    with pytest.raises(BadInput, match=r"model\.cost\.max_usd_per_hour: 5, but the stack can cost \$8\.98 per hour"):
        check(read(LLAMA, stacks))
    change(stacks, LLAMA, {"model.cost": {"max_usd_per_hour": 9.5}})
    check(read(LLAMA, stacks))
    change(stacks, "dev", {"environment.cost": {"max_usd_per_hour": 0.2}})
    with pytest.raises(BadInput, match=r"environment\.cost\.max_usd_per_hour: 0\.2, but the stack can cost"):
        check(read("dev", stacks))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0h", "not a length of time"),
        ("2026-13-01", "is not a time: month must be in"),
        ("2026-12-01T25:00Z", "is not a time: hour must be in"),
        ("8 hours", "found '8 hours'"),
        ("soon", "found 'soon'"),
        (8, "found 8"),
    ],
)
def test_no_moment_is_refused_with_its_key(stacks: Path, text: object, words: str) -> None:
    change(stacks, "dev", {"environment.cost": {"expires_after": text}})
    with pytest.raises(BadInput) as caught:
        check(read("dev", stacks))
    (problem,) = caught.value.problems
    assert problem.where == "environment.cost.expires_after"
    assert words in problem.found


def test_a_date_may_be_written_without_quotes(stacks: Path) -> None:
    path = stacks / "Pulumi.dev.yaml"
    path.write_text(path.read_text() + "    cost: {expires_after: 2031-01-01T12:00:00Z}\n")
    assert read("dev", stacks).environment.cost.expires_after == "2031-01-01T12:00:00+00:00"
    check(read("dev", stacks))


def test_a_date_that_has_passed_is_warned_of(stacks: Path) -> None:
    change(stacks, "dev", {"environment.cost": {"expires_after": "2020-01-01"}})
    assert not [each for each in warnings(read("dev", stacks)) if "expires_after" in each.where]
    (warning,) = [each for each in warnings(read(LLAMA, stacks)) if "expires_after" in each.where]
    assert warning.found.startswith("2020-01-01 has passed")
    assert f"coldstart extend {LLAMA}" in warning.fix


def test_six_tags_say_whose_what_and_until_when(stacks: Path) -> None:
    change(stacks, "dev", {"environment.cost": {"expires_after": "3d"}})
    assert environment_tags(read("dev", stacks)) == {
        "application": "coldstart",
        "environment": "dev",
        "model": "none",
        "stack": "dev",
        "owner": "platform-team",
        "expiry": "3d",
    }
    tags = environment_tags(read(LLAMA, stacks))
    assert set(tags) == set(REQUIRED_TAGS)
    assert (tags["model"], tags["expiry"]) == ("meta-llama:Llama-3.1-8B-Instruct", "3d")
    assert environment_tags(read(LLAMA))["expiry"] == "never"


@pytest.mark.parametrize("tag", REQUIRED_TAGS)
def test_a_resource_without_one_of_them_is_refused(tag: str) -> None:
    (tagged,) = [guardrail.check for guardrail in GUARDRAILS if guardrail.name == "tagged"]
    tags = dict.fromkeys(REQUIRED_TAGS, "x")
    for kind in TAGGED_TYPES:
        assert not list(tagged(kind, {"tagsAll": tags}))
        del_one = {key: value for key, value in tags.items() if key != tag}
        assert list(tagged(kind, {"tagsAll": del_one})) == [f"tags missing: {tag}"]


def test_another_expiry_replaces_no_running_node(declared: Declared) -> None:
    """The launch template is what nodes are made from: another version of it would replace every one of them."""

    def templates(changes: dict[str, Any]) -> list[Any]:
        return [each.inputs for each in declared(LLAMA, changes).of_type("launchTemplate:LaunchTemplate")]

    assert templates({}) == templates({"model.cost": {"expires_after": "8h"}})
