"""The engine image: its digest must be in the registry that nodes pull from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from botocore.exceptions import ClientError

from infra.setting import DIGEST
from scripts.account.refusals import is_gone
from scripts.checks.finding import Check, Finding, Permission, Subject, Wanted, failed, passed, unknown, warned
from scripts.failure import Failure
from scripts.registry import ARCHITECTURES, NotThere

ECR = re.compile(
    r"^(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(?P<repository>[^:@]+)"
    r"(?::(?P<tag>[^@]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?$"
)


def _run(subject: Subject) -> Iterator[Finding]:
    model = subject.wanted.model
    if model is None:
        return
    if not DIGEST.search(model.image):
        yield warned(
            f"{model.image} has no digest: what starts tomorrow may be another image",
            f"coldstart pin {subject.wanted.stack.name}",
        )
    private = ECR.match(model.image)
    if private:
        yield _in_ecr(subject, private)
    else:
        yield _in_registry(subject, model.image)


def _in_ecr(subject: Subject, image: re.Match[str]) -> Finding:
    region = subject.wanted.region
    if image["region"] != region:
        return failed(f"the image is in {image['region']}, nodes in {region}", "Copy it into the region's ECR.")
    wanted = {"imageDigest": image["digest"]} if image["digest"] else {"imageTag": image["tag"] or "latest"}
    try:
        found = subject.clients.ecr.describe_images(
            registryId=image["account"],
            repositoryName=image["repository"],
            imageIds=[wanted],  # pyright: ignore[reportArgumentType] - one of the two keys of the type
        )["imageDetails"]
    except ClientError as error:
        if not is_gone(error):
            raise
        return failed(
            f"{image['repository']}@{image['digest'] or image['tag']} is not in ECR of {region}",
            "Copy the image there (coldstart image), or pin one that is there.",
        )
    size = found[0].get("imageSizeInBytes", 0)
    return passed(f"in ECR of {region}, {size / 1e9:.1f} GB")


def _in_registry(subject: Subject, image: str) -> Finding:
    specs = subject.wanted.specs
    architecture = ARCHITECTURES[specs.node.instance.arch] if specs else "amd64"
    try:
        pin = subject.registry.resolve(image, architecture)
    except NotThere as lacking:
        return failed(str(lacking), "Name an image that is there, and built for the nodes.")
    except Failure as failure:
        return unknown(str(failure), "Nodes ask the registry themselves: see that it answers them, and lets them in.")
    return passed(f"{image.partition('@')[0]} answers, {sum(pin.layers) / 1e9:.1f} GB")


def _permissions(wanted: Wanted) -> Sequence[Permission]:
    image = ECR.match(wanted.model.image) if wanted.model else None
    if image is None:
        return ()
    arn = f"arn:{wanted.partition}:ecr:{image['region']}:{image['account']}:repository/{image['repository']}"
    return (Permission(actions=("ecr:DescribeImages",), resources=(arn,)),)


CHECK = Check(name="engine image", permissions=_permissions, run=_run)
