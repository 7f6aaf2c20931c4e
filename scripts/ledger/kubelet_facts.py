"""Metrics of the kubelet, where they can be read: histograms of a node, not of a pod."""

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
