"""An environment stack: network, weight bucket, cluster, controllers. Created once, shared by its models."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from budget.disk import GP3_DEFAULT_IOPS, GP3_DEFAULT_MIB_S
from infra.accounts import bucket_name, cluster_name, environment_tags, partition_of, zone_names
from infra.addons import AFTER_NODES, BEFORE_NODES, Addons, AddonsArgs, Controllers, ControllersArgs
from infra.cluster import Cluster, ClusterArgs
from infra.environment_settings import Environment
from infra.identity import NODE_POLICIES, PodIdentity, PodIdentityArgs, service_role
from infra.model_settings import Capacity
from infra.network import Network, NetworkArgs
from infra.nodes import DataVolume, NodeGroup, NodeGroupArgs
from infra.providers import aws_provider, bottlerocket_build, kubernetes_provider
from infra.recorder import Recorder, RecorderArgs, recorder_spec
from infra.reference import EnvironmentOutputs
from infra.stack_file import Stack
from infra.weight_access import EVERY_MODEL, stager_policy
from infra.weights import WeightBucket, WeightBucketArgs
from serving import stage_job

SYSTEM_VOLUME = DataVolume(kind="gp3", size_gib=40, iops=GP3_DEFAULT_IOPS, throughput_mib_s=GP3_DEFAULT_MIB_S)
"""Controllers' images are small, and nobody waits for them; gp3 at its free performance."""


def declare(stack: Stack) -> None:
    """Declares every resource of an environment and exports what its models need."""
    settings, partition = stack.environment, partition_of(stack.environment.region)
    provider = aws_provider(stack)
    on_aws = pulumi.ResourceOptions(provider=provider)
    network = Network(
        stack.name,
        NetworkArgs(
            cidr=settings.network.cidr,
            region=settings.region,
            zones=zone_names(settings.region, settings.network.zones),
            egress=settings.network.egress,
            nat_per_zone=settings.production,
            bucket=bucket_name(stack),
            partition=partition,
        ),
        pulumi.ResourceOptions(providers=[provider]),
    )
    bucket = WeightBucket(
        f"{stack.name}-weights",
        WeightBucketArgs(
            bucket=bucket_name(stack),
            partition=partition,
            exists=_bucket_exists(stack, provider),
            keep=settings.bucket.keep,
            kms_key_arn=settings.bucket.kms_key_arn,
        ),
        pulumi.ResourceOptions(providers=[provider]),
    )
    cluster = Cluster(
        stack.name,
        ClusterArgs(
            cluster=cluster_name(stack),
            partition=partition,
            kubernetes_version=settings.kubernetes_version,
            subnet_ids=network.private_subnet_ids,
            public_cidrs=settings.access.public_cidrs,
            admin_roles=settings.access.admin_roles,
            log_retention_days=settings.log_retention_days,
            protect=settings.production,
        ),
        pulumi.ResourceOptions(providers=[provider]),
    )
    node_role, attachments = service_role(
        f"{stack.name}-node", service="ec2.amazonaws.com", partition=partition, policies=NODE_POLICIES, opts=on_aws
    )
    before = Addons(
        f"{stack.name}-before", AddonsArgs(cluster=cluster.name, names=BEFORE_NODES), _with([provider], [cluster])
    )
    system = NodeGroup(
        f"{stack.name}-system",
        _system_nodes(settings, stack, cluster.name, node_role.arn, network, provider),
        # Nodes that can't reach ECR or their own role never join, and say nothing: those come first.
        _with([provider], [before, network, *attachments]),
    )
    Addons(f"{stack.name}-after", AddonsArgs(cluster=cluster.name, names=AFTER_NODES), _with([provider], [system]))
    zones = zone_names(settings.region, settings.network.zones)
    outputs = EnvironmentOutputs(
        region=pulumi.Output.from_input(settings.region),
        cluster=cluster.name,
        endpoint=cluster.endpoint,
        certificate_authority=cluster.certificate_authority,
        node_role_arn=node_role.arn,
        private_subnets=pulumi.Output.all(**dict(zip(zones, network.private_subnet_ids, strict=True))),
        bucket=bucket.name,
    )
    kubernetes = kubernetes_provider(stack, outputs)
    Controllers(
        stack.name,
        ControllersArgs(
            cluster=cluster_name(stack),
            cluster_resource=cluster.resource,
            region=settings.region,
            partition=partition,
            account=settings.account,
            keda=settings.addons.keda,
            cluster_autoscaler=settings.addons.cluster_autoscaler,
        ),
        _with([provider, kubernetes], [system]),
    )
    # Whoever may start a Job in that namespace stages with this identity; models read with their own.
    PodIdentity(
        f"{stack.name}-stager",
        PodIdentityArgs(
            cluster=cluster.name,
            namespace=stage_job.NAMESPACE,
            service_account=stage_job.SERVICE_ACCOUNT,
            policy=stager_policy(
                partition=partition,
                bucket=bucket_name(stack),
                model=EVERY_MODEL,
                kms_key_arn=settings.bucket.kms_key_arn,
            ),
        ),
        pulumi.ResourceOptions(providers=[provider]),
    )
    if settings.recorder:
        spec = recorder_spec(settings.recorder, labels={"coldstart/environment": stack.environment_name})
        Recorder(f"{stack.name}-recorder", RecorderArgs(spec=spec), _with([provider, kubernetes], [system]))
    outputs.export()


def _with(providers: list[pulumi.ProviderResource], depends_on: list[pulumi.Resource]) -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions(providers=providers, depends_on=depends_on)


def _system_nodes(
    settings: Environment,
    stack: Stack,
    cluster: pulumi.Output[str],
    node_role_arn: pulumi.Output[str],
    network: Network,
    provider: aws.Provider,
) -> NodeGroupArgs:
    nodes = settings.system_nodes
    return NodeGroupArgs(
        cluster=cluster,
        node_role_arn=node_role_arn,
        subnet_ids=network.private_subnet_ids,
        instance=nodes.instance,
        arch="x86_64",
        gpus=0,
        kubernetes_version=stack.environment.kubernetes_version,
        release_version=bottlerocket_build(
            provider, settings.kubernetes_version, settings.bottlerocket_release, arch="x86_64", nvidia=False
        ),
        user_data=None,
        volume=SYSTEM_VOLUME,
        labels={"coldstart/role": "system"},
        taints=(),
        tags=environment_tags(stack),
        capacity=Capacity.ON_DEMAND,
        reservation_id=None,
        min_nodes=nodes.count,
        max_nodes=nodes.count,
        initial_nodes=nodes.count,
        ephemeral_gib=SYSTEM_VOLUME.size_gib,
        warm_pool=None,
        scarce=False,
        create_timeout_minutes=30,
    )


def _bucket_exists(stack: Stack, provider: aws.Provider) -> bool:
    """Whether an earlier `up` left the bucket. Found by its tags: a bucket that is not there can not be asked for."""
    found = aws.resourcegroupstaggingapi.get_resources(
        resource_type_filters=["s3"],
        tag_filters=[
            {"key": "application", "values": ["coldstart"]},
            {"key": "environment", "values": [stack.environment_name]},
            {"key": "bucket", "values": [bucket_name(stack)]},
        ],
        opts=pulumi.InvokeOptions(provider=provider),
    )
    name = bucket_name(stack)
    return any(mapping.resource_arn.endswith(f":::{name}") for mapping in found.resource_tag_mapping_lists)
