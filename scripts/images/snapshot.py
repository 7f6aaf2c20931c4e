"""`coldstart image snapshot`: a node's data volume with the image on it, kept as an EBS snapshot.

A small node of the GPU nodes' own Bottlerocket release boots with SOCI on, because a change of the snapshotter wipes
what was pulled. Its kubelet pulls the image, the node stops, the data volume is kept, and the node is gone again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError, WaiterError

from budget.coefficients import coefficients
from budget.image import pull_phase
from budget.instances import Instance, gpu_instance, instance
from budget.problems import bad_input
from infra.accounts import environment_tags, zone_names
from infra.forecast import scenario
from infra.specs import ModelSpecs, model_specs
from infra.stack_file import Stack
from nodeconfig.soci import tune
from scripts.account.session import sign_in
from scripts.failure import Failure
from scripts.images.bake import bake_user_data
from scripts.images.hydration import Hydration, hydration_of
from scripts.waiting import Patience, in_time

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ssm import SSMClient

BAKERS = {"x86_64": "m7i.xlarge", "arm64": "m7g.xlarge"}
"""No GPU is needed to pull: 4 vCPUs unpack, and the data volume is what counts."""
OS_DEVICE, DATA_DEVICE = "/dev/xvda", "/dev/xvdb"
POLL_S = 15
PATIENCE_S = 3_600
SNAPSHOT_POLLS = PATIENCE_S // POLL_S
"""botocore by itself would give up, and lose the bake, after ten minutes."""
LISTING = "apiclient exec admin sheltie ctr --address /run/containerd/containerd.sock --namespace k8s.io images list -q"
"""What SSM runs on the node: the names of all images that are whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clients:
    """AWS, and time."""

    ec2: EC2Client
    ssm: SSMClient
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, kw_only=True, slots=True)
class Bake:
    """A snapshot to be made, decided on and priced.

    Attributes:
        image: by digest.
        baker: instance type that pulls.
        parameter: SSM parameter that names the machine image.
        zones: where fast restore is switched on.
        volume: what the GPU nodes' data volume is, which the snapshot's must be too.
        pull_s: what the budget says a pull takes now.
        pull_then_s: what is left of the hydration when a node that starts from the snapshot is Ready.
    """

    stack: Stack
    image: str
    baker: Instance
    parameter: str
    zones: tuple[str, ...]
    volume_gib: int
    iops: int
    throughput_mib_s: int | None
    volume_kind: str
    snapshot_bytes: int
    hydration: Hydration
    pull_s: float
    pull_then_s: float
    user_data: str

    @property
    def tags(self) -> dict[str, str]:
        """Of everything that is made: the stack's own, and what is inside."""
        return environment_tags(self.stack) | {
            "coldstart-image": self.image.rpartition("@")[2],
            "Name": "coldstart-bake",
        }


def aws_clients(stack: Stack) -> Clients:
    """Clients in the stack's region, once the account is found to be the stack's.

    Raises:
        BadInput: other credentials, or none.
    """
    region = stack.environment.region
    signed_in = sign_in(account=stack.environment.account, region=region).region(region)
    return Clients(ec2=signed_in.ec2, ssm=signed_in.ssm)


def bake_of(stack: Stack, *, hydrate: str | None, usd_per_gib: float | None) -> Bake:
    """What would be made for a model stack.

    Args:
        stack: the model.
        hydrate: plan for the first reads; see `hydration_of`.
        usd_per_gib: price of a provisioned rate.

    Raises:
        BadInput: no model, an unpinned image, images on NVMe, or no hydration plan.
    """
    model = stack.model
    if model is None:
        raise bad_input(stack.name, "is an environment", "Name a model stack: its image is what is baked.")
    if "@sha256:" not in model.image:
        raise bad_input(
            "model.image", "is not pinned", f"`coldstart pin {stack.name}` first: a snapshot is of one digest."
        )
    specs = model_specs(stack, model)
    if specs.node.storage.kind == "nvme":
        raise bad_input(
            "model.nodes.disk",
            f"images of {model.nodes.instance} are on its NVMe disks, where no snapshot can bring them",
            "Set `model.nodes.disk: ebs`, or leave the pull to NVMe: it is the faster way there.",
        )
    return _bake(stack, specs, hydrate, usd_per_gib)


