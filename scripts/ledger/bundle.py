"""Everything that was read about one start, raw: what a saved folder holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.ledger.facts import Absence
from scripts.ledger.raw import Object

GPU_RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared")


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """One start.

    Attributes:
        pod, node, node_claim, lease: objects of the Kubernetes API; empty when they were not there.
        events: of the pod, its node and its node claim.
        instance: the EC2 instance as DescribeInstances has it.
        launcher: the launcher's ledger document.
        log, previous_log: of the engine's container; None when it was not read.
        configz: the kubelet's configuration as it runs.
        probe: what a probe pod read on the node.
        kubelet_metrics: Prometheus text.
        traffic: bytes by way during the start (CloudWatch).
        seen: moments that only a watcher sees: `gpus-allocatable` → Unix seconds.
        collected_s: Unix time at which this was read.
        absences: what could not be read, and why.
    """

    pod: Object = field(default_factory=dict[str, Any])
    node: Object = field(default_factory=dict[str, Any])
    node_claim: Object = field(default_factory=dict[str, Any])
    lease: Object = field(default_factory=dict[str, Any])
    events: Sequence[Object] = ()
    instance: Object = field(default_factory=dict[str, Any])
    launcher: Object = field(default_factory=dict[str, Any])
    log: str | None = None
    previous_log: str | None = None
    configz: Object = field(default_factory=dict[str, Any])
    probe: Object = field(default_factory=dict[str, Any])
    kubelet_metrics: str = ""
    traffic: Object = field(default_factory=dict[str, Any])
    seen: Object = field(default_factory=dict[str, Any])
    collected_s: float | None = None
    absences: tuple[Absence, ...] = ()

    def why(self, what: str, otherwise: str) -> str:
        """Why something could not be read."""
        return next((absence.why for absence in self.absences if absence.what == what), otherwise)
