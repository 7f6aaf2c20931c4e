"""What runs on the cluster besides models: EKS add-ons, KEDA and the cluster autoscaler."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from infra.environment_settings import Presence
from infra.identity import PodIdentity, PodIdentityArgs

BEFORE_NODES = ("vpc-cni", "kube-proxy", "eks-pod-identity-agent")
"""Daemon sets that a node needs before it is Ready."""
AFTER_NODES = ("coredns", "eks-node-monitoring-agent")
"""Need a node to run on. The monitoring agent is what lets EKS see, and replace, a node whose GPUs are gone."""

ADDON_SETTINGS: Mapping[str, Mapping[str, object]] = {
    # Network policies of the models are enforced by it.
    "vpc-cni": {"enableNetworkPolicy": "true"},
}


@dataclass(frozen=True)
class Chart:
    """A Helm chart by its pinned version."""

    name: str
    version: str
    repository: str
    namespace: str


KEDA = Chart("keda", "2.21.0", "https://kedacore.github.io/charts", "keda")
AUTOSCALER = Chart("cluster-autoscaler", "9.59.0", "https://kubernetes.github.io/autoscaler", "kube-system")
AUTOSCALER_ACCOUNT = "cluster-autoscaler"


@dataclass(frozen=True, kw_only=True)
class AddonsArgs:
    """What decides the add-ons.

    Attributes:
        before_nodes: whether these are the add-ons a node needs to become Ready, or those that need a node.
    """

    cluster: pulumi.Input[str]
    names: tuple[str, ...]


class Addons(pulumi.ComponentResource):
    """EKS add-ons at the version EKS recommends for the cluster's Kubernetes version."""

    resources: Sequence[aws.eks.Addon]

    def __init__(self, name: str, args: AddonsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("coldstart:addons:Addons", name, None, opts)
        self.resources = [
            aws.eks.Addon(
                f"{name}-{addon}",
                cluster_name=args.cluster,
                addon_name=addon,
                configuration_values=json.dumps(ADDON_SETTINGS[addon]) if addon in ADDON_SETTINGS else None,
                resolve_conflicts_on_create="OVERWRITE",
                resolve_conflicts_on_update="PRESERVE",
                opts=pulumi.ResourceOptions(
                    parent=self, custom_timeouts=pulumi.CustomTimeouts(create="20m", update="20m", delete="20m")
                ),
            )
            for addon in args.names
        ]
        self.register_outputs({"addons": [resource.addon_name for resource in self.resources]})


@dataclass(frozen=True, kw_only=True)
class ControllersArgs:
    """What decides the controllers.

    Attributes:
        cluster_resource: the cluster, for which a release need not be uninstalled once the cluster itself is deleted.
    """

    cluster: str
    cluster_resource: pulumi.Resource
    region: str
    partition: str
    account: str
    keda: Presence
    cluster_autoscaler: Presence


class Controllers(pulumi.ComponentResource):
    """KEDA and the cluster autoscaler, each installed by a pinned chart or left to whoever installed it."""

    def __init__(self, name: str, args: ControllersArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("coldstart:addons:Controllers", name, None, opts)
        self._name, self._args = name, args
        if args.keda is Presence.INSTALL:
            self._release(KEDA, {})
        if args.cluster_autoscaler is Presence.INSTALL:
            self._autoscaler()
        self.register_outputs({})

    def _autoscaler(self) -> None:
        args = self._args
        identity = PodIdentity(
            f"{self._name}-autoscaler",
            PodIdentityArgs(
                cluster=args.cluster,
                namespace=AUTOSCALER.namespace,
                service_account=AUTOSCALER_ACCOUNT,
                policy=autoscaler_policy(args.partition, args.region, args.account, args.cluster),
            ),
            pulumi.ResourceOptions(parent=self),
        )
        self._release(AUTOSCALER, _autoscaler_values(args.cluster, args.region), depends_on=[identity])

    def _release(
        self, chart: Chart, values: Mapping[str, object], depends_on: Sequence[pulumi.Resource] = ()
    ) -> k8s.helm.v3.Release:
        return k8s.helm.v3.Release(
            f"{self._name}-{chart.name}",
            name=chart.name,
            chart=chart.name,
            version=chart.version,
            repository_opts={"repo": chart.repository},
            namespace=chart.namespace,
            create_namespace=True,
            atomic=True,
            values=dict(values),
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=list(depends_on), deleted_with=self._args.cluster_resource
            ),
        )


def _autoscaler_values(cluster: str, region: str) -> dict[str, object]:
    return {
        "autoDiscovery": {"clusterName": cluster},
        "awsRegion": region,
        "rbac": {"serviceAccount": {"create": True, "name": AUTOSCALER_ACCOUNT}},
        "extraArgs": {
            "balance-similar-node-groups": True,
            "expander": "least-waste",
            # Daemon sets alone must not keep a GPU node alive, nor the emptyDir of a model that has left.
            "ignore-daemonsets-utilization": True,
            "skip-nodes-with-local-storage": False,
            "scale-down-unneeded-time": "10m",
        },
    }


def autoscaler_policy(partition: str, region: str, account: str, cluster: str) -> dict[str, object]:
    """What the cluster autoscaler may do: look at everything it must, change only groups of its own cluster."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "Look",
                "Effect": "Allow",
                "Action": [
                    "autoscaling:DescribeAutoScalingGroups",
                    "autoscaling:DescribeAutoScalingInstances",
                    "autoscaling:DescribeLaunchConfigurations",
                    "autoscaling:DescribeScalingActivities",
                    "autoscaling:DescribeTags",
                    "ec2:DescribeImages",
                    "ec2:DescribeInstanceTypes",
                    "ec2:DescribeLaunchTemplateVersions",
                    "ec2:GetInstanceTypesFromInstanceRequirements",
                ],
                "Resource": "*",
            },
            {
                "Sid": "NodeGroups",
                "Effect": "Allow",
                "Action": ["eks:DescribeNodegroup"],
                "Resource": f"arn:{partition}:eks:{region}:{account}:nodegroup/{cluster}/*/*",
            },
            {
                "Sid": "Scale",
                "Effect": "Allow",
                "Action": ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
                "Resource": f"arn:{partition}:autoscaling:{region}:{account}:autoScalingGroup:*",
                "Condition": {"StringEquals": {f"aws:ResourceTag/k8s.io/cluster-autoscaler/{cluster}": "owned"}},
            },
        ],
    }
