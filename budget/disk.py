"""The disk a node keeps images and caches on: how fast it really is, and how large it must be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from budget.counted import counted
from budget.instances import GIB, MIB_S_TO_MB_S, Instance

DiskKind = Literal["nvme", "gp3", "io2"]

GP3_DEFAULT_MIB_S = 125
GP3_DEFAULT_IOPS = 3_000
"""What every gp3 volume has at no charge."""
GP3_IOPS_PER_MIB_S = 4
"""gp3 carries at most 0.25 MiB/s per IOPS (EBS user guide)."""
GP3_TUNED_MIB_S = 1_000
"""The most that is asked of gp3 without a setting."""
IO2_MIB_S = 4_000
"""io2 has no throughput setting: 256 KiB per I/O up to this (EBS user guide)."""
SOCI_FLOOR_MIB_S = 600
"""Below this, parallel pull on EBS gains next to nothing (soci-snapshotter's own guidance and #1633)."""
IO_BYTES = 256 * 1024
"""Largest I/O EBS counts as one; images unpack in about this size, so IOPS x 256 KiB bounds the throughput too."""

NVME_MB_S_PER_GB = 1.0
NVME_FLOOR_MB_S, NVME_CEILING_MB_S = 200.0, 2_000.0
NVME_SPREAD = 1.6
"""No API gives NVMe throughput. It grows with a disk's capacity; one MB/s per GB between these bounds is an estimate
with a wide band: measure the node (`host.disk_mb_s` overrides it)."""

IMAGE_FACTOR = 3.0
"""Room for images: compressed + unpacked (about twice the compressed); the headroom holds the next version."""
HEADROOM_BYTES = 20 * GIB
"""Kubelet, logs, add-on images, the ephemeral storage of pods."""
VOLUME_STEP_GIB = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """A disk as it is set up.

    Attributes:
        kind: instance store, or the kind of EBS volume.
        throughput_mib_s: provisioned (gp3), ignored for nvme.
        iops: provisioned.
    """

    kind: DiskKind
    throughput_mib_s: float = GP3_DEFAULT_MIB_S
    iops: float = GP3_DEFAULT_IOPS


@dataclass(frozen=True, kw_only=True, slots=True)
class DiskRate:
    """Sequential write rate, decimal MB/s.

    Attributes:
        sustained_mb_s: what a budget uses.
        burst_mb_s: while the instance's EBS credits last.
        low_mb_s: the pessimistic reading.
        bound_by: what limits it, in words.
    """

    low_mb_s: float
    sustained_mb_s: float
    burst_mb_s: float
    bound_by: str


def volume_mb_s(disk: Disk) -> float:
    """What the EBS volume itself can do: provisioned MiB/s converted to MB/s, or its IOPS at 256 KiB each."""
    by_iops = disk.iops * IO_BYTES / 1e6
    by_throughput = (IO2_MIB_S if disk.kind == "io2" else disk.throughput_mib_s) * MIB_S_TO_MB_S
    return min(by_iops, by_throughput)


def disk_rate(disk: Disk, instance: Instance) -> DiskRate:
    """How fast the disk is behind this instance: the volume, or what the instance lets through to it."""
    if disk.kind == "nvme":
        each = min(NVME_CEILING_MB_S, max(NVME_FLOOR_MB_S, NVME_MB_S_PER_GB * instance.nvme_gb_each))
        rate = instance.nvme_disks * each
        return DiskRate(
            low_mb_s=rate / NVME_SPREAD,
            sustained_mb_s=rate,
            burst_mb_s=rate * NVME_SPREAD,
            bound_by=f"{counted(instance.nvme_disks, 'local NVMe disk')} of {instance.nvme_gb_each:.0f} GB (estimated)",
        )
    volume = volume_mb_s(disk)
    sustained, burst = min(volume, instance.ebs_baseline_mb_s), min(volume, instance.ebs_max_mb_s)
    if volume <= instance.ebs_baseline_mb_s:
        words = f"the {disk.kind} volume ({volume:.0f} MB/s)"
    else:
        words = f"{instance.name}'s EBS limit ({instance.ebs_baseline_mb_s:.0f} MB/s sustained)"
    return DiskRate(low_mb_s=sustained, sustained_mb_s=sustained, burst_mb_s=burst, bound_by=words)


def data_volume_gib(
    *, image_bytes: float, unpacked_bytes: float | None = None, cached_bytes: float = 0, copies: int = 1
) -> int:
    """Size of the node's data volume, GiB, a multiple of ten.

    Args:
        image_bytes: compressed bytes of the engine image.
        unpacked_bytes: of the same; None assumes twice the compressed bytes.
        cached_bytes: weights, compile caches and other files kept on the volume.
        copies: versions of the image that stay besides the one being pulled.
    """
    unpacked = 2 * image_bytes if unpacked_bytes is None else unpacked_bytes
    images = max(IMAGE_FACTOR * image_bytes, image_bytes + (1 + copies) * unpacked)
    return math.ceil((images + cached_bytes + HEADROOM_BYTES) / GIB / VOLUME_STEP_GIB) * VOLUME_STEP_GIB


def disk_bytes(disk: Disk, instance: Instance, volume_gib: float | None) -> int | None:
    """Capacity of the disk; None when an EBS volume's size is not given."""
    if disk.kind == "nvme":
        return instance.nvme_bytes
    return None if volume_gib is None else int(volume_gib * GIB)
