"""EC2 instance types: what a node has to work with, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal

from budget.problems import bad_input, did_you_mean
from budget.tables import rows

GIB = 2**30
MIB = 2**20
GBPS_TO_BYTES_S = 1e9 / 8
"""One gigabit per second in bytes per second."""
MIB_S_TO_MB_S = MIB / 1e6
"""EBS volumes are provisioned in MiB/s, instances are capped in MB/s: the factor between the two."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU board.

    Attributes:
        name: as the EC2 API spells it (`RTX PRO Server 6000`, not the marketing name).
        architecture: NVIDIA's name of the generation.
        compute_capability: CUDA compute capability, 8.9 for Ada.
        pcie_gb_s: nominal one-way host-to-device rate, GB/s.
        memory_gb_s: nominal memory bandwidth, GB/s.
        driver_min: oldest driver branch that runs the board.
        cuda_max: last CUDA major version that supports it; None when current ones do.
        switched: the GPUs of a node reach each other over NVLink rather than over PCIe.
    """

    name: str
    architecture: str
    compute_capability: float
    pcie_gb_s: float
    memory_gb_s: float
    driver_min: int
    cuda_max: int | None
    switched: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
    """One EC2 instance type. Sources: the header of instances.csv.

    Attributes:
        gpus: boards, fractional for shared ones (0.125 of an L4 on g6f.large).
        gpu_memory_mib: memory of one listed GPU or fraction, as the API reports it: below the marketing figure.
        network_baseline_gbps: sustained total of all network cards.
        network_peak_gbps: burst total; equal to the baseline where there is no burst.
        network_card0_gbps: baseline of card 0 as the API reports it.
        nvme_gb_each: decimal GB of one local disk; 0 without local disks.
        ebs_baseline_mb_s: sustained EBS throughput, decimal MB/s.
        ebs_max_mb_s: burst EBS throughput, decimal MB/s.
        usd_per_hour: on-demand Linux list price in us-east-1; None when there is none. None is not free.
        priced_on: date of that price, empty without one.
    """

    name: str
    vcpu: int
    cores: int
    memory_gib: float
    gpu: str
    gpus: float
    gpu_memory_mib: int
    network_baseline_gbps: float
    network_peak_gbps: float
    network_cards: int
    network_card0_gbps: float
    nvme_disks: int
    nvme_gb_each: float
    ebs_baseline_mb_s: float
    ebs_max_mb_s: float
    ebs_baseline_iops: int
    ebs_max_iops: int
    usd_per_hour: float | None
    priced_on: str
    arch: Literal["x86_64", "arm64"]
    bare_metal: bool
    usage_classes: tuple[str, ...]

    @property
    def family(self) -> str:
        """The part before the dot: `g6e`."""
        return self.name.partition(".")[0]

    @property
    def memory_bytes(self) -> int:
        """Memory of the instance, before what the hypervisor, kernel and kubelet keep."""
        return int(self.memory_gib * GIB)

    @property
    def gpu_memory_bytes(self) -> int:
        """Memory of one GPU (or fraction)."""
        return self.gpu_memory_mib * MIB

    @property
    def kubernetes_gpus(self) -> int:
        """What `nvidia.com/gpu` counts: a shared GPU is one, though the API reports zero of them."""
        return 0 if self.gpus == 0 else max(1, int(self.gpus))

    @property
    def fractional(self) -> bool:
        """The instance has a share of a GPU."""
        return 0 < self.gpus < 1

    @property
    def nvme_bytes(self) -> int:
        """Local disks together, as RAID0."""
        return int(self.nvme_disks * self.nvme_gb_each * 1e9)

    @property
    def plan_network_gbps(self) -> float:
        """Sustained bandwidth that one pod's traffic can use.

        S3 and registry traffic leaves by the primary interface, on card 0. Some types report the full instance figure
        for every card, so the bound is the smaller of card 0 and the total shared by the cards.
        """
        return min(self.network_card0_gbps, self.network_baseline_gbps / self.network_cards)

    @property
    def plan_network_peak_gbps(self) -> float:
        """As `plan_network_gbps`, while burst credits last."""
        return max(self.plan_network_gbps, self.network_peak_gbps if self.network_cards == 1 else 0)

    @property
    def board(self) -> Gpu | None:
        """Facts of its GPU; None on an instance without."""
        return gpus()[self.gpu] if self.gpu else None


@cache
def gpus() -> Mapping[str, Gpu]:
    """Every GPU of the instance table by its API name."""
    return MappingProxyType({row["gpu"]: _gpu(row) for row in rows("gpus.csv")})


def _gpu(row: Mapping[str, str]) -> Gpu:
    return Gpu(
        name=row["gpu"],
        architecture=row["architecture"],
        compute_capability=float(row["compute_capability"]),
        pcie_gb_s=float(row["pcie_gb_s"]),
        memory_gb_s=float(row["memory_gb_s"]),
        driver_min=int(row["driver_min"]),
        cuda_max=int(row["cuda_max"]) if row["cuda_max"] else None,
        switched=row["switched"] == "true",
    )


@cache
def instances() -> Mapping[str, Instance]:
    """Every known instance type by name: NVIDIA types first, then a few without GPU for system nodes."""
    return MappingProxyType({row["instance"]: _instance(row) for row in rows("instances.csv")})


def _instance(row: Mapping[str, str]) -> Instance:
    return Instance(
        name=row["instance"],
        vcpu=int(row["vcpu"]),
        cores=int(row["cores"]),
        memory_gib=float(row["memory_gib"]),
        gpu=row["gpu"],
        gpus=float(row["gpus"]),
        gpu_memory_mib=int(row["gpu_memory_mib"]),
        network_baseline_gbps=float(row["network_baseline_gbps"]),
        network_peak_gbps=float(row["network_peak_gbps"]),
        network_cards=int(row["network_cards"]),
        network_card0_gbps=float(row["network_card0_gbps"]),
        nvme_disks=int(row["nvme_disks"]),
        nvme_gb_each=float(row["nvme_gb_each"]),
        ebs_baseline_mb_s=float(row["ebs_baseline_mb_s"]),
        ebs_max_mb_s=float(row["ebs_max_mb_s"]),
        ebs_baseline_iops=int(row["ebs_baseline_iops"]),
        ebs_max_iops=int(row["ebs_max_iops"]),
        usd_per_hour=float(row["usd_per_hour"]) if row["usd_per_hour"] else None,
        priced_on=row["priced_on"],
        arch="arm64" if row["arch"] == "arm64" else "x86_64",
        bare_metal=row["bare_metal"] == "true",
        usage_classes=tuple(row["usage_classes"].split(";")),
    )


def instance(name: str, *, where: str = "instance") -> Instance:
    """The instance type called `name`.

    Args:
        name: EC2's name, `g6e.4xlarge`.
        where: key path for the error.

    Raises:
        BadInput: an unknown type, with the close names.
    """
    known = instances()
    if name not in known:
        raise bad_input(where, f"{name!r} is not an instance type in the table", did_you_mean(name, known))
    return known[name]


def gpu_instance(name: str, *, where: str = "instance") -> Instance:
    """As `instance`, and it has a GPU.

    Raises:
        BadInput: an unknown type, or one without a GPU.
    """
    found = instance(name, where=where)
    if not found.gpus:
        families = sorted({known.family for known in instances().values() if known.gpus})
        raise bad_input(where, f"{name} has no GPU", f"Choose a type of {', '.join(families)}.")
    return found
