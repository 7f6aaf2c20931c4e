"""A managed node group with its own launch template: the shape that gives SOCI, NVMe binding and a tuned volume."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pulumi
import pulumi_aws as aws

from budget.cost import OS_VOLUME_GIB
from infra.model_settings import Capacity
from infra.paused import GROUP_SIZES
from serving.placement import GPU_RESOURCE, Taint

AMI_TYPES: Mapping[tuple[str, bool], str] = {
    ("x86_64", True): "BOTTLEROCKET_x86_64_NVIDIA",
    ("arm64", True): "BOTTLEROCKET_ARM_64_NVIDIA",
    ("x86_64", False): "BOTTLEROCKET_x86_64",
    ("arm64", False): "BOTTLEROCKET_ARM_64",
}
"""Architecture and whether there is a GPU → EKS's AMI type (EKS API, AMITypes)."""

CAPACITY_TYPES: Mapping[Capacity, str] = {
    Capacity.ON_DEMAND: "ON_DEMAND",
    Capacity.SPOT: "SPOT",
    Capacity.RESERVATION: "ON_DEMAND",
    Capacity.CAPACITY_BLOCK: "CAPACITY_BLOCK",
}


@dataclass(frozen=True, kw_only=True)
class DataVolume:
    """`/dev/xvdb`; `throughput_mib_s` is None for io2, the last two are None for a volume that starts empty."""

    kind: Literal["gp3", "io2"]
    size_gib: int
    iops: int
    throughput_mib_s: int | None
    snapshot_id: str | None = None
    initialization_mib_s: int | None = None


@dataclass(frozen=True, kw_only=True)
class NodeGroupArgs:
    """What decides a node group; plain but for what other resources give.

    Attributes:
        gpus: what a node of the group offers; shared GPUs count as often as shared.
        kubernetes_version: minor version of the nodes, the cluster's.
        release_version: Bottlerocket release as EKS spells it, `1.69.0-` and its build.
        user_data: Bottlerocket TOML, or None for the defaults.
        min_nodes, max_nodes: bounds; between them the autoscaler decides.
        initial_nodes: size on creation. 0 for GPUs: one zone without capacity would fail the whole creation.
        ephemeral_gib: what a pod may use on the node's disk, which the autoscaler can't see while there is no node.
        scarce: updates take nodes away before they add any, since there is no spare capacity to surge into.
        create_timeout_minutes: how long creation and updates may take.
        paused: its sizes are held at zero by `coldstart pause`, and stay as they are.
    """

    cluster: pulumi.Input[str]
    node_role_arn: pulumi.Input[str]
    subnet_ids: Sequence[pulumi.Input[str]]
    instance: str
    arch: str
    gpus: int
    kubernetes_version: str
    release_version: pulumi.Input[str]
    user_data: str | None
    volume: DataVolume
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    tags: Mapping[str, str]
    capacity: Capacity
    reservation_id: str | None
    min_nodes: int
    max_nodes: int
    initial_nodes: int
    ephemeral_gib: int
    warm_pool: tuple[int, str] | None
    scarce: bool
    create_timeout_minutes: int
    paused: bool = False


