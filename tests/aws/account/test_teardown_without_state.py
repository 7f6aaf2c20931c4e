"""Tearing down an environment of which no state is left: what controllers left behind goes, and nothing else."""

from __future__ import annotations

from typing import Any, cast

import boto3
import pytest

from scripts.account.session import Account
from scripts.deployed.backend import Backend
from scripts.deployed.state import State
from scripts.dismantling.run import Limits
from scripts.teardown import Teardown, tear_down
from scripts.waiting import Patience
from tests.aws.account.audited import REGION
from tests.aws.account.front import ACCOUNT, Front

QUICK = Limits(sweep=Patience(limit_s=10, every_s=0.05))
PLAN = Teardown(
    name="dev",
    states=[State(stack="dev", resources=(), pending=())],
    environment="dev",
    account=ACCOUNT,
    region=REGION,
    purge=None,
)
NO_BACKEND = cast("Backend", None)
"""With nothing in a state there is nothing to ask the engine for."""


@pytest.fixture
def ec2(front: Front) -> Any:
    return boto3.client("ec2", region_name=REGION, endpoint_url=front.endpoint)


def claim(ec2: Any, cluster: str) -> str:
    """A volume that a driver in a cluster made."""
    tags = [{"Key": f"kubernetes.io/cluster/{cluster}", "Value": "owned"}]
    spec = [{"ResourceType": "volume", "Tags": tags}]
    made = ec2.create_volume(AvailabilityZone=f"{REGION}a", Size=10, VolumeType="gp3", TagSpecifications=spec)
    return made["VolumeId"]


def volumes(ec2: Any) -> set[str]:
    return {each["VolumeId"] for each in ec2.describe_volumes()["Volumes"]}


def test_what_controllers_left_is_swept(ec2: Any, account: Account) -> None:
    ours, others = claim(ec2, "coldstart-dev"), claim(ec2, "coldstart-dev2")
    said: list[str] = []
    tear_down(PLAN, account, NO_BACKEND, say=said.append, limits=QUICK)
    assert volumes(ec2) == {others}
    assert said[:2] == [
        "dev: nothing in its state",
        f"removing volume {ours} (tag kubernetes.io/cluster/coldstart-dev)",
    ]


def test_while_the_cluster_is_there_nothing_is_taken_from_it(front: Front, ec2: Any, account: Account) -> None:
    eks = boto3.client("eks", region_name=REGION, endpoint_url=front.endpoint)
    eks.create_cluster(
        name="coldstart-dev", roleArn=f"arn:aws:iam::{ACCOUNT}:role/x", resourcesVpcConfig={"subnetIds": ["subnet-1"]}
    )
    used = claim(ec2, "coldstart-dev")
    said: list[str] = []
    tear_down(PLAN, account, NO_BACKEND, say=said.append, limits=QUICK)
    assert volumes(ec2) == {used}
    assert said[-1] == ("coldstart-dev is there, though no state knows it: nothing was removed (coldstart audit dev)")
