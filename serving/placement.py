"""How a pod and its GPU nodes find each other: one taint in its three spellings, one label, one resource name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MODEL_LABEL = "coldstart/model"
"""Node and pod label that holds the model stack's slug."""
GPU_LABEL = "k8s.amazonaws.com/accelerator"
"""By it the cluster autoscaler takes a node without GPUs yet for not ready, not for too small (its GPULabel)."""
COMPONENT_LABEL = "coldstart/component"
"""On every object besides those of the engine itself: what it is there for."""


class TaintEffect(Enum):
    """A taint's effect. The three systems that read it spell it differently.

    Attributes:
        pod: in a pod's toleration and on the node object.
        api: in the EKS API.
    """

    NO_SCHEDULE = ("NoSchedule", "NO_SCHEDULE")
    NO_EXECUTE = ("NoExecute", "NO_EXECUTE")
    PREFER_NO_SCHEDULE = ("PreferNoSchedule", "PREFER_NO_SCHEDULE")

    def __init__(self, pod: str, api: str) -> None:
        self.pod = pod
        self.api = api


@dataclass(frozen=True, slots=True)
class Taint:
    """Keeps other pods away from a node."""

    key: str
    value: str
    effect: TaintEffect

    def toleration(self) -> dict[str, str]:
        """What a pod says to be let in, as Kubernetes spells it."""
        return {"key": self.key, "operator": "Equal", "value": self.value, "effect": self.effect.pod}

    def bottlerocket(self) -> str:
        """The value in Bottlerocket's `settings.kubernetes.node-taints`."""
        return f"{self.value}:{self.effect.pod}"


GPU_TAINT = Taint("nvidia.com/gpu", "present", TaintEffect.NO_SCHEDULE)
"""On every GPU node: Bottlerocket sets none by itself, and a controller on a GPU node keeps it from scaling away."""


def gpu_resource(*, time_sliced: bool) -> str:
    """Name under which Bottlerocket's device plugin offers GPUs; it renames them when pods take turns."""
    return "nvidia.com/gpu.shared" if time_sliced else "nvidia.com/gpu"
