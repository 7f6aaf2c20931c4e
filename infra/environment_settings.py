"""`coldstart:environment`: every key of an environment, with its unit, its default and the reason for it."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from infra.setting import (
    Account,
    BucketName,
    Cidr,
    Image,
    KeyArn,
    Minor,
    Moment,
    Region,
    Release,
    RoleArn,
    TagText,
    Tree,
    Zone,
    setting,
)


class Egress(StrEnum):
    """How private subnets reach the internet."""

    NAT = "nat"
    NONE = "none"


class Presence(StrEnum):
    """Whether a controller is installed by the environment or already there."""

    INSTALL = "install"
    PRESENT = "present"


class Network(Tree):
    """`environment.network`."""

    cidr: Cidr = setting(
        "10.64.0.0/16",
        what="Address range of the VPC, between /16 and /20.",
        why="Room for 8,000 pod addresses per zone; 10.64 is rarely taken by an office network.",
    )
    zones: tuple[Zone, ...] = setting(
        ("a", "b", "c"),
        what="Letters of the availability zones to use, as in us-west-2a.",
        why="Three zones triple the chance of finding a free GPU; each costs interface endpoints by the hour.",
        min_length=2,
        max_length=4,
    )
    egress: Egress = setting(
        Egress.NAT,
        what="How private subnets reach the internet: one NAT gateway, or not at all.",
        why="Without egress every image must be in a private registry of the region.",
    )


class Access(Tree):
    """`environment.access`."""

    public_cidrs: tuple[Cidr, ...] = setting(
        (),
        what="Address ranges that may reach the Kubernetes API from outside the VPC. Empty: the API is private only.",
        why="A GPU cluster's API is not for the world.",
    )
    open_to_the_world: bool = setting(
        default=False,
        what="Allows 0.0.0.0/0 in public_cidrs.",
        why="An open endpoint must be somebody's decision, not a copied line.",
    )
    admin_roles: tuple[RoleArn, ...] = setting(
        (), what="IAM roles that administer the cluster besides the one that creates it, each an EKS access entry."
    )


class SystemNodes(Tree):
    """`environment.system_nodes`."""

    instance: Literal["m7i.large", "m7i.xlarge", "m6i.large", "m6i.xlarge"] = setting(
        "m7i.large",
        what="Instance type of the nodes that run CoreDNS, KEDA and the autoscaler.",
        why="2 vCPU and 8 GiB hold the controllers of one environment.",
    )
    count: int = setting(
        2, what="How many.", unit="nodes", why="Two, so that replacing one never stops the controllers.", ge=1, le=10
    )


class Addons(Tree):
    """`environment.addons`."""

    keda: Presence = setting(
        Presence.INSTALL,
        what="KEDA, which scales model deployments: installed by a pinned chart, or already present.",
        why="Model stacks need it; a cluster has room for one only.",
    )
    cluster_autoscaler: Presence = setting(
        Presence.INSTALL,
        what="Cluster autoscaler, which sizes GPU node groups: installed by a pinned chart, or already present.",
        why="As for KEDA.",
    )


class Bucket(Tree):
    """`environment.bucket`."""

    name: BucketName | None = setting(
        None,
        what="Name of the weight bucket.",
        why="Unset: coldstart-<environment>-<account>-<region>: the same on every `up`, so a kept one is found.",
    )
    kms_key_arn: KeyArn | None = setting(
        None,
        what="KMS key that encrypts the weights.",
        why="Unset: S3's own AES-256, which costs no KMS call per object.",
    )
    keep: bool = setting(
        default=True,
        what="Whether the bucket outlives `pulumi destroy` of the environment.",
        why="Staging again costs hours and egress; keeping 100 GB costs $2.30 a month.",
    )


class Recorder(Tree):
    """`environment.recorder`: keeps the ledger of every start and exports metrics; off unless this key is there."""

    image: Image = setting(
        "public.ecr.aws/docker/library/python:3.13-slim",
        what="Image with Python 3.11 or newer; a pin ends in @sha256:….",
        why="The recorder's code comes from a ConfigMap and needs the standard library alone.",
    )
    replicas: int = setting(
        1,
        what="Number of recorder pods. With two, each ledger is still written only once.",
        unit="pods",
        why="A recorder that is replaced reads on where the last one ended.",
        ge=1,
        le=2,
    )
    keep: int = setting(
        1000,
        what="Ledgers kept in the cluster, each a ConfigMap of about 4 KiB; the oldest go.",
        unit="ledgers",
        why="Weeks of starts, and 4 MiB of the cluster's store.",
        ge=10,
        le=10_000,
    )
    otlp_endpoint: str | None = setting(
        None,
        what="OTLP/HTTP endpoint that takes a span of each start, such as http://collector.tracing:4318.",
        why="Unset: no spans.",
        pattern=r"^https?://[\w.-]+(:\d+)?(/[\w./-]*)?$",
    )
    cloudwatch: bool = setting(
        default=False,
        what="Whether each start is printed in CloudWatch's embedded metric format.",
        why="Only a cluster that ships pod logs to CloudWatch makes metrics of it, and pays for them.",
    )


class EnvironmentCost(Tree):
    """`environment.cost`."""

    expires_after: Moment | None = setting(
        None,
        what="When the GPU nodes of all its models go to zero: a while after `pulumi up` (8h, 3d), or a date in UTC.",
        why="Unset: never. AWS itself keeps the appointment, so no laptop has to be on; `coldstart extend` moves it.",
    )
    max_usd_per_hour: float | None = setting(
        None,
        what="The most this stack may cost per hour at list prices; one that could cost more is refused.",
        unit="USD per hour",
        why="Unset: no limit of its own.",
        gt=0,
    )


class Environment(Tree):
    """`coldstart:environment`: network, cluster, bucket and identity, created once."""

    region: Region = setting(what="AWS region of everything.")
    account: Account = setting(
        what="AWS account id, 12 digits. Any other account is refused before a call changes anything."
    )
    owner: TagText = setting(what="Who answers for the bill: a tag on every resource.")
    production: bool = setting(
        default=False,
        what="Production rules: unpinned images and revisions refused, a NAT gateway per zone, the cluster protected.",
        why="A first environment is a trial.",
    )
    kubernetes_version: Minor = setting(
        "1.35",
        what="Kubernetes minor version of the cluster, 1.35 or newer.",
        why="1.34 leaves EKS standard support on 2 December 2026; extended support costs six times as much.",
    )
    bottlerocket_release: Release = setting(
        "1.69.0",
        what="Bottlerocket release of all nodes, 1.46.0 or newer.",
        why="Pinned: a new release can bring another GPU driver. 1.46.0 is the first that binds the SOCI directory.",
    )
    network: Network = setting(Network, what="The VPC.")
    access: Access = setting(Access, what="Who reaches the Kubernetes API.")
    system_nodes: SystemNodes = setting(SystemNodes, what="Nodes for the controllers.")
    addons: Addons = setting(Addons, what="Controllers that model stacks rely on.")
    bucket: Bucket = setting(Bucket, what="The weight bucket.")
    log_retention_days: Literal[7, 14, 30, 60, 90, 180, 365] = setting(
        30,
        what="How long the cluster's control plane logs are kept.",
        unit="days",
        why="A log group without an end bills for ever.",
    )
    recorder: Recorder | None = setting(
        None,
        what="The recorder of starts; `recorder: {}` turns it on.",
        why="Unset: nothing runs that only watches.",
    )
    cost: EnvironmentCost = setting(EnvironmentCost, what="When to stop paying, and how much is too much.")
    tags: dict[TagText, TagText] = setting(dict, what="More tags for every resource.")


# ---- model -------------------------------------------------------------------------------------------------------
