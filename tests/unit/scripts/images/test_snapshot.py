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
from infra.forecast import budget
from infra.rules import check, warnings
from infra.specs import model_specs
from infra.stack_file import Stack, read
from scripts.cli import run
from scripts.explain import explanations
from scripts.failure import Failure
from scripts.images.bake import bake_user_data, static_pod
from scripts.images.hydration import FAST_SNAPSHOT_RESTORE, hydration_of
from scripts.images.snapshot import Bake, Clients, Place, bake_of, make_snapshot, settings_of
from scripts.images.snapshot_view import bake_lines

SNAPSHOT = "snap-0123456789abcdef0"
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
    with pytest.raises(Failure, match=r"did not finish pulling .* within 3600 s"):
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


def test_the_settings_named_are_settings_and_bring_nodes_up_from_the_snapshot(stack: Stack, stacks: Path) -> None:
    settings = settings_of(bake_of(stack, **RATE), SNAPSHOT)
    assert settings == {
        "model.nodes.volume.snapshot_id": SNAPSHOT,
        "model.nodes.volume.initialization_mib_s": 300,
    }
    assert set(settings) <= {row.key for row in explanations()}
    path = stacks / f"Pulumi.{NAME}.yaml"
    lines = [f"        {key.rpartition('.')[2]}: {value}\n" for key, value in settings.items()]
    path.write_text(path.read_text().replace("disk: ebs\n", "disk: ebs\n      volume:\n" + "".join(lines)))
    changed = read(NAME, stacks)
    check(changed)
    assert changed.model is not None
    volume = model_specs(changed, changed.model).node.storage.volume
    assert (volume.snapshot_id, volume.initialization_mib_s) == (SNAPSHOT, 300)
    # 19 GB at 300 MiB/s are there before the node is Ready: the pull is gone from the plan.
    node = model_specs(changed, changed.model).node
    pull = budget(changed, changed.model, node).phases["pull"]
    assert (pull.low_s, pull.expected_s) == (0, 0)
    assert pull.detail["hydration_mib_s"] == 300


def test_it_says_what_a_pull_takes_with_and_without_it(stack: Stack) -> None:
    fast, slow = (bake_of(stack, hydrate=rate, usd_per_gib=0.005) for rate in ("300", "100"))
    assert fast.pull_s == slow.pull_s
    assert fast.pull_then_s == 0
    assert 60 < slow.pull_then_s < 70 < slow.pull_s  # 179 s of hydration, of which 112 s until the node is Ready
    assert f"pull        {slow.pull_s:.0f} s without it, 67 s left with it" in "\n".join(bake_lines(slow, None))


def test_fast_snapshot_restore_needs_no_rate(stack: Stack) -> None:
    fast = bake_of(stack, hydrate=FAST_SNAPSHOT_RESTORE, usd_per_gib=None)
    assert settings_of(fast, SNAPSHOT) == {"model.nodes.volume.snapshot_id": SNAPSHOT}
    assert "initialization_mib_s" not in "\n".join(bake_lines(fast, SNAPSHOT))


def test_a_snapshot_without_a_rate_is_warned_about(stack: Stack, stacks: Path) -> None:
    path = stacks / f"Pulumi.{NAME}.yaml"
    path.write_text(path.read_text().replace("disk: ebs\n", f"disk: ebs\n      volume: {{snapshot_id: {SNAPSHOT}}}\n"))
    (warning,) = [each for each in warnings(read(NAME, stacks)) if "initialization" in each.where]
    assert "unless fast snapshot restore is on" in warning.found
    assert not [each for each in warnings(stack) if "initialization" in each.where]


def test_what_a_person_reads_when_it_is_made(stack: Stack) -> None:
    lines = bake_lines(bake_of(stack, **RATE), SNAPSHOT)
    assert lines[-3:] == [
        f"Nodes start from it with, in the stack file of {NAME}:",
        f"  model.nodes.volume.snapshot_id: {SNAPSHOT}",
        "  model.nodes.volume.initialization_mib_s: 300",
    ]


def test_the_price_of_each_plan() -> None:
    rate = hydration_of("200", snapshot_bytes=20 * 2**30, volume_gib=70, zones=3, usd_per_gib=0.01)
    assert rate.usd_per_node == pytest.approx(0.70)
    assert rate.seconds == pytest.approx(20 * 1024 / 200)
    assert rate.usd_per_month == pytest.approx(20 * 0.05)
    fast = hydration_of(FAST_SNAPSHOT_RESTORE, snapshot_bytes=20 * 2**30, volume_gib=70, zones=3, usd_per_gib=None)
    assert fast.usd_per_node == 0
    assert fast.usd_per_month == pytest.approx(20 * 0.05 + 3 * 0.75 * 730)
    assert "$2.25 an hour for 3 zones" in fast.words


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
    monkeypatch.setattr("scripts.images.verb_snapshot.STACKS", stacks)
    assert run(["image", "snapshot", NAME, "--hydrate", FAST_SNAPSHOT_RESTORE]) == 0
    out = capsys.readouterr().out
    assert "$2.25 an hour for 3 zones of what it always costs" in out
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
