"""The EKS cluster: who reaches it, what it logs, and the kubeconfig of its providers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import pulumi
import pulumi_aws as aws

from infra.identity import service_role

LOG_TYPES = ("api", "audit", "authenticator")
ADMIN_POLICY = "AmazonEKSClusterAdminPolicy"


@dataclass(frozen=True, kw_only=True)
class ClusterArgs:
    """What decides the cluster.

    Attributes:
        cluster: its name in EKS.
        public_cidrs: who reaches the API from outside; empty keeps it private.
        admin_roles: role ARNs of administrators, besides the one that creates the cluster.
        protect: refuses `pulumi destroy`.
    """

    cluster: str
    partition: str
    kubernetes_version: str
    subnet_ids: Sequence[pulumi.Input[str]]
    public_cidrs: tuple[str, ...]
    admin_roles: tuple[str, ...]
    log_retention_days: int
    protect: bool


class Cluster(pulumi.ComponentResource):
    """EKS control plane with its role, log group and access entries."""

    name: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    certificate_authority: pulumi.Output[str]

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("coldstart:cluster:Cluster", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        role, attachments = service_role(
            f"{name}-cluster",
            service="eks.amazonaws.com",
            partition=args.partition,
            policies=("AmazonEKSClusterPolicy",),
            opts=child,
        )
        # Made before the cluster: EKS would otherwise make it without an end to its retention, and leave it behind.
        logs = aws.cloudwatch.LogGroup(
            name, name=f"/aws/eks/{args.cluster}/cluster", retention_in_days=args.log_retention_days, opts=child
        )
        self.resource = aws.eks.Cluster(
            name,
            name=args.cluster,
            version=args.kubernetes_version,
            role_arn=role.arn,
            enabled_cluster_log_types=list(LOG_TYPES),
            upgrade_policy={"support_type": "STANDARD"},
            access_config={"authentication_mode": "API", "bootstrap_cluster_creator_admin_permissions": True},
            vpc_config={
                "subnet_ids": list(args.subnet_ids),
                "endpoint_private_access": True,
                "endpoint_public_access": bool(args.public_cidrs),
                "public_access_cidrs": list(args.public_cidrs) or None,
            },
            bootstrap_self_managed_addons=False,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[logs, *attachments],
                protect=args.protect,
                custom_timeouts=pulumi.CustomTimeouts(create="45m", update="60m", delete="30m"),
            ),
        )
        for arn in sorted(args.admin_roles):
            self._administrator(name, arn, args.partition)
        self.name, self.endpoint = self.resource.name, self.resource.endpoint
        self.certificate_authority = self.resource.certificate_authority.apply(
            lambda authority: cast("str", authority.data)
        )
        self.register_outputs({"name": self.name, "endpoint": self.endpoint})

    def _administrator(self, name: str, arn: str, partition: str) -> None:
        label = f"{name}-{arn.partition(':role/')[2].replace('/', '-')}"
        entry = aws.eks.AccessEntry(
            label,
            cluster_name=self.resource.name,
            principal_arn=arn,
            opts=pulumi.ResourceOptions(parent=self),
        )
        aws.eks.AccessPolicyAssociation(
            label,
            cluster_name=self.resource.name,
            principal_arn=entry.principal_arn,
            policy_arn=f"arn:{partition}:eks::aws:cluster-access-policy/{ADMIN_POLICY}",
            access_scope={"type": "cluster"},
            opts=pulumi.ResourceOptions(parent=self),
        )


def kubeconfig(*, cluster: str, endpoint: str, certificate_authority: str, region: str) -> str:
    """A kubeconfig that asks the AWS CLI for a token: no credential is stored in it."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": cluster,
                    "cluster": {"server": endpoint, "certificate-authority-data": certificate_authority},
                }
            ],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
            "current-context": cluster,
            "users": [
                {
                    "name": cluster,
                    "user": {
                        "exec": {
                            "apiVersion": "client.authentication.k8s.io/v1beta1",
                            "command": "aws",
                            "args": ["eks", "get-token", "--cluster-name", cluster, "--region", region],
                            "interactiveMode": "Never",
                        }
                    },
                }
            ],
        }
    )
