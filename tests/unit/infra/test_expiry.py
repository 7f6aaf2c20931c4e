"""Expiry: an appointment that AWS keeps by itself, and the one role that it may do it with."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.expiry import EARLIEST, expression, moment, scheduler_trust, sleep_policy
from infra.offline import Evaluation, Recorded

Declared = Callable[..., Evaluation]
LLAMA = "dev-llama-3-1-8b"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
EIGHT_HOURS = {"model.cost": {"expires_after": "8h"}}
POOL = {"model.nodes.warm_pool": {"size": 2}}


def schedules(found: Evaluation) -> dict[str, Recorded]:
    return {resource.name: resource for resource in found.of_type("schedule:Schedule")}


def request(schedule: Recorded) -> dict[str, object]:
    return json.loads(schedule.inputs["target"]["input"])


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("8h", "2026-11-30T20:00"),
        ("3d", "2026-12-03T12:00"),
        ("2026-12-01", "2026-12-01T00:00"),
        ("2026-12-01T18:00", "2026-12-01T18:00"),
        ("2026-12-01T18:00Z", "2026-12-01T18:00"),
        ("2026-12-01 18:00:30+02:00", "2026-12-01T16:00:30"),
    ],
)
def test_what_a_setting_stands_for(text: str, at: str) -> None:
    assert moment(text, NOW) == datetime.fromisoformat(at).replace(tzinfo=UTC)


@given(
    at=st.datetimes(min_value=datetime(2020, 1, 1), max_value=datetime(2090, 1, 1)),  # noqa: DTZ001 - zones are added below
    hours=st.integers(-12, 14),
)
def test_a_moment_survives_the_scheduler(at: datetime, hours: int) -> None:
    zoned = at.replace(microsecond=0, tzinfo=timezone(timedelta(hours=hours)))
    read = datetime.fromisoformat(expression(zoned).removeprefix("at(").removesuffix(")")).replace(tzinfo=UTC)
    assert read == zoned == moment(zoned.isoformat(), NOW)


def test_one_schedule_a_group_puts_every_size_to_zero(declared: Declared) -> None:
    found = declared(LLAMA, EIGHT_HOURS | {"model.nodes.group_per_zone": True})
    groups = {resource.name: resource for resource in found.of_type("nodeGroup:NodeGroup")}
    made = schedules(found)
    assert set(made) == {f"{LLAMA}-{letter}-8h" for letter in "abc"}
    assert {request(schedule)["AutoScalingGroupName"] for schedule in made.values()} == {
        f"eks-{name}-offline" for name in groups
    }
    for schedule in made.values():
        asked = request(schedule)
        assert (asked["MinSize"], asked["MaxSize"], asked["DesiredCapacity"]) == (0, 0, 0)
        assert schedule.inputs["target"]["arn"] == "arn:aws:scheduler:::aws-sdk:autoscaling:updateAutoScalingGroup"
        assert schedule.inputs["flexibleTimeWindow"] == {"mode": "OFF"}
        assert schedule.inputs["actionAfterCompletion"] == "NONE"
        assert schedule.ignore_changes == ("scheduleExpression",), "a later `up` leaves the appointment where it is"
        assert len(schedule.inputs["name"]) <= 64


def test_a_warm_pool_ends_with_its_group(declared: Declared) -> None:
    made = schedules(declared(LLAMA, EIGHT_HOURS | POOL))
    assert set(made) == {f"{LLAMA}-nodes-8h", f"{LLAMA}-nodes-warm-pool-8h"}
    pool = made[f"{LLAMA}-nodes-warm-pool-8h"]
    assert pool.inputs["target"]["arn"] == "arn:aws:scheduler:::aws-sdk:eks:updateNodegroupConfig"
    assert request(pool)["WarmPoolConfig"] == {"Enabled": False}


def test_the_appointment_is_set_from_now_and_never_in_the_past(declared: Declared) -> None:
    before = datetime.now(UTC)
    asked_only_here = (("7h", timedelta(hours=7)), ("2020-01-01", EARLIEST))  # an answer from memory would be older
    for setting, after in asked_only_here:
        (schedule,) = declared(LLAMA, {"model.cost": {"expires_after": setting}}).of_type("schedule:Schedule")
        text = schedule.inputs["scheduleExpression"].removeprefix("at(").removesuffix(")")
        at = datetime.fromisoformat(text).replace(tzinfo=UTC)
        assert before + after - timedelta(seconds=1) <= at <= datetime.now(UTC) + after


def test_another_setting_is_another_appointment(declared: Declared) -> None:
    names = [
        set(schedules(declared(LLAMA, {"model.cost": {"expires_after": setting}})))
        for setting in ("8h", "3d", "2031-01-01T12:00Z")
    ]
    assert names == [{f"{LLAMA}-nodes-8h"}, {f"{LLAMA}-nodes-3d"}, {f"{LLAMA}-nodes-2031-01-01t12-00z"}]


def test_a_models_own_word_before_its_environments(declared: Declared) -> None:
    shared = {"environment.cost": {"expires_after": "3d"}}
    assert set(schedules(declared(LLAMA, environment=shared))) == {f"{LLAMA}-nodes-3d"}
    assert set(schedules(declared(LLAMA, EIGHT_HOURS, environment=shared))) == {f"{LLAMA}-nodes-8h"}
    assert not schedules(declared("dev", shared)), "an environment's own nodes do not expire"
    assert not schedules(declared(LLAMA)), "and nothing does unless it is asked for"


def test_the_role_may_do_that_and_nothing_else(declared: Declared) -> None:
    found = declared(LLAMA, EIGHT_HOURS | POOL)
    policies = {
        resource.name: json.loads(resource.inputs["policy"]) for resource in found.of_type("rolePolicy:RolePolicy")
    }
    groups = "arn:aws:autoscaling:us-west-2:111122223333:autoScalingGroup:*:autoScalingGroupName/"
    assert policies[f"{LLAMA}-expiry"]["Statement"] == [
        {
            "Sid": "Sleep",
            "Effect": "Allow",
            "Action": ["autoscaling:UpdateAutoScalingGroup"],
            "Resource": [f"{groups}eks-{LLAMA}-offline"],
        },
        {
            "Sid": "EmptyWarmPools",
            "Effect": "Allow",
            "Action": ["eks:UpdateNodegroupConfig"],
            "Resource": [f"arn:aws:eks:us-west-2:111122223333:nodegroup/coldstart-dev/{LLAMA}-offline/*"],
        },
    ]
    roles = {resource.name: json.loads(resource.inputs["assumeRolePolicy"]) for resource in found.of_type("role:Role")}
    (statement,) = roles[f"{LLAMA}-expiry"]["Statement"]
    assert statement["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert statement["Condition"]["StringEquals"]["aws:SourceAccount"] == "111122223333"
    assert ":schedule-group/" in statement["Condition"]["StringEquals"]["aws:SourceArn"]


def test_policies_of_other_partitions() -> None:
    policy = sleep_policy("aws-cn", "cn-north-1", "111122223333", ["g"], "c", [])
    assert json.dumps(policy).count("arn:aws-cn:autoscaling:cn-north-1") == 1
    assert "EmptyWarmPools" not in json.dumps(policy)
    trust = scheduler_trust("111122223333", "arn:aws-cn:scheduler:cn-north-1:111122223333:schedule-group/x")
    assert "arn:aws-cn:scheduler" in json.dumps(trust)
