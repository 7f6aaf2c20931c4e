"""Expiry: a moment at which AWS itself puts GPU groups to zero, whether or not anybody's laptop is on.

One schedule for each group, in a group of schedules of its own. It sets minimum, maximum and desired size of the Auto
Scaling group to zero: at a maximum of zero the cluster autoscaler can't bring a node back, however many pods wait.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pulumi
import pulumi_aws as aws

SLEEP_TARGET = "arn:{partition}:scheduler:::aws-sdk:autoscaling:updateAutoScalingGroup"
WARM_POOL_TARGET = "arn:{partition}:scheduler:::aws-sdk:eks:updateNodegroupConfig"
"""Universal targets: EventBridge Scheduler calls that one API operation with the given input."""
EARLIEST = timedelta(minutes=5)
"""A date that has passed takes effect this long after it was set: a schedule in the past would never run."""
RETRY_S = 86_400
"""The scheduler tries for a day, its longest, at growing intervals."""
RETRIES = 185
UNITS: Mapping[str, timedelta] = {"h": timedelta(hours=1), "d": timedelta(days=1)}
_WHILE = re.compile(r"^(\d+)([hd])$")


def moment(text: str, now: datetime) -> datetime:
    """The moment that a setting such as `8h`, `3d`, `2026-12-01` or `2026-12-01T18:00+02:00` stands for, in UTC.

    Args:
        text: the setting; a date without a zone is UTC.
        now: from which a while is counted.

    Raises:
        ValueError: no such day or hour.
        OverflowError: beyond the calendar.
    """
    found = _WHILE.match(text)
    if found:
        return now + int(found[1]) * UNITS[found[2]]
    date = datetime.fromisoformat(text)
    return date.astimezone(UTC) if date.tzinfo else date.replace(tzinfo=UTC)


def expression(at: datetime) -> str:
    """A one-time schedule expression; its zone is given apart."""
    return f"at({at.astimezone(UTC):%Y-%m-%dT%H:%M:%S})"


@dataclass(frozen=True, kw_only=True)
class ExpiringGroup:
    """A node group that expires.

    Attributes:
        label: tells the groups of a stack apart, such as the letter of a zone.
        autoscaling_group: name of its Auto Scaling group.
        node_group: its name in EKS.
        warm_pool: whether it keeps prepared instances, which end with it.
    """

    label: str
    autoscaling_group: pulumi.Input[str]
    node_group: pulumi.Input[str]
    warm_pool: bool


@dataclass(frozen=True, kw_only=True)
class ExpiryArgs:
    """What decides the expiry of a stack's groups.

    Attributes:
        setting: as the stack file has it; part of each schedule's name, so that another setting is another appointment.
        now: from which a while is counted, when a schedule is made. Later runs leave a schedule where it is.
        cluster: name of the cluster that the node groups belong to.
        tags: of the group of schedules; a schedule itself carries none.
    """

    setting: str
    now: datetime
    partition: str
    region: str
    account: str
    cluster: pulumi.Input[str]
    groups: Sequence[ExpiringGroup]


class Expiry(pulumi.ComponentResource):
    """Schedules that put node groups to zero, and the one role they may do it with."""

    def __init__(self, name: str, args: ExpiryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("coldstart:expiry:Expiry", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        self._schedules = aws.scheduler.ScheduleGroup(name, opts=self._child)
        role = self._role()
        for group in args.groups:
            self._schedule(
                group.label,
                SLEEP_TARGET,
                role,
                {
                    "AutoScalingGroupName": group.autoscaling_group,
                    "MinSize": 0,
                    "MaxSize": 0,
                    "DesiredCapacity": 0,
                },
            )
            if group.warm_pool:
                self._schedule(
                    f"{group.label}-warm-pool",
                    WARM_POOL_TARGET,
                    role,
                    {
                        "ClusterName": args.cluster,
                        "NodegroupName": group.node_group,
                        "WarmPoolConfig": {"Enabled": False},
                    },
                )
        self.register_outputs({"scheduleGroup": self._schedules.name})

    def _schedule(
        self, label: str, target: str, role: aws.iam.Role, request: Mapping[str, pulumi.Input[object]]
    ) -> None:
        args = self._args
        at = max(moment(args.setting, args.now), args.now + EARLIEST)
        appointment = re.sub(r"[^a-z0-9]+", "-", args.setting.lower()).strip("-")
        aws.scheduler.Schedule(
            f"{self._name}-{label}-{appointment}",
            name=f"{label}-{appointment}",
            group_name=self._schedules.name,
            schedule_expression=expression(at),
            schedule_expression_timezone="UTC",
            flexible_time_window={"mode": "OFF"},
            # Kept after it has run: it says when the groups went to sleep, and `extend` moves it.
            action_after_completion="NONE",
            target={
                "arn": target.format(partition=args.partition),
                "role_arn": role.arn,
                "input": pulumi.Output.json_dumps(request),
                "retry_policy": {"maximum_event_age_in_seconds": RETRY_S, "maximum_retry_attempts": RETRIES},
            },
            opts=pulumi.ResourceOptions(
                parent=self,
                # A while counts from the day it was set, and `coldstart extend` moves the appointment.
                ignore_changes=["scheduleExpression"],
            ),
        )

    def _role(self) -> aws.iam.Role:
        args = self._args
        trust = self._schedules.arn.apply(lambda arn: json.dumps(scheduler_trust(args.account, arn)))
        role = aws.iam.Role(f"{self._name}-expiry", assume_role_policy=trust, opts=self._child)
        warm = [group.node_group for group in args.groups if group.warm_pool]
        policy = pulumi.Output.all(
            pulumi.Output.all(*(group.autoscaling_group for group in args.groups)),
            args.cluster,
            pulumi.Output.all(*warm),
        ).apply(lambda found: json.dumps(sleep_policy(args.partition, args.region, args.account, *found)))
        aws.iam.RolePolicy(f"{self._name}-expiry", role=role.name, policy=policy, opts=self._child)
        return role


def scheduler_trust(account: str, schedule_group_arn: str) -> dict[str, object]:
    """Trust policy: EventBridge Scheduler, for this account's own schedules of this group and nobody else's."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "scheduler.amazonaws.com"},
                "Action": ["sts:AssumeRole"],
                "Condition": {
                    "StringEquals": {"aws:SourceAccount": account, "aws:SourceArn": schedule_group_arn},
                },
            }
        ],
    }


def sleep_policy(
    partition: str,
    region: str,
    account: str,
    autoscaling_groups: Sequence[str],
    cluster: str,
    warm_node_groups: Sequence[str],
) -> dict[str, object]:
    """What the schedules may do: change the sizes of these groups, and switch off their own warm pools."""
    groups = f"arn:{partition}:autoscaling:{region}:{account}:autoScalingGroup:*:autoScalingGroupName/"
    statements: list[dict[str, object]] = [
        {
            "Sid": "Sleep",
            "Effect": "Allow",
            "Action": ["autoscaling:UpdateAutoScalingGroup"],
            "Resource": [f"{groups}{name}" for name in autoscaling_groups],
        }
    ]
    if warm_node_groups:
        node_groups = f"arn:{partition}:eks:{region}:{account}:nodegroup/{cluster}/"
        statements.append(
            {
                "Sid": "EmptyWarmPools",
                "Effect": "Allow",
                "Action": ["eks:UpdateNodegroupConfig"],
                "Resource": [f"{node_groups}{name}/*" for name in warm_node_groups],
            }
        )
    return {"Version": "2012-10-17", "Statement": statements}
