"""How a pod and its GPU nodes find each other: one taint in its three spellings, one label, one resource name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MODEL_LABEL = "coldstart/model"
"""Node and pod label that holds the model stack's slug."""
GPU_LABEL = "k8s.amazonaws.com/accelerator"
"""While its GPUs are not there yet, the cluster autoscaler takes a node with it for not ready, not for too small."""
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


GPU_RESOURCE = "nvidia.com/gpu"
"""Name under which nodes offer GPUs, shared ones too: the cluster autoscaler counts a labelled node without it as never
ready (autoscaler#8095), so nodes are told not to rename them when pods take turns."""
