"""A baked data volume: EC2 against moto, SSM played by a node that boots, pulls and answers."""

from __future__ import annotations

import base64
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from budget.problems import BadInput
from infra.stack_file import Stack, read
from scripts.cli import run
from scripts.failure import Failure
from scripts.images.bake import bake_user_data, static_pod
from scripts.images.hydration import FAST_SNAPSHOT_RESTORE, hydration_of
from scripts.images.snapshot import Bake, Clients, Place, bake_of, make_snapshot, volume_of

NAME = "dev-llama-3-1-8b"
RATE = {"hydrate": "300", "usd_per_gib": 0.005}


@pytest.fixture
def stack(stacks: Path) -> Stack:
    path = stacks / f"Pulumi.{NAME}.yaml"
    path.write_text(
        path.read_text().replace("      instance: g6e.2xlarge", "      instance: g6e.2xlarge\n      disk: ebs")
    )
    return read(NAME, stacks)


class Node:
    """SSM in front of a node: not reachable at first, then pulling, then done. Time passes only in `sleep`."""

    def __init__(self, image: str, *, boots: int = 1, pulls: int = 2) -> None:
        self.image, self.boots, self.pulls, self.now, self.commands = image, boots, pulls, 0.0, list[list[str]]()

    def get_parameter(self, Name: str) -> dict[str, Any]:  # noqa: N803 - boto3's own name
        assert Name.startswith("/aws/service/bottlerocket/aws-k8s-1.")
        return {"Parameter": {"Value": "ami-12345678"}}

    def send_command(self, **arguments: Any) -> dict[str, Any]:
        if self.boots > 0:
            self.boots -= 1
            raise ClientError({"Error": {"Code": "InvalidInstanceId", "Message": "not yet"}}, "SendCommand")
        self.commands.append(arguments["Parameters"]["commands"])
        return {"Command": {"CommandId": "c"}}

    def get_command_invocation(self, **_: Any) -> dict[str, Any]:
        self.pulls -= 1
        return {
            "Status": "Success",
            "StandardOutputContent": self.image if self.pulls < 0 else "registry.k8s.io/pause:3.10",
        }

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        client = boto3.client("ec2", region_name="us-west-2")
        boto3.client("iam", region_name="us-west-2").create_instance_profile(InstanceProfileName="bake")
        yield client


@pytest.fixture
def place(ec2: Any) -> Place:
    return Place(subnet=ec2.describe_subnets()["Subnets"][0]["SubnetId"], instance_profile="bake")


def bake(bake_: Bake, place: Place, ec2: Any, node: Node) -> str:
    clients = Clients(ec2=ec2, ssm=node, sleep=node.sleep, clock=lambda: node.now)
    return make_snapshot(bake_, place, clients, lambda _: None)


def states(ec2: Any) -> list[str]:
    return [node["State"]["Name"] for each in ec2.describe_instances()["Reservations"] for node in each["Instances"]]


def own_snapshots(ec2: Any) -> list[dict[str, Any]]:
    return ec2.describe_snapshots(Filters=[{"Name": "tag:stack", "Values": [NAME]}])["Snapshots"]


def test_the_data_volume_is_kept_and_the_node_is_gone(stack: Stack, place: Place, ec2: Any) -> None:
    asked = bake_of(stack, **RATE)
    node = Node(asked.image)
    snapshot = bake(asked, place, ec2, node)

    (found,) = own_snapshots(ec2)
    assert found["SnapshotId"] == snapshot
    assert found["Encrypted"]
    assert found["VolumeSize"] == asked.volume_gib
    tags = {tag["Key"]: tag["Value"] for tag in found["Tags"]}
    assert tags["owner"] == "platform-team"
    assert tags["coldstart-image"] == asked.image.rpartition("@")[2]
    assert states(ec2) == ["terminated"]
    assert node.commands
    assert all(command[0].endswith("images list -q") for command in node.commands)


def test_an_image_that_never_comes_leaves_nothing(stack: Stack, place: Place, ec2: Any) -> None:
    asked = bake_of(stack, **RATE)
    with pytest.raises(Failure, match="did not come within 3600 s"):
        bake(asked, place, ec2, Node(asked.image, pulls=10**6))
    assert states(ec2) == ["terminated"]
    assert own_snapshots(ec2) == []


def test_aws_refusing_is_a_failure_in_words(stack: Stack, ec2: Any) -> None:
    asked = bake_of(stack, **RATE)
    with pytest.raises(Failure, match="snapshot of vllm/vllm-openai"):
        bake(asked, Place(subnet="subnet-nowhere", instance_profile="bake"), ec2, Node(asked.image))


def test_the_node_is_private_encrypted_and_of_the_gpu_nodes_release(stack: Stack, place: Place, ec2: Any) -> None:
    asked = bake_of(stack, **RATE)
    assert asked.parameter == "/aws/service/bottlerocket/aws-k8s-1.35/x86_64/1.69.0/image_id"
    bake(asked, place, ec2, Node(asked.image))
    (reservation,) = ec2.describe_instances()["Reservations"]
    (node,) = reservation["Instances"]
    assert node["InstanceType"] == "m7i.xlarge"
    assert node["MetadataOptions"]["HttpTokens"] == "required"


