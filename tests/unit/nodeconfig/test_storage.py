"""NVMe or EBS: decided by numbers, unless somebody asks, and never a disk that is not there."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budget.disk import Disk, disk_rate
from budget.instances import instance, instances
from nodeconfig.storage import BOUND_DIRECTORIES, Volume, choose

GPU_TYPES = sorted(name for name, found in instances().items() if found.gpus)
WITHOUT_NVME = [name for name in GPU_TYPES if not instance(name).nvme_disks]
WITH_NVME = [name for name in GPU_TYPES if instance(name).nvme_disks]
SMALL = Volume(kind="gp3", size_gib=20, iops=3_000, throughput_mib_s=125)
TUNED = Volume(kind="gp3", size_gib=100, iops=4_000, throughput_mib_s=1_000)
VOLUMES = st.one_of(
    st.builds(
        Volume,
        kind=st.just("gp3"),
        size_gib=st.integers(20, 1_000),
        iops=st.integers(3_000, 80_000),
        throughput_mib_s=st.integers(125, 2_000),
    ),
    st.builds(
        Volume,
        kind=st.just("io2"),
        size_gib=st.integers(20, 1_000),
        iops=st.integers(100, 256_000),
        throughput_mib_s=st.none(),
    ),
)


@given(name=st.sampled_from(WITH_NVME), volume=VOLUMES)
def test_left_to_itself_the_faster_disk_wins(name: str, volume: Volume) -> None:
    found = instance(name)
    storage = choose(found, wanted="auto", nvme_volume=SMALL, ebs_volume=volume)
    nvme, ebs = disk_rate(Disk(kind="nvme"), found).sustained_mb_s, disk_rate(volume.disk, found).sustained_mb_s
    assert storage.kind == ("nvme" if nvme >= ebs else "ebs")
    assert storage.rate_mb_s == max(nvme, ebs)
    assert storage.volume is (SMALL if storage.kind == "nvme" else volume)
    assert storage.capacity_bytes == (found.nvme_bytes if storage.kind == "nvme" else volume.size_gib * 2**30)


@given(name=st.sampled_from(GPU_TYPES), volume=VOLUMES, wanted=st.sampled_from(["auto", "nvme", "ebs"]))
def test_the_reason_holds_the_numbers_that_decided(
    name: str, volume: Volume, wanted: Literal["auto", "nvme", "ebs"]
) -> None:
    found = instance(name)
    storage = choose(found, wanted=wanted, nvme_volume=SMALL, ebs_volume=volume)
    numbers = [float(text.replace(",", "")) for text in re.findall(r"([\d,]+) MB/s", storage.reason)]
    assert round(disk_rate(volume.disk, found).sustained_mb_s) in [round(number) for number in numbers]
    if found.nvme_disks:
        assert round(disk_rate(Disk(kind="nvme"), found).sustained_mb_s) in [round(number) for number in numbers]
    else:
        assert f"{name} has no local disk" in storage.reason
    assert storage.reason.startswith("asked for; ") == (wanted != "auto")


@pytest.mark.parametrize("wanted", ["nvme", "ebs"])
def test_what_is_asked_for_is_done(wanted: Literal["nvme", "ebs"]) -> None:
    for name in WITH_NVME:
        storage = choose(instance(name), wanted=wanted, nvme_volume=SMALL, ebs_volume=TUNED)
        assert storage.kind == wanted
        assert storage.volume is (SMALL if wanted == "nvme" else TUNED)


@pytest.mark.parametrize("wanted", ["auto", "nvme", "ebs"])
def test_an_instance_without_local_disks_keeps_its_images_on_ebs(wanted: Literal["auto", "nvme", "ebs"]) -> None:
    for name in WITHOUT_NVME:
        storage = choose(instance(name), wanted=wanted, nvme_volume=SMALL, ebs_volume=TUNED)
        assert (storage.kind, storage.volume) == ("ebs", TUNED)
        assert storage.rate_mb_s <= instance(name).ebs_baseline_mb_s


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("g6e.2xlarge", "nvme"),  # 450 MB/s of NVMe against an EBS baseline of 250
        ("g6.4xlarge", "ebs"),  # 600 MB/s of NVMe against 1,000
        ("p5.48xlarge", "nvme"),
        ("g5g.4xlarge", "ebs"),  # no local disk
    ],
)
def test_known_instances(name: str, kind: str) -> None:
    assert choose(instance(name), wanted="auto", nvme_volume=SMALL, ebs_volume=TUNED).kind == kind


def test_a_burst_that_ends_during_the_pull_does_not_decide() -> None:
    """g6e.xlarge takes 625 MB/s of EBS while credits last, 125 after: its 250 MB/s of NVMe is the better promise."""
    found = instance("g6e.xlarge")
    assert found.ebs_max_mb_s > disk_rate(Disk(kind="nvme"), found).sustained_mb_s > found.ebs_baseline_mb_s
    assert choose(found, wanted="auto", nvme_volume=SMALL, ebs_volume=TUNED).kind == "nvme"


def test_exactly_four_directories_are_bound() -> None:
    assert sorted(BOUND_DIRECTORIES) == [
        "/var/lib/containerd",
        "/var/lib/kubelet",
        "/var/lib/soci-snapshotter",
        "/var/log/pods",
    ]


def test_a_volume_looks_the_same_to_the_budget() -> None:
    assert TUNED.disk == Disk(kind="gp3", throughput_mib_s=1_000, iops=4_000)
    io2 = Volume(kind="io2", size_gib=100, iops=16_000, throughput_mib_s=None)
    # 16,000 I/Os of 256 KiB, whatever throughput it does not have.
    assert disk_rate(io2.disk, instance("p5.48xlarge")).sustained_mb_s == pytest.approx(16_000 * 262_144 / 1e6)