def _bake(stack: Stack, specs: ModelSpecs, hydrate: str | None, usd_per_gib: float | None) -> Bake:
    model, volume = stack.model, specs.node.storage.volume
    if model is None:
        raise ValueError(f"{stack.name} is not a model")
    gpu = gpu_instance(model.nodes.instance, where="model.nodes.instance")
    letters = model.nodes.zones or stack.environment.network.zones
    zones = zone_names(stack.environment.region, letters)
    release = ".".join(map(str, specs.node.release))
    baker = instance(BAKERS[gpu.arch])
    hydration = hydration_of(
        hydrate,
        snapshot_bytes=specs.image.unpacked_bytes,
        volume_gib=volume.size_gib,
        zones=len(zones),
        usd_per_gib=usd_per_gib,
    )
    now = scenario(stack, model, specs.node)
    then = replace(now, image=replace(now.image, cached=True, hydration_mib_s=hydration.rate_mib_s))
    return Bake(
        stack=stack,
        image=model.image,
        baker=baker,
        parameter=f"/aws/service/bottlerocket/aws-k8s-{stack.environment.kubernetes_version}/{gpu.arch}/{release}/image_id",
        zones=zones,
        volume_gib=volume.size_gib,
        iops=volume.iops,
        throughput_mib_s=volume.throughput_mib_s,
        volume_kind=volume.kind,
        snapshot_bytes=specs.image.unpacked_bytes,
        hydration=hydration,
        pull_s=pull_phase(replace(now, image=replace(now.image, cached=False)), coefficients()).expected_s,
        pull_then_s=pull_phase(then, coefficients()).expected_s,
        user_data=bake_user_data(model.image, tune(baker, specs.image.layers)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where the baking node runs.

    Attributes:
        subnet: with a way to the registry and to SSM.
        instance_profile: may pull from ECR and be reached by SSM.
    """

    subnet: str
    instance_profile: str


def make_snapshot(bake: Bake, place: Place, clients: Clients, say: Callable[[str], None]) -> str:
    """Bakes, and returns the snapshot's id. Whatever happens, the node does not stay.

    Raises:
        Failure: AWS refuses, the image does not come, or the snapshot fails; nothing of it is left then.
    """
    try:
        node = _launch(bake, place, clients)
        say(f"{node}: launched")
        try:
            _wait_for_image(bake, node, clients, say)
            volume = _stop(node, clients)
            say(f"{node}: stopped, keeping {volume}")
            return _keep(bake, volume, clients)
        finally:
            clients.ec2.terminate_instances(InstanceIds=[node])
            say(f"{node}: terminated")
    except (ClientError, BotoCoreError, WaiterError) as error:
        raise Failure(f"snapshot of {bake.image}: {error}") from error


def _launch(bake: Bake, place: Place, clients: Clients) -> str:
    machine = clients.ssm.get_parameter(Name=bake.parameter)["Parameter"].get("Value", "")
    data: dict[str, Any] = {
        "VolumeType": bake.volume_kind,
        "VolumeSize": bake.volume_gib,
        "Iops": bake.iops,
        "Encrypted": True,
        "DeleteOnTermination": True,
    }
    if bake.throughput_mib_s is not None:
        data["Throughput"] = bake.throughput_mib_s
    tags = _tags(bake.tags)
    answer = clients.ec2.run_instances(
        ImageId=machine,
        InstanceType=bake.baker.name,  # pyright: ignore[reportArgumentType] - the stubs list types, new ones are missing
        MinCount=1,
        MaxCount=1,
        SubnetId=place.subnet,
        IamInstanceProfile={"Name": place.instance_profile},
        UserData=bake.user_data,
        BlockDeviceMappings=[{"DeviceName": DATA_DEVICE, "Ebs": data}],  # pyright: ignore[reportArgumentType] - a plain dict
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": tags},
            {"ResourceType": "volume", "Tags": tags},
        ],
    )
    return answer["Instances"][0].get("InstanceId", "")


def _tags(tags: Mapping[str, str]) -> Any:  # noqa: ANN401 - the stubs' own TypedDicts
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _wait_for_image(bake: Bake, node: str, clients: Clients, say: Callable[[str], None]) -> None:
    """Until containerd lists the image, which it does once every layer is unpacked."""
    digest = bake.image.rpartition("@")[2]

    def is_there() -> bool:
        listed = _listed(node, clients)
        if listed is not None and digest in listed:
            return True
        say(f"{node}: {'booting' if listed is None else 'pulling'}")
        return False

    patience = Patience(limit_s=PATIENCE_S, every_s=POLL_S, clock=clients.clock, sleep=clients.sleep)
    if not in_time(is_there, patience):
        raise Failure(
            f"{node} did not finish pulling {bake.image} within {PATIENCE_S} s: may its instance profile pull it?"
        )


def _listed(node: str, clients: Clients) -> str | None:
    """Names of the images on the node; None while it can't be asked."""
    try:
        sent = clients.ssm.send_command(
            InstanceIds=[node], DocumentName="AWS-RunShellScript", Parameters={"commands": [LISTING]}
        )
        command = sent["Command"].get("CommandId", "")
        clients.sleep(POLL_S / 3)
        answer = clients.ssm.get_command_invocation(CommandId=command, InstanceId=node)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code")
        if code in ("InvalidInstanceId", "InvocationDoesNotExist"):
            return None
        raise
    return answer["StandardOutputContent"] if answer["Status"] == "Success" else None


def _stop(node: str, clients: Clients) -> str:
    """Stops the node, so that its file system is whole; returns the id of its data volume."""
    clients.ec2.stop_instances(InstanceIds=[node])
    clients.ec2.get_waiter("instance_stopped").wait(InstanceIds=[node])
    found = clients.ec2.describe_instances(InstanceIds=[node])
    mappings = found["Reservations"][0].get("Instances", [{}])[0].get("BlockDeviceMappings", [])
    for mapping in mappings:
        if mapping.get("DeviceName") == DATA_DEVICE:
            return mapping.get("Ebs", {}).get("VolumeId", "")
    raise Failure(f"{node} has no volume {DATA_DEVICE}")


def _keep(bake: Bake, volume: str, clients: Clients) -> str:
    description = f"{bake.image}, Bottlerocket with SOCI"
    made = clients.ec2.create_snapshot(
        VolumeId=volume,
        Description=description[:255],
        TagSpecifications=[{"ResourceType": "snapshot", "Tags": _tags(bake.tags)}],
    )
    snapshot = made["SnapshotId"]
    try:
        clients.ec2.get_waiter("snapshot_completed").wait(
            SnapshotIds=[snapshot], WaiterConfig={"Delay": POLL_S, "MaxAttempts": SNAPSHOT_POLLS}
        )
        if bake.hydration.rate_mib_s is None:
            clients.ec2.enable_fast_snapshot_restores(AvailabilityZones=list(bake.zones), SourceSnapshotIds=[snapshot])
    except (ClientError, BotoCoreError, WaiterError):
        clients.ec2.delete_snapshot(SnapshotId=snapshot)
        raise
    return snapshot


def settings_of(bake: Bake, snapshot: str) -> dict[str, str | int]:
    """The settings by which the model's nodes start from the snapshot: key of the stack file → value."""
    rate = bake.hydration.rate_mib_s
    keys: dict[str, str | int] = {"model.nodes.volume.snapshot_id": snapshot}
    return keys if rate is None else keys | {"model.nodes.volume.initialization_mib_s": rate}
