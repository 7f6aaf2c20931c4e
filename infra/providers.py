"""Explicit providers: one account, one region, one set of tags. Implicit ones are switched off in the stack files."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from infra.accounts import environment_tags
from infra.cluster import kubeconfig
from infra.reference import EnvironmentOutputs
from infra.stack_file import Stack


def aws_provider(stack: Stack) -> aws.Provider:
    """AWS in the environment's region, and in no other account than its own."""
    return aws.Provider(
        stack.name,
        region=stack.environment.region,
        allowed_account_ids=[stack.environment.account],
        default_tags={"tags": environment_tags(stack)},
    )


def kubernetes_provider(stack: Stack, environment: EnvironmentOutputs) -> k8s.Provider:
    """The environment's cluster, with the deployer's own AWS identity."""
    return k8s.Provider(
        stack.name,
        kubeconfig=pulumi.Output.all(
            environment.cluster, environment.endpoint, environment.certificate_authority
        ).apply(
            lambda found: kubeconfig(
                cluster=found[0],
                endpoint=found[1],
                certificate_authority=found[2],
                region=stack.environment.region,
            )
        ),
        enable_server_side_apply=True,
    )


def bottlerocket_build(
    provider: aws.Provider, kubernetes_version: str, release: str, *, arch: str, nvidia: bool
) -> pulumi.Output[str]:
    """A Bottlerocket release as EKS spells it (`1.69.0-` and its build), from AWS's public parameter of that release.

    A release that was never built for this Kubernetes version fails the preview here.
    """
    variant = f"aws-k8s-{kubernetes_version}" + ("-nvidia" if nvidia else "")
    return aws.ssm.get_parameter_output(
        name=f"/aws/service/bottlerocket/{variant}/{arch}/{release}/image_version",
        opts=pulumi.InvokeOutputOptions(provider=provider),
    ).value