class NodeGroup(pulumi.ComponentResource):
    """Launch template, managed node group, and the tags by which the autoscaler can start it from nothing."""

    autoscaling_group: pulumi.Output[str]

    def __init__(self, name: str, args: NodeGroupArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("coldstart:nodes:NodeGroup", name, None, opts)
        self._name, self._args = name, args
        self.template = self._template()
        self.resource = self._group()
        self.autoscaling_group = self.resource.resources.apply(_autoscaling_group)
        for key, value in sorted(_autoscaler_tags(args).items()):
            self._scale_from_zero(key, value)
        self.register_outputs({"nodeGroup": self.resource.node_group_name})

    def _template(self) -> aws.ec2.LaunchTemplate:
        args = self._args
        return aws.ec2.LaunchTemplate(
            self._name,
            # Here and not on the group: capacity blocks need it here, and a new type then updates in place.
            instance_type=args.instance,
            update_default_version=True,
            user_data=base64.b64encode(args.user_data.encode()).decode() if args.user_data else None,
            metadata_options={
                "http_endpoint": "enabled",
                "http_tokens": "required",
                # One hop: no pod reaches the node's own credentials.
                "http_put_response_hop_limit": 1,
            },
            block_device_mappings=[_os_volume(), _data_volume(args.volume)],
            tag_specifications=[
                {"resource_type": kind, "tags": _instance_tags(args.tags) | {"Name": self._name}}
                for kind in ("instance", "volume", "network-interface")
            ],
            instance_market_options=(
                {"market_type": "capacity-block"} if args.capacity is Capacity.CAPACITY_BLOCK else None
            ),
            capacity_reservation_specification=(
                {"capacity_reservation_target": {"capacity_reservation_id": args.reservation_id}}
                if args.reservation_id
                else None
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _group(self) -> aws.eks.NodeGroup:
        args = self._args
        timeout = f"{args.create_timeout_minutes}m"
        return aws.eks.NodeGroup(
            self._name,
            cluster_name=args.cluster,
            node_role_arn=args.node_role_arn,
            subnet_ids=list(args.subnet_ids),
            ami_type=AMI_TYPES[args.arch, bool(args.gpus)],
            # Said, although it is the cluster's: unsaid, nodes stay behind when the cluster is upgraded.
            version=args.kubernetes_version,
            release_version=args.release_version,
            capacity_type=CAPACITY_TYPES[args.capacity],
            launch_template={
                "id": self.template.id,
                "version": self.template.latest_version.apply(str),
            },
            scaling_config={
                "min_size": 0 if args.paused else args.min_nodes,
                "max_size": args.max_nodes,
                "desired_size": 0 if args.paused else max(args.min_nodes, args.initial_nodes),
            },
            labels=dict(args.labels),
            taints=[{"key": taint.key, "value": taint.value, "effect": taint.effect.api} for taint in args.taints],
            update_config={"max_unavailable": 1, "update_strategy": "MINIMAL" if args.scarce else "DEFAULT"},
            node_repair_config={"enabled": True},
            warm_pool_config=None if args.paused else _warm_pool(args.warm_pool),
            tags=dict(args.tags),
            opts=pulumi.ResourceOptions(
                parent=self,
                ignore_changes=_sizes_of_others(args),
                custom_timeouts=pulumi.CustomTimeouts(create=timeout, update=timeout, delete="30m"),
            ),
        )

    def _scale_from_zero(self, key: str, value: str) -> None:
        aws.autoscaling.Tag(
            f"{self._name}-{key.replace('/', '-')}",
            autoscaling_group_name=self.autoscaling_group,
            tag={
                "key": f"k8s.io/cluster-autoscaler/node-template/{key}",
                "value": value,
                "propagate_at_launch": False,
            },
            opts=pulumi.ResourceOptions(parent=self),
        )


def _sizes_of_others(args: NodeGroupArgs) -> list[str]:
    """Sizes that the program leaves alone; nested paths are spelled as the engine spells them.

    A group with a range is the autoscaler's to size. One of a fixed size is not: EKS refuses a minimum above a desired
    size that nobody raises.
    """
    if args.paused:
        return list(GROUP_SIZES)
    return ["scalingConfig.desiredSize"] if args.min_nodes < args.max_nodes else []


def _autoscaling_group(resources: Sequence[aws.eks.outputs.NodeGroupResource]) -> str:
    groups = resources[0].autoscaling_groups or ()
    return next(group.name for group in groups if group.name)


def _instance_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags of what the group launches: all but the expiry, since another value would replace every running node."""
    return {key: value for key, value in tags.items() if key != "expiry"}


def _autoscaler_tags(args: NodeGroupArgs) -> Mapping[str, str]:
    """What a node of this group will offer, for an autoscaler that has never seen one (autoscaler#4998, #8341)."""
    if not args.gpus:
        return {}
    labels = {f"label/{key}": value for key, value in args.labels.items()}
    taints = {f"taint/{taint.key}": f"{taint.value}:{taint.effect.pod}" for taint in args.taints}
    resources = {
        f"resources/{GPU_RESOURCE}": str(args.gpus),
        "resources/ephemeral-storage": f"{args.ephemeral_gib}Gi",
    }
    return labels | taints | resources


def _warm_pool(warm_pool: tuple[int, str] | None) -> aws.eks.NodeGroupWarmPoolConfigArgsDict | None:
    if warm_pool is None:
        return None
    size, state = warm_pool
    # Equal on purpose: otherwise AWS prepares all that the group may still grow by (PutWarmPool).
    return {"min_size": size, "max_group_prepared_capacity": size, "pool_state": state.upper()}


def _os_volume() -> aws.ec2.LaunchTemplateBlockDeviceMappingArgsDict:
    return {
        "device_name": "/dev/xvda",
        "ebs": {
            "volume_type": "gp3",
            "volume_size": OS_VOLUME_GIB,
            "encrypted": "true",
            "delete_on_termination": "true",
        },
    }


def _data_volume(volume: DataVolume) -> aws.ec2.LaunchTemplateBlockDeviceMappingArgsDict:
    return {
        "device_name": "/dev/xvdb",
        "ebs": {
            "volume_type": volume.kind,
            "volume_size": volume.size_gib,
            "iops": volume.iops,
            "throughput": volume.throughput_mib_s,
            "snapshot_id": volume.snapshot_id,
            "volume_initialization_rate": volume.initialization_mib_s,
            # A volume from a snapshot inherits its encryption; EC2 rejects an explicit setting there.
            "encrypted": None if volume.snapshot_id else "true",
            "delete_on_termination": "true",
        },
    }