def test_user_data_pulls_with_soci_and_holds_no_secret(stack: Stack) -> None:
    asked = bake_of(stack, **RATE)
    settings = tomllib.loads(asked.user_data)["settings"]
    assert settings["container-runtime"]["snapshotter"] == "soci"
    pull = settings["container-runtime-plugins"]["soci-snapshotter"]["parallel-pull-unpack"]
    assert pull["discard-unpacked-layers"] is True
    assert pull["max-concurrent-unpacks-per-image"] >= 2
    pod = json.loads(base64.b64decode(settings["kubernetes"]["static-pods"]["coldstart-bake"]["manifest"]))
    assert pod == static_pod(asked.image)
    assert pod["spec"]["containers"][0]["image"] == asked.image
    assert settings["kubernetes"]["standalone-mode"] is True
    assert "password" not in asked.user_data.lower()


def test_the_launch_template_names_snapshot_and_rate(stack: Stack) -> None:
    asked = bake_of(stack, **RATE)
    assert volume_of(asked, "snap-1") == {
        "DeviceName": "/dev/xvdb",
        "Ebs": {
            "SnapshotId": "snap-1",
            "VolumeSize": asked.volume_gib,
            "VolumeType": "gp3",
            "Iops": asked.iops,
            "VolumeInitializationRate": 300,
        },
    }
    assert (
        "VolumeInitializationRate"
        not in volume_of(bake_of(stack, hydrate=FAST_SNAPSHOT_RESTORE, usd_per_gib=None), "s")["Ebs"]
    )


def test_the_price_of_each_plan() -> None:
    rate = hydration_of("200", snapshot_bytes=20 * 2**30, volume_gib=70, zones=3, usd_per_gib=0.01)
    assert rate.usd_per_node == pytest.approx(0.70)
    assert rate.seconds == pytest.approx(20 * 1024 / 200)
    assert rate.usd_per_month == pytest.approx(20 * 0.05)
    fast = hydration_of(FAST_SNAPSHOT_RESTORE, snapshot_bytes=20 * 2**30, volume_gib=70, zones=3, usd_per_gib=None)
    assert fast.usd_per_node == 0
    assert fast.usd_per_month == pytest.approx(20 * 0.05 + 3 * 0.75 * 730)
    assert "$2.25 an hour for 3 zone(s)" in fast.words


@pytest.mark.parametrize(
    ("plan", "price", "words"),
    [
        (None, None, "--hydrate: missing: without a plan the first start from a snapshot is slower than a pull"),
        ("later", None, "found 'later'"),
        ("99", 0.1, "Give --hydrate 100 to 300"),
        ("301", 0.1, "Give --hydrate 100 to 300"),
        ("200", None, "--usd-per-gib: missing"),
    ],
)
def test_no_snapshot_without_a_plan_and_its_price(
    stack: Stack, plan: str | None, price: float | None, words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        bake_of(stack, hydrate=plan, usd_per_gib=price)


def test_where_a_snapshot_makes_no_sense(stacks: Path) -> None:
    with pytest.raises(BadInput, match="is an environment"):
        bake_of(read("dev", stacks), **RATE)
    with pytest.raises(BadInput, match="NVMe"):
        bake_of(read("dev-qwen3-32b", stacks), **RATE)
    with pytest.raises(BadInput, match="coldstart pin"):
        bake_of(read("dev-qwen2-5-0-5b", stacks), **RATE)


def test_without_yes_nothing_is_made(
    stacks: Path, stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del stack
    monkeypatch.setattr("scripts.image.STACKS", stacks)
    assert run(["image", "snapshot", NAME, "--hydrate", FAST_SNAPSHOT_RESTORE]) == 0
    out = capsys.readouterr().out
    assert "$2.25 an hour for 3 zone(s), $1,642 a month" in out
    assert "Nothing was made" in out
    assert run(["image", "snapshot", NAME, "--hydrate", FAST_SNAPSHOT_RESTORE, "--yes"]) == 2


def test_a_digest_with_odd_characters_cannot_leave_the_manifest(stack: Stack) -> None:
    asked = bake_of(stack, **RATE)
    text = bake_user_data('x"\n[settings]\nmotd = "y', type("T", (), vars_of(asked))())
    assert tomllib.loads(text)["settings"].keys() == tomllib.loads(asked.user_data)["settings"].keys()


def vars_of(asked: Bake) -> dict[str, Any]:
    pull = tomllib.loads(asked.user_data)["settings"]["container-runtime-plugins"]["soci-snapshotter"][
        "parallel-pull-unpack"
    ]
    value = type("V", (), {"value": pull["max-concurrent-unpacks-per-image"]})
    return {"downloads": value, "unpacks": value, "chunk_mib": value, "discard": True}
