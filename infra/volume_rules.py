"""Rules of `model.nodes.disk` and `model.nodes.volume`: what EBS can do, and what a snapshot is good for."""

from __future__ import annotations

from collections.abc import Iterator

from budget.disk import GP3_DEFAULT_IOPS, GP3_IOPS_PER_MIB_S, SOCI_FLOOR_MIB_S, volume_mb_s
from budget.instances import Instance
from budget.problems import Problem
from infra.model_settings import Disk, Model, Nodes
from infra.setting import DIGEST
from infra.specs import ModelSpecs

WHERE = "model.nodes.volume"
GP3_IOPS = (GP3_DEFAULT_IOPS, 80_000)
GP3_IOPS_PER_GIB = 500
"""gp3: IOPS at most 500 times the GiB (EBS user guide)."""
IO2_IOPS_PER_GIB = 1_000


def problems(model: Model, instance: Instance) -> Iterator[Problem]:
    """What is wrong with the disk settings of a model."""
    yield from _disk(model.nodes, instance)
    yield from _volume(model.nodes)
    yield from _snapshot(model)


def resulting(specs: ModelSpecs) -> Iterator[Problem]:
    """What is wrong with the volume that follows from them, whether it was asked for or computed from the image."""
    volume, instance = specs.node.storage.volume, specs.node.instance
    per_gib = GP3_IOPS_PER_GIB if volume.kind == "gp3" else IO2_IOPS_PER_GIB
    if volume.iops > volume.size_gib * per_gib:
        yield Problem(
            f"{WHERE}.iops",
            f"{volume.iops} on the {volume.size_gib} GiB of the data volume",
            f"{volume.kind} has at most {per_gib} IOPS per GiB: set size_gib to {-(-volume.iops // per_gib)} or more.",
        )
    if volume.snapshot_id is not None and specs.node.storage.kind == "nvme":
        yield Problem(
            f"{WHERE}.snapshot_id",
            f"set, but images of {instance.name} are on its NVMe disks, which start empty",
            "Remove it, or set model.nodes.disk to ebs.",
        )


def warnings(specs: ModelSpecs) -> Iterator[Problem]:
    """What is paid for and not used, or waits for what it didn't ask for."""
    volume, instance = specs.node.storage.volume, specs.node.instance
    rate = volume_mb_s(volume.disk)
    if rate > instance.ebs_max_mb_s:
        yield Problem(
            f"{WHERE}.throughput_mib_s",
            f"the volume moves {rate:,.0f} MB/s, {instance.name} at most {instance.ebs_max_mb_s:,.0f} MB/s",
            "You pay for what it can't use.",
        )
    if volume.snapshot_id is not None and volume.initialization_mib_s is None:
        yield Problem(
            f"{WHERE}.initialization_mib_s",
            f"unset: unless fast snapshot restore is on for {volume.snapshot_id}, each block comes from S3 when it is "
            "first read, slower than a pull",
            "Set it, 100 to 300, or leave it if fast snapshot restore is on in every zone of the nodes.",
        )


def _disk(nodes: Nodes, instance: Instance) -> Iterator[Problem]:
    if nodes.disk is Disk.NVME and not instance.nvme_disks:
        yield Problem("model.nodes.disk", f"nvme, but {instance.name} has no local disk", "Use ebs or auto.")
    throughput = nodes.volume.throughput_mib_s
    on_ebs = nodes.disk is Disk.EBS or not instance.nvme_disks
    if on_ebs and throughput is not None and throughput < SOCI_FLOOR_MIB_S:
        yield Problem(
            f"{WHERE}.throughput_mib_s",
            f"{throughput} MiB/s: parallel pull gains nothing on so slow a disk",
            f"Use {SOCI_FLOOR_MIB_S} or more, or leave it unset.",
        )


def _volume(nodes: Nodes) -> Iterator[Problem]:
    volume = nodes.volume
    if volume.kind == "io2":
        if volume.throughput_mib_s is not None:
            yield Problem(f"{WHERE}.throughput_mib_s", "set for io2", "io2 has none: its throughput follows its IOPS.")
        return
    low, high = GP3_IOPS
    if volume.iops is not None and not low <= volume.iops <= high:
        yield Problem(f"{WHERE}.iops", f"{volume.iops} for gp3", f"gp3 has {low:,} to {high:,}.")
    if volume.iops and volume.throughput_mib_s and volume.throughput_mib_s * GP3_IOPS_PER_MIB_S > volume.iops:
        needed = volume.throughput_mib_s * GP3_IOPS_PER_MIB_S
        yield Problem(
            f"{WHERE}.iops", f"{volume.iops} can't carry {volume.throughput_mib_s} MiB/s", f"Use {needed:,} or more."
        )
    if volume.iops and volume.size_gib and volume.iops > volume.size_gib * GP3_IOPS_PER_GIB:
        yield Problem(
            f"{WHERE}.iops", f"{volume.iops} on {volume.size_gib} GiB", f"At most {GP3_IOPS_PER_GIB} IOPS per GiB."
        )


def _snapshot(model: Model) -> Iterator[Problem]:
    volume = model.nodes.volume
    if volume.snapshot_id is not None and not DIGEST.search(model.image):
        yield Problem(
            f"{WHERE}.snapshot_id",
            f"holds one image, and {model.image} has no digest: nodes may ask for another, and pull it",
            "Pin model.image to the digest that was baked.",
        )
    if volume.snapshot_id is None and volume.initialization_mib_s is not None:
        yield Problem(
            f"{WHERE}.initialization_mib_s",
            f"{volume.initialization_mib_s} without a snapshot_id: an empty volume has nothing to fetch",
            "Name the snapshot, or leave it unset.",
        )
