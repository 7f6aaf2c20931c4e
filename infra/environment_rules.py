"""Rules of an environment's settings."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from budget.problems import Problem
from infra.environment_settings import Egress, Environment, Presence
from infra.setting import DIGEST

KUBERNETES_OLDEST = (1, 35)
"""1.34 leaves EKS standard support on 2 December 2026 (EKS release calendar)."""
BOTTLEROCKET_OLDEST = (1, 46, 0)
"""First release whose storage binding includes SOCI's directory (Bottlerocket changelog)."""
RESERVED_TAGS = frozenset({"application", "environment", "stack", "owner", "model", "expiry", "bucket", "Name"})


def numbers(version: str) -> tuple[int, ...]:
    """A dotted version as numbers."""
    return tuple(int(part) for part in version.split("."))


def problems(settings: Environment) -> Iterator[Problem]:
    """What is wrong with an environment's settings, across fields."""
    yield from _region(settings)
    yield from _versions(settings)
    yield from _network(settings)
    yield from _access(settings)
    yield from _egress(settings)
    yield from _recorder(settings)
    for key in sorted(settings.tags):
        if key in RESERVED_TAGS or key.startswith("aws:"):
            yield Problem(f"environment.tags.{key}", "a tag this project sets itself", "Choose another name for it.")


def release_problem(where: str, release: str) -> Iterator[Problem]:
    """A Bottlerocket release that is too old."""
    if numbers(release) < BOTTLEROCKET_OLDEST:
        oldest = ".".join(map(str, BOTTLEROCKET_OLDEST))
        yield Problem(where, f"Bottlerocket {release} can't bind SOCI's directory", f"Use {oldest} or newer.")


def _region(settings: Environment) -> Iterator[Problem]:
    # Interface endpoints there are cn.com.amazonaws.… for some services and com.amazonaws.… for others, registries end
    # in .amazonaws.com.cn, and no price of that partition is in the table: nothing of it was ever tried.
    if settings.region.startswith("cn-"):
        yield Problem(
            "environment.region",
            f"{settings.region} is a region of AWS China, whose endpoints and registries have other names",
            "Use a region of AWS or of AWS GovCloud.",
        )


def _versions(settings: Environment) -> Iterator[Problem]:
    if numbers(settings.kubernetes_version) < KUBERNETES_OLDEST:
        yield Problem(
            "environment.kubernetes_version",
            f"{settings.kubernetes_version} is out of EKS standard support, or leaves it on 2 December 2026",
            f"Use {'.'.join(map(str, KUBERNETES_OLDEST))} or newer.",
        )
    yield from release_problem("environment.bottlerocket_release", settings.bottlerocket_release)
    key = settings.bucket.kms_key_arn
    if key and key.split(":")[3] != settings.region:
        yield Problem(
            "environment.bucket.kms_key_arn",
            f"is a key of {key.split(':')[3]}, the bucket is in {settings.region}",
            "Name a key of the bucket's region.",
        )


def _network(settings: Environment) -> Iterator[Problem]:
    network = settings.network
    if len(set(network.zones)) != len(network.zones):
        yield Problem("environment.network.zones", f"{list(network.zones)} names a zone twice", "Name each zone once.")
    try:
        cidr = ipaddress.ip_network(network.cidr)
    except ValueError as error:
        yield Problem(
            "environment.network.cidr",
            f"{network.cidr} is not an address range: {error}",
            "Write one like 10.64.0.0/16.",
        )
        return
    if not 16 <= cidr.prefixlen <= 20:  # noqa: PLR2004 - the bounds are in the message
        yield Problem(
            "environment.network.cidr", f"{network.cidr} is a /{cidr.prefixlen}", "Use a range between /16 and /20."
        )
    if not cidr.is_private and not cidr.subnet_of(ipaddress.IPv4Network("100.64.0.0/10")):  # pyright: ignore[reportArgumentType] - the pattern of the field admits IPv4 alone
        yield Problem(
            "environment.network.cidr",
            f"{network.cidr} is public address space",
            "Use 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10.",
        )


def _access(settings: Environment) -> Iterator[Problem]:
    access = settings.access
    if len(set(access.admin_roles)) != len(access.admin_roles):
        yield Problem("environment.access.admin_roles", "names a role twice", "Name each role once.")
    ranges: list[ipaddress.IPv4Network] = []
    for index, text in enumerate(access.public_cidrs):
        where = f"environment.access.public_cidrs[{index}]"
        try:
            ranges.append(ipaddress.IPv4Network(text))
        except ValueError as error:
            yield Problem(where, f"{text} is not an address range: {error}", "Write one like 203.0.113.0/24.")
    # Two halves of the world are the world.
    widest = min((network.prefixlen for network in ipaddress.collapse_addresses(ranges)), default=32)
    if widest == 0 and not access.open_to_the_world:
        yield Problem(
            "environment.access.public_cidrs",
            "opens the Kubernetes API to the world",
            "List your own ranges, or set environment.access.open_to_the_world: true.",
        )


def _egress(settings: Environment) -> Iterator[Problem]:
    if settings.network.egress is not Egress.NONE:
        return
    addons = settings.addons
    for name, presence in (("keda", addons.keda), ("cluster_autoscaler", addons.cluster_autoscaler)):
        if presence is Presence.INSTALL:
            yield Problem(
                f"environment.addons.{name}",
                "install needs a public registry, and environment.network.egress is none",
                "Install it from a private mirror yourself and set `present`, or set egress: nat.",
            )


def _recorder(settings: Environment) -> Iterator[Problem]:
    recorder, where = settings.recorder, "environment.recorder.image"
    if recorder is None:
        return
    private = ".dkr.ecr." in recorder.image
    if settings.network.egress is Egress.NONE and not private:
        yield Problem(
            where,
            f"{recorder.image} is in a public registry, and environment.network.egress is none",
            "Copy it to a private registry of the region and name it here.",
        )
    if settings.production and not DIGEST.search(recorder.image):
        yield Problem(where, f"{recorder.image} has no digest, in a production environment", "Add @sha256:… to it.")
