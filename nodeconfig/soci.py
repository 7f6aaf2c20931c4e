"""SOCI parallel pull, tuned for one instance type and one image: switched on alone it gains almost nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from budget.instances import GBPS_TO_BYTES_S, Instance

MIB = 2**20
CONNECTION_MB_S = 85
"""One ranged request to the registry's store moves 85 to 90 decimal MB/s (S3 performance guidelines)."""
DOWNLOADS_MIN, DOWNLOADS_MAX = 10, 20
"""What ECR advises per image; no published measurement gains beyond 20."""
UNPACKS_MIN, UNPACKS_MAX = 2, 12
"""12 is the largest value published to help (karpenter-blueprints, AL2023 defaults)."""
CHUNK_MIB_SMALL, CHUNK_MIB = 8, 16
"""ECR advises 8 to 16 MB a request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    """One value of the tuning and what it was computed from."""

    value: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """The whole tuning of `parallel-pull-unpack`.

    Attributes:
        downloads: ranged requests at once of one image.
        unpacks: layers of one image unpacked at once.
        chunk_mib: bytes of one ranged request, MiB.
        downloads_all: cap over all images, or None. A cap below the per-image value stops the snapshotter.
        unpacks_all: as above for unpacks.
        discard: drop compressed blobs once unpacked.
    """

    downloads: Tuned
    unpacks: Tuned
    chunk_mib: Tuned
    downloads_all: int | None = None
    unpacks_all: int | None = None
    discard: bool = True


def tune(instance: Instance, layers: Sequence[int]) -> Tuning:
    """The tuning for an image on an instance.

    Args:
        instance: its network bounds the downloads, its vCPUs the unpacks.
        layers: compressed bytes of each layer, at least one.
    """
    downloads = _downloads(instance)
    return Tuning(
        downloads=downloads, unpacks=_unpacks(instance, len(layers)), chunk_mib=_chunk(max(layers), downloads.value)
    )


def _downloads(instance: Instance) -> Tuned:
    peak_gbps = instance.plan_network_peak_gbps
    fill = math.ceil(peak_gbps * GBPS_TO_BYTES_S / (CONNECTION_MB_S * 1e6))
    value = min(DOWNLOADS_MAX, max(DOWNLOADS_MIN, fill))
    return Tuned(
        value=value,
        reason=f"{peak_gbps:g} Gbps take {fill} requests of {CONNECTION_MB_S} MB/s; kept within {DOWNLOADS_MIN} to "
        f"{DOWNLOADS_MAX}, ECR's advice",
    )


def _unpacks(instance: Instance, layers: int) -> Tuned:
    half = instance.vcpu // 2
    value = max(1, min(UNPACKS_MAX, max(UNPACKS_MIN, half), layers))
    return Tuned(
        value=value,
        reason=f"half of {instance.vcpu} vCPUs, one core a layer of {layers}; within {UNPACKS_MIN} to {UNPACKS_MAX}",
    )


def _chunk(largest_layer: int, downloads: int) -> Tuned:
    """Small enough that the largest layer alone can use every request, in whole steps between ECR's bounds."""
    share_mib = largest_layer / downloads / MIB
    value = CHUNK_MIB if share_mib >= CHUNK_MIB else CHUNK_MIB_SMALL
    return Tuned(
        value=value,
        reason=f"the largest layer gives {share_mib:.0f} MiB to each of {downloads} requests; "
        f"{CHUNK_MIB_SMALL} or {CHUNK_MIB} MiB, ECR's advice",
    )
