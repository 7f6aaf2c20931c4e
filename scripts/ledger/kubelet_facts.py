"""Metrics of kubelet and Karpenter, where they can be read: histograms of a node, not of a pod."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>[^}]*)\})?\s+(?P<value>\S+)(?:\s+\d+)?$")


def samples(text: str) -> Iterator[tuple[str, str, float]]:
    """Name, labels and value of every sample of a Prometheus text that can be a count or a duration."""
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if not found:
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        if 0 <= value < math.inf:
            yield found["name"], found["labels"] or "", value


def only_pull_s(text: str) -> float | None:
    """Seconds of the one pull of this node; None when it pulled never or often: the histogram names no pod.

    The metric has a label for the size of the image, so that small images of daemon sets stand apart: the largest size
    with exactly one pull is the engine's.
    """
    counts: dict[str, float] = {}
    sums: dict[str, float] = {}
    for name, labels, value in samples(text):
        if name == "kubelet_image_pull_duration_seconds_count":
            counts[labels] = value
        elif name == "kubelet_image_pull_duration_seconds_sum":
            sums[labels] = value
    large = [labels for labels in counts if any(size in labels for size in _LARGE)]
    chosen = large or list(counts)
    pulled = [labels for labels in chosen if counts[labels] > 0]
    return sums.get(pulled[0]) if len(pulled) == 1 and counts[pulled[0]] == 1 else None


_LARGE = ("5GB-10GB", "10GB-20GB", "20GB-30GB", "30GB-40GB", "40GB-60GB", "60GB-100GB", "GT100GB")
"""Values of the label image_size_in_bytes that an engine image has (kubelet, pkg/kubelet/metrics)."""

NODE_STARTUP = {
    "kubelet_node_startup_pre_kubelet_duration_seconds": "boot until the kubelet starts",
    "kubelet_node_startup_pre_registration_duration_seconds": "kubelet start until it registers",
    "kubelet_node_startup_registration_duration_seconds": "registration",
    "kubelet_node_startup_post_registration_duration_seconds": "registration until Ready",
    "kubelet_node_startup_duration_seconds": "kubelet start until Ready",
}


def node_startup_s(text: str) -> dict[str, float]:
    """How the kubelet says its node's start was spent: part → seconds."""
    return {NODE_STARTUP[name]: value for name, _, value in samples(text) if name in NODE_STARTUP}


def karpenter_means_s(text: str) -> dict[str, float]:
    """Means over all of Karpenter's pods and nodes: what → seconds."""
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    for name, _, value in samples(text):
        base, _, kind = name.rpartition("_")
        if base in _KARPENTER and kind == "sum":
            sums[base] = sums.get(base, 0.0) + value
        elif base in _KARPENTER and kind == "count":
            counts[base] = counts.get(base, 0.0) + value
    return {_KARPENTER[base]: total / counts[base] for base, total in sums.items() if counts.get(base)}


_KARPENTER = {
    "karpenter_pods_startup_duration_seconds": "mean time of a pod to Running",
    "karpenter_pods_bound_duration_seconds": "mean time of a pod until it is bound",
    "karpenter_scheduler_scheduling_duration_seconds": "mean time Karpenter takes to decide",
}
