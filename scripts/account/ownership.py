"""Whose a thing is: by its tags, by the cluster a controller made it for, or by a name that only we give.

What carries a hint without a proof is unknown. Unknown things are reported apart, and nothing here ever deletes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infra.accounts import APPLICATION

Tags = Mapping[str, str]

OWNED = re.compile(r"^kubernetes\.io/cluster/(.+)$")
"""Key of the tag that controllers inside a cluster put on what they make, with the value `owned`."""
CLUSTER_TAGS = (
    "eks:cluster-name",
    "aws:eks:cluster-name",
    "elbv2.k8s.aws/cluster",
    "cluster.k8s.amazonaws.com/name",
    "KubernetesCluster",
)
"""Keys whose value names the cluster that a thing was made for (EKS, its CNI, load balancer and EBS drivers)."""
_PREFIX = f"{APPLICATION}-"


@dataclass(frozen=True, slots=True)
class Ours:
    """Proven to be ours.

    Attributes:
        environment: name of the environment stack.
        stack: stack that made it, when its tags say so; None for what controllers made.
        why: the proof.
        namespace: in the cluster, of what a controller made it for; None when it does not say.
    """

    environment: str
    stack: str | None
    why: str
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Perhaps ours.

    Attributes:
        why: the hint.
        environment: the one that the hint points to, if any.
    """

    why: str
    environment: str | None = None


Verdict = Ours | Unknown | None
"""None: somebody else's."""


class Owners:
    """What is known of our environments while an account is looked at.

    Attributes:
        environments: names that stack files, states or tags gave us. A name alone never proves anything beyond them.
        vpcs, roles, snapshots: id of one of ours → the proof, for things that are only known by what they belong to.
    """

    def __init__(self, environments: Iterable[str]) -> None:
        self.environments = set(environments)
        self.vpcs: dict[str, Ours] = {}
        self.roles: dict[str, Ours] = {}
        self.snapshots: dict[str, Ours] = {}

    def by_tags(self, tags: Tags) -> Verdict:
        """Our own tags, then those of controllers."""
        if tags.get("application") != APPLICATION:
            return self.by_cluster(tags)
        environment = tags.get("environment", "")
        if not environment:
            return Unknown(f"tag application={APPLICATION} without an environment")
        self.environments.add(environment)
        return Ours(environment, tags.get("stack") or None, "tags")

    def by_cluster(self, tags: Tags) -> Verdict:
        """The tag by which a controller says for which cluster it made a thing."""
        for key, value in sorted(tags.items()):
            owned = OWNED.match(key)
            if owned and value == "owned":
                return self._of_cluster(owned[1], f"tag {key}", _namespace(tags))
            if key in CLUSTER_TAGS:
                return self._of_cluster(value, f"tag {key}", _namespace(tags))
        return None

    def by_name(self, name: str, *patterns: str) -> Verdict:
        """A name that only we give.

        Args:
            name: of the thing.
            patterns: shapes with one `{}` for the environment: `/aws/eks/coldstart-{}/cluster`. An environment may
                hold hyphens, so a name is matched whole and against environments that exist, never by its beginning.
        """
        hint = None
        for pattern in patterns:
            before, _, after = pattern.partition("{}")
            if not name.startswith(before) or not name.endswith(after) or len(name) <= len(before) + len(after):
                continue
            environment = name[len(before) : len(name) - len(after) or None]
            if environment in self.environments:
                return Ours(environment, None, f"name {pattern.replace('{}', environment)}")
            hint = Unknown(f"named like ours, but no environment {environment!r} is known", environment)
        return hint

    def first(self, *verdicts: Verdict) -> Verdict:
        """The first proof; without one, the first hint."""
        proofs = [verdict for verdict in verdicts if isinstance(verdict, Ours)]
        hints = [verdict for verdict in verdicts if isinstance(verdict, Unknown)]
        return proofs[0] if proofs else hints[0] if hints else None

    def _of_cluster(self, cluster: str, why: str, namespace: str | None) -> Verdict:
        if not cluster.startswith(_PREFIX):
            return None
        environment = cluster.removeprefix(_PREFIX)
        if environment in self.environments:
            return Ours(environment, None, why, namespace)
        return Unknown(f"{why}, but no environment {environment!r} is known", environment)


def _namespace(tags: Tags) -> str | None:
    """Namespace of the Service, Ingress or claim that a controller made a thing for, as controllers write it down."""
    claim = tags.get("kubernetes.io/created-for/pvc/namespace")
    if claim:
        return claim
    named = (
        tags.get(key, "") for key in ("kubernetes.io/service-name", "service.k8s.aws/stack", "ingress.k8s.aws/stack")
    )
    return next((text.partition("/")[0] for text in named if "/" in text), None)


def tags_of(pairs: Sequence[Mapping[str, object]] | None) -> dict[str, str]:
    """Tags from the list of keys and values that most services answer with, however they spell the two."""
    found: dict[str, str] = {}
    for pair in pairs or ():
        key = pair.get("Key") or pair.get("key") or pair.get("TagKey")
        value = pair.get("Value", pair.get("value", pair.get("TagValue", "")))
        found[str(key)] = str(value)
    return found
