"""What a check of `preflight` is: a question, the permissions it takes, and its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from infra.accounts import APPLICATION, bucket_name, partition_of
from infra.model_settings import Model
from infra.specs import ModelSpecs
from infra.stack_file import Stack
from scripts.account.session import Account, Clients
from scripts.cluster.api import KubernetesApi
from scripts.registry import Registry


class Verdict(StrEnum):
    """What a finding means for the deployment."""

    PASS = "pass"  # noqa: S105 - a verdict
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One answer.

    Attributes:
        found: what is there.
        fix: what would be right; empty when nothing is wrong.
    """

    verdict: Verdict
    found: str
    fix: str = ""


def passed(found: str) -> Finding:
    """All is well."""
    return Finding(verdict=Verdict.PASS, found=found)


def warned(found: str, fix: str) -> Finding:
    """It may work."""
    return Finding(verdict=Verdict.WARN, found=found, fix=fix)


def failed(found: str, fix: str) -> Finding:
    """It can't work."""
    return Finding(verdict=Verdict.FAIL, found=found, fix=fix)


def unknown(why: str, fix: str) -> Finding:
    """It can't be said: whoever would know did not answer. That is neither well nor wrong, and never zero."""
    return warned(f"can't be checked: {why}", fix)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A deployment that is only wanted: what is known of it without asking anybody."""

    stack: Stack
    model: Model | None
    specs: ModelSpecs | None

    @property
    def region(self) -> str:
        """Where it would be."""
        return self.stack.environment.region

    @property
    def partition(self) -> str:
        """AWS partition of that region."""
        return partition_of(self.region)

    @property
    def cluster(self) -> str:
        """Name of its cluster in EKS."""
        return f"{APPLICATION}-{self.stack.environment_name}"

    @property
    def bucket(self) -> str:
        """Name of its weight bucket."""
        return bucket_name(self.stack)


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A wanted deployment, and whom to ask about it.

    Attributes:
        clients: of its region.
        api: finds the environment's cluster; None when there is none yet.
    """

    wanted: Wanted
    account: Account
    clients: Clients
    registry: Registry
    api: Callable[[], KubernetesApi | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Permission:
    """IAM actions that a check takes, and on what."""

    actions: tuple[str, ...]
    resources: tuple[str, ...] = ("*",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One check.

    Attributes:
        name: short.
        permissions: what it asks AWS for.
        run: its findings; none when the question does not arise for this deployment.
    """

    name: str
    permissions: Callable[[Wanted], Sequence[Permission]]
    run: Callable[[Subject], Iterator[Finding]]


def always(*actions: str) -> Callable[[Wanted], Sequence[Permission]]:
    """The same actions for every deployment, on whatever they are asked of: these know no narrower resource."""
    return lambda _: (Permission(actions=actions),)
