"""A model stack: GPU nodes, an identity for one prefix, and the Kubernetes objects. Created and destroyed alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from infra.accounts import environment_tags, expires_after, partition_of
from infra.expiry import ExpiringGroup, Expiry, ExpiryArgs
from infra.identity import PodIdentity, PodIdentityArgs
from infra.model_settings import Capacity, Model
from infra.nodes import DataVolume, NodeGroup, NodeGroupArgs
from infra.paused import SCALED_OBJECT_HOLD, asleep
from infra.providers import aws_provider, bottlerocket_build, kubernetes_provider
from infra.reference import EnvironmentOutputs, environment_outputs, subnets_in
from infra.specs import API_KEY_SECRET, ModelSpecs, cache_prefix
from infra.stack_file import Stack
from infra.staged_gate import once_staged
from infra.weight_access import model_policy
from nodeconfig.bottlerocket import user_data
from serving.engine import ENGINE_PORT
from serving.manifests import objects
from serving.placement import COMPONENT_LABEL, GPU_LABEL, GPU_TAINT, MODEL_LABEL

API_KEY_VERSION = "coldstart/api-key-version"
TYPED_KINDS: Mapping[str, type[pulumi.CustomResource]] = {
    "Namespace": k8s.core.v1.Namespace,
    "ServiceAccount": k8s.core.v1.ServiceAccount,
    "ConfigMap": k8s.core.v1.ConfigMap,
    "Service": k8s.core.v1.Service,
    "Deployment": k8s.apps.v1.Deployment,
    "PodDisruptionBudget": k8s.policy.v1.PodDisruptionBudget,
    "NetworkPolicy": k8s.networking.v1.NetworkPolicy,
    "PersistentVolume": k8s.core.v1.PersistentVolume,
    "PersistentVolumeClaim": k8s.core.v1.PersistentVolumeClaim,
    "DaemonSet": k8s.apps.v1.DaemonSet,
    "Job": k8s.batch.v1.Job,
    "PriorityClass": k8s.scheduling.v1.PriorityClass,
}
"""Kind of a rendered object → its typed resource. Anything else is a custom resource."""
NO_AWAIT = {"pulumi.com/skipAwait": "true"}
"""A Service has no endpoint until KEDA asks for a replica: waiting for one would fail every `up` after ten minutes."""


def declare(stack: Stack, model: Model, specs: ModelSpecs, api_key: pulumi.Output[str] | None) -> None:
    """Declares every resource of a model.

    Args:
        stack: the stack, with its environment's settings.
        model: its model settings.
        specs: what follows from the settings: node, pod, volume, sizes.
        api_key: secret that requests must carry, when the settings ask for one.
    """
    provider = aws_provider(stack)
    outputs = once_staged(stack.name, specs, environment_outputs(stack.environment_name), provider)
    groups = [
        NodeGroup(
            f"{stack.name}-{suffix}" if suffix else stack.name,
            _node_group(stack, model, specs, outputs, zones, provider),
            pulumi.ResourceOptions(providers=[provider]),
        )
        for suffix, zones in specs.zone_groups
    ]
    _expiry(stack, model, specs, outputs, groups, provider)
    identity = PodIdentity(
        stack.name,
        PodIdentityArgs(
            cluster=outputs.cluster,
            namespace=specs.serving.namespace,
            service_account=specs.serving.name,
            policy=model_policy(
                partition=partition_of(stack.environment.region),
                bucket=specs.bucket,
                staged=specs.staged,
                cache_prefix=cache_prefix(model) if specs.serving.compile_cache else None,
                kms_key_arn=stack.environment.bucket.kms_key_arn,
            ),
        ),
        pulumi.ResourceOptions(providers=[provider]),
    )
    kubernetes = kubernetes_provider(stack, outputs)
    _workload(stack, specs, kubernetes, [identity, *groups], api_key)
    pulumi.export("namespace", specs.serving.namespace)
    pulumi.export("service", f"http://{specs.serving.name}.{specs.serving.namespace}.svc:{ENGINE_PORT}")
    pulumi.export("nodeGroups", [group.resource.node_group_name for group in groups])


def _node_group(
    stack: Stack,
    model: Model,
    specs: ModelSpecs,
    outputs: EnvironmentOutputs,
    zones: Sequence[str],
    provider: aws.Provider,
) -> NodeGroupArgs:
    node, nodes, volume = specs.node, model.nodes, specs.node.storage.volume
    return NodeGroupArgs(
        cluster=outputs.cluster,
        node_role_arn=outputs.node_role_arn,
        subnet_ids=subnets_in(outputs, zones),
        instance=node.instance.name,
        arch=node.instance.arch,
        gpus=node.instance.kubernetes_gpus * node.sharing.pods_per_gpu(node.instance),
        kubernetes_version=stack.environment.kubernetes_version,
        release_version=bottlerocket_build(
            provider,
            stack.environment.kubernetes_version,
            ".".join(map(str, node.release)),
            arch=node.instance.arch,
            nvidia=True,
        ),
        user_data=user_data(node),
        volume=DataVolume(
            kind=volume.kind,
            size_gib=volume.size_gib,
            iops=volume.iops,
            throughput_mib_s=volume.throughput_mib_s,
            snapshot_id=volume.snapshot_id,
            initialization_mib_s=volume.initialization_mib_s,
        ),
        labels={MODEL_LABEL: specs.serving.name, GPU_LABEL: node.instance.gpu.lower().replace(" ", "-")},
        taints=(GPU_TAINT,),
        tags=environment_tags(stack),
        capacity=nodes.capacity,
        reservation_id=nodes.reservation_id,
        min_nodes=0,
        max_nodes=specs.max_nodes,
        initial_nodes=0,
        ephemeral_gib=specs.ephemeral_gib,
        warm_pool=(nodes.warm_pool.size, nodes.warm_pool.state) if nodes.warm_pool else None,
        scarce=nodes.capacity is not Capacity.SPOT,
        create_timeout_minutes=specs.node_timeout_minutes,
        paused=stack.paused,
    )


def _expiry(
    stack: Stack,
    model: Model,
    specs: ModelSpecs,
    outputs: EnvironmentOutputs,
    groups: Sequence[NodeGroup],
    provider: aws.Provider,
) -> None:
    setting = expires_after(stack)
    if setting is None:
        return
    Expiry(
        stack.name,
        ExpiryArgs(
            setting=setting,
            now=datetime.now(UTC),
            partition=partition_of(stack.environment.region),
            region=stack.environment.region,
            account=stack.environment.account,
            cluster=outputs.cluster,
            groups=[
                ExpiringGroup(
                    label=suffix or "nodes",
                    autoscaling_group=group.autoscaling_group,
                    node_group=group.resource.node_group_name,
                    warm_pool=model.nodes.warm_pool is not None,
                )
                for (suffix, _), group in zip(specs.zone_groups, groups, strict=True)
            ],
        ),
        pulumi.ResourceOptions(providers=[provider]),
    )


def _workload(
    stack: Stack,
    specs: ModelSpecs,
    provider: k8s.Provider,
    depends_on: Sequence[pulumi.Resource],
    api_key: pulumi.Output[str] | None,
) -> None:
    """The rendered objects as typed resources, each after the namespaces that hold them."""
    manifests = objects(specs.serving)
    namespaces = [
        _resource(stack, manifest, provider, list(depends_on), specs.rollout_timeout_s)
        for manifest in manifests
        if manifest["kind"] == "Namespace"
    ]
    secret = _api_key(stack, specs, provider, namespaces[0], api_key)
    for manifest in manifests:
        if manifest["kind"] != "Namespace":
            made = manifest if secret is None else _restarted_with(secret, manifest)
            _resource(stack, made, provider, namespaces, specs.rollout_timeout_s)


def _labels(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    return manifest["metadata"].get("labels", {})


def _restarted_with(secret: k8s.core.v1.Secret, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The engine's Deployment with pods that are replaced when the secret changes: they read it once, at their start.

    By the version of the object and not by a digest of the key, from which a weak one could be guessed.
    """
    if manifest["kind"] != "Deployment" or COMPONENT_LABEL in _labels(manifest):
        return manifest
    version = secret.metadata.apply(lambda metadata: metadata.resource_version)
    template = manifest["spec"]["template"]
    annotated = {**template["metadata"], "annotations": {API_KEY_VERSION: version}}
    return {**manifest, "spec": {**manifest["spec"], "template": {**template, "metadata": annotated}}}


