"""The Bottlerocket release for the Kubernetes version, and its driver for the image's CUDA."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from botocore.exceptions import ClientError

from budget.drivers import R580, R580_FIX, bottlerocket_runs
from infra.environment_rules import numbers
from infra.forecast import image_case
from scripts.account.refusals import is_gone
from scripts.checks.finding import Check, Finding, Permission, Subject, Wanted, failed, passed, warned


def parameter(wanted: Wanted) -> str:
    """The parameter that AWS publishes for a release once it is built for a Kubernetes version."""
    environment = wanted.stack.environment
    variant = f"aws-k8s-{environment.kubernetes_version}" + ("-nvidia" if wanted.specs else "")
    arch = wanted.specs.node.instance.arch if wanted.specs else "x86_64"
    return f"/aws/service/bottlerocket/{variant}/{arch}/{release(wanted)}/image_version"


def release(wanted: Wanted) -> str:
    """Bottlerocket release of the nodes."""
    own = wanted.model.nodes.bottlerocket_release if wanted.model else None
    return own or wanted.stack.environment.bottlerocket_release


def _run(subject: Subject) -> Iterator[Finding]:
    wanted, name = subject.wanted, parameter(subject.wanted)
    kubernetes = wanted.stack.environment.kubernetes_version
    try:
        build = subject.clients.ssm.get_parameter(Name=name)["Parameter"].get("Value", "")
    except ClientError as error:
        if not is_gone(error):
            raise
        yield failed(
            f"Bottlerocket {release(wanted)} was never built for Kubernetes {kubernetes}",
            f"Choose a release that has an image_version below /aws/service/bottlerocket/aws-k8s-{kubernetes}: "
            "aws ssm get-parameters-by-path.",
        )
        return
    yield passed(f"Bottlerocket {build} is there for Kubernetes {kubernetes}")
    yield from _driver(wanted)


def _driver(wanted: Wanted) -> Iterator[Finding]:
    if wanted.model is None or wanted.specs is None:
        return
    cuda = image_case(wanted.model).cuda
    if cuda is None:
        yield warned(
            f"the tag of {wanted.model.image} names no vLLM version, so its CUDA is not known",
            "Set model.engine.version, or keep the tag before the digest.",
        )
    elif not bottlerocket_runs(cuda, numbers(release(wanted))):
        yield failed(
            f"the image carries CUDA {cuda[0]}, Bottlerocket {release(wanted)} a driver older than R{R580}",
            R580_FIX,
        )
    else:
        yield passed(f"its driver runs the image's CUDA {cuda[0]}.{cuda[1]}")


def _permissions(wanted: Wanted) -> Sequence[Permission]:
    # Public parameters of AWS have no account in their ARN.
    arn = f"arn:{wanted.partition}:ssm:{wanted.region}::parameter{parameter(wanted)}"
    return (Permission(actions=("ssm:GetParameter",), resources=(arn,)),)


CHECK = Check(name="node image", permissions=_permissions, run=_run)
