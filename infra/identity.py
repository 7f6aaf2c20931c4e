"""Who may do what: roles of cluster and nodes, and one identity per model that reaches its own prefix alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

NODE_POLICIES = (
    "AmazonEKSWorkerNodePolicy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonEKS_CNI_Policy",
    "AmazonSSMManagedInstanceCore",
)
"""Join the cluster, pull images, give pods addresses, answer `apiclient` over Session Manager. No S3: a pod whose own
identity fails would silently fall back to the node's."""


def trust(service: str, actions: Sequence[str] = ("sts:AssumeRole",)) -> str:
    """Trust policy that lets one AWS service assume a role."""
    return json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Principal": {"Service": service}, "Action": list(actions)}],
        }
    )


POD_TRUST = trust("pods.eks.amazonaws.com", ("sts:AssumeRole", "sts:TagSession"))


def service_role(
    name: str, *, service: str, partition: str, policies: Sequence[str], opts: pulumi.ResourceOptions
) -> tuple[aws.iam.Role, Sequence[aws.iam.RolePolicyAttachment]]:
    """A role for an AWS service with AWS's own policies; whoever uses it must wait for the attachments too."""
    role = aws.iam.Role(name, assume_role_policy=trust(service), opts=opts)
    attachments = [
        aws.iam.RolePolicyAttachment(
            f"{name}-{policy}", role=role.name, policy_arn=f"arn:{partition}:iam::aws:policy/{policy}", opts=opts
        )
        for policy in policies
    ]
    return role, attachments


@dataclass(frozen=True, kw_only=True)
class PodIdentityArgs:
    """A service account and what it may do.

    Attributes:
        cluster: name of the cluster.
        policy: an IAM policy document.
    """

    cluster: pulumi.Input[str]
    namespace: str
    service_account: str
    policy: Mapping[str, object]


class PodIdentity(pulumi.ComponentResource):
    """A role that exactly one service account gets, through EKS Pod Identity."""

    role_arn: pulumi.Output[str]

    def __init__(self, name: str, args: PodIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("coldstart:identity:PodIdentity", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        role = aws.iam.Role(name, assume_role_policy=POD_TRUST, opts=child)
        policy = aws.iam.RolePolicy(name, role=role.name, policy=json.dumps(args.policy), opts=child)
        self.association = aws.eks.PodIdentityAssociation(
            name,
            cluster_name=args.cluster,
            namespace=args.namespace,
            service_account=args.service_account,
            role_arn=role.arn,
            # A cluster allows one association per service account: a replacement must free it first.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[policy], delete_before_replace=True),
        )
        self.role_arn = role.arn
        self.register_outputs({"roleArn": self.role_arn})
