"""KEDA's scaled objects of a stack: while one is held, neither a queue nor a schedule brings a pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from infra.paused import PAUSED_REPLICAS
from scripts.cluster.api import KubernetesApi, Object

COLLECTION = "/apis/keda.sh/v1alpha1/scaledobjects"
STACK_LABEL = "coldstart/stack"
"""On every object of a model stack (infra/specs.py)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaledObject:
    """One of them.

    Attributes:
        held: it carries KEDA's annotation for paused objects.
    """

    namespace: str
    name: str
    held: bool

    @property
    def path(self) -> str:
        """Where it is in the API."""
        return f"/apis/keda.sh/v1alpha1/namespaces/{self.namespace}/scaledobjects/{self.name}"


def of_stack(api: KubernetesApi, stack: str) -> Sequence[ScaledObject]:
    """The scaled objects of a stack; none where KEDA is not installed."""
    return [_one(each) for each in api.items(COLLECTION, labelSelector=f"{STACK_LABEL}={stack}")]


def hold(api: KubernetesApi, scaled: ScaledObject) -> None:
    """KEDA takes it to zero and leaves it there. Held ones stay as they are."""
    if not scaled.held:
        api.merge(scaled.path, {"metadata": {"annotations": {PAUSED_REPLICAS: "0"}}})


def release(api: KubernetesApi, scaled: ScaledObject) -> None:
    """KEDA scales it again, by its triggers."""
    if scaled.held:
        api.merge(scaled.path, {"metadata": {"annotations": {PAUSED_REPLICAS: None}}})


def _one(found: Object) -> ScaledObject:
    metadata = cast("dict[str, Any]", found["metadata"])
    annotations = cast("dict[str, str]", metadata.get("annotations") or {})
    return ScaledObject(
        namespace=str(metadata["namespace"]), name=str(metadata["name"]), held=PAUSED_REPLICAS in annotations
    )