def _resource(
    stack: Stack,
    manifest: Mapping[str, Any],
    provider: k8s.Provider,
    depends_on: Sequence[pulumi.Resource],
    rollout_timeout_s: int,
) -> pulumi.CustomResource:
    kind, component = manifest["kind"], _labels(manifest).get(COMPONENT_LABEL)
    name = "-".join(filter(None, (stack.name, kind.lower(), component)))
    timeout = f"{rollout_timeout_s}s"
    opts = pulumi.ResourceOptions(
        provider=provider,
        depends_on=list(depends_on),
        ignore_changes=_left_alone(stack, kind, component),
        custom_timeouts=pulumi.CustomTimeouts(create=timeout, update=timeout) if kind == "Deployment" else None,
    )
    if stack.paused and kind == "ScaledObject":
        manifest = asleep(manifest)
    members = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    # Neither a Service without replicas nor spare pods without nodes are worth waiting for.
    if kind == "Service" or (kind == "Deployment" and component is not None):
        members["metadata"] = members["metadata"] | {"annotations": NO_AWAIT}
    if kind in TYPED_KINDS:
        return TYPED_KINDS[kind](name, opts=opts, **_python_names(members))
    return k8s.apiextensions.CustomResource(
        name, api_version=manifest["apiVersion"], kind=kind, opts=opts, **_python_names(members)
    )


def _left_alone(stack: Stack, kind: str, component: str | None) -> list[str] | None:
    """Properties that others own: replicas are KEDA's, the hold of a paused stack is that of `coldstart pause`."""
    if kind == "Deployment" and component is None:
        return ["spec.replicas"]
    return list(SCALED_OBJECT_HOLD) if stack.paused and kind == "ScaledObject" else None


def _python_names(members: Mapping[str, Any]) -> dict[str, Any]:
    """The SDK names an object's few top-level members in Python's way; below them, plain dicts go as they are."""
    return {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", key).lower(): value for key, value in members.items()}


def _api_key(
    stack: Stack,
    specs: ModelSpecs,
    provider: k8s.Provider,
    namespace: pulumi.Resource,
    api_key: pulumi.Output[str] | None,
) -> k8s.core.v1.Secret | None:
    if specs.serving.api_key_secret is None or api_key is None:
        return None
    return k8s.core.v1.Secret(
        f"{stack.name}-api-key",
        metadata={"name": API_KEY_SECRET, "namespace": specs.serving.namespace},
        string_data=cast("dict[str, pulumi.Input[str]]", {"apiKey": api_key}),
        opts=pulumi.ResourceOptions(provider=provider, depends_on=[namespace]),
    )
