"""Where a GPU node keeps images, SOCI's files, the kubelet and pod logs: instance NVMe or the EBS data volume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from budget.disk import Disk, DiskRate, disk_rate
from budget.instances import GIB, Instance

BOUND_DIRECTORIES = (
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/soci-snapshotter",
    "/var/log/pods",
)
"""What `apiclient ephemeral-storage bind` moves to NVMe. Leaving SOCI's own directory out keeps every image byte on EBS
(karpenter-provider-aws#8393); any path besides the ones Bottlerocket supports halts the boot."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Volume:
    """The EBS data volume, `/dev/xvdb`.

    Attributes:
        throughput_mib_s: provisioned; None for io2, whose throughput follows from its IOPS.
        snapshot_id: what it starts from, with the image on it; None is an empty volume.
        initialization_mib_s: rate at which the snapshot's blocks come from S3; None leaves it to EBS.
    """

    kind: Literal["gp3", "io2"]
    size_gib: int
    iops: int
    throughput_mib_s: int | None
    snapshot_id: str | None = None
    initialization_mib_s: int | None = None

    @property
    def disk(self) -> Disk:
        """The same volume as the budget room sees it."""
        return Disk(kind=self.kind, throughput_mib_s=self.throughput_mib_s or 0, iops=self.iops)


@dataclass(frozen=True, kw_only=True, slots=True)
class Storage:
    """Where the bytes go, and why there.

    Attributes:
        kind: `nvme` (all local disks as one RAID0) or `ebs`.
        rate_mb_s: sustained write rate of that disk, decimal MB/s.
        capacity_bytes: of that disk.
        reason: the numbers that decided, in words.
        volume: the EBS data volume; it exists either way, small when NVMe is used.
    """

    kind: Literal["nvme", "ebs"]
    rate_mb_s: float
    capacity_bytes: int
    reason: str
    volume: Volume


def choose(
    instance: Instance, *, wanted: Literal["auto", "nvme", "ebs"], nvme_volume: Volume, ebs_volume: Volume
) -> Storage:
    """NVMe or EBS, by what each can write for as long as a pull lasts.

    Burst credits of EBS may be spent when a pull begins, so the sustained rate decides.

    Args:
        instance: its local disks, and the cap it puts on any EBS volume.
        wanted: what the settings ask for.
        nvme_volume: the EBS data volume if NVMe is chosen.
        ebs_volume: the EBS data volume if EBS is chosen.
    """
    nvme = disk_rate(Disk(kind="nvme"), instance)
    ebs = disk_rate(ebs_volume.disk, instance)
    kind = _kind(instance, wanted, nvme=nvme, ebs=ebs)
    numbers = f"NVMe about {nvme.sustained_mb_s:,.0f} MB/s, EBS {ebs.sustained_mb_s:,.0f} MB/s ({ebs.bound_by})"
    if not instance.nvme_disks:
        numbers = f"{instance.name} has no local disk; EBS {ebs.sustained_mb_s:,.0f} MB/s ({ebs.bound_by})"
    return Storage(
        kind=kind,
        rate_mb_s=(nvme if kind == "nvme" else ebs).sustained_mb_s,
        capacity_bytes=instance.nvme_bytes if kind == "nvme" else ebs_volume.size_gib * GIB,
        reason=numbers if wanted == "auto" else f"asked for; {numbers}",
        volume=nvme_volume if kind == "nvme" else ebs_volume,
    )


def _kind(instance: Instance, wanted: str, *, nvme: DiskRate, ebs: DiskRate) -> Literal["nvme", "ebs"]:
    if wanted == "ebs" or not instance.nvme_disks:
        return "ebs"
    return "nvme" if wanted == "nvme" or nvme.sustained_mb_s >= ebs.sustained_mb_s else "ebs"
