"""Objects in a cluster behind which a controller has made something in AWS: they go while it still runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from scripts.cluster.api import KubernetesApi, Object

SOURCES = (
    ("Service", "/api/v1/services", "/api/v1/namespaces/{}/services"),
    ("Ingress", "/apis/networking.k8s.io/v1/ingresses", "/apis/networking.k8s.io/v1/namespaces/{}/ingresses"),
    ("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims", "/api/v1/namespaces/{}/persistentvolumeclaims"),
    ("NodePool", "/apis/karpenter.sh/v1/nodepools", ""),
    ("NodeClaim", "/apis/karpenter.sh/v1/nodeclaims", ""),
)
"""Kind, its list over the cluster, its collection in a namespace (empty: it has none). Pools come before claims: a pool
would make new ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterThing:
    """One such object.

    Attributes:
        namespace: empty for kinds that have none.
        deleting: its deletion was asked for.
        finalizers: whoever must do something before it is gone.
    """

    kind: str
    namespace: str
    name: str
    path: str
    deleting: bool
    finalizers: tuple[str, ...]

    def __str__(self) -> str:
        """`Service web/front`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def holder(self) -> str:
        """What keeps it from going, in a sentence."""
        if not self.finalizers:
            return f"{self}: its deletion has not been carried out yet"
        return f"{self}: finalizer {', '.join(self.finalizers)} (is the controller that removes it still running?)"


def of_namespace(api: KubernetesApi, namespace: str) -> Sequence[ClusterThing]:
    """Those of one namespace."""
    return [
        thing
        for kind, _, collection in SOURCES
        if collection
        for thing in _found(api, kind, collection.format(namespace), collection)
    ]


def of_cluster(api: KubernetesApi) -> Sequence[ClusterThing]:
    """Those of the whole cluster."""
    return [thing for kind, everywhere, collection in SOURCES for thing in _found(api, kind, everywhere, collection)]


def remove(api: KubernetesApi, thing: ClusterThing) -> None:
    """Asks for its deletion; the controller takes away what it made, then lets it go."""
    if not thing.deleting:
        api.delete(thing.path)


def _found(api: KubernetesApi, kind: str, path: str, collection: str) -> Iterator[ClusterThing]:
    for found in api.items(path):
        if kind == "Service" and cast("Object", found.get("spec") or {}).get("type") != "LoadBalancer":
            continue
        metadata = cast("dict[str, Any]", found["metadata"])
        namespace, name = str(metadata.get("namespace") or ""), str(metadata["name"])
        yield ClusterThing(
            kind=kind,
            namespace=namespace,
            name=name,
            path=f"{collection.format(namespace) if collection else path}/{name}",
            deleting="deletionTimestamp" in metadata,
            finalizers=tuple(cast("list[str]", metadata.get("finalizers") or [])),
        )
