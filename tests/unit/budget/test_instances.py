"""The instance table and the traps of EC2's own figures."""

from __future__ import annotations

import pytest

from budget.disk import Disk, disk_rate, volume_mb_s
from budget.instances import gpu_instance, gpus, instance, instances
from budget.problems import BadInput


def test_every_gpu_of_the_table_has_facts() -> None:
    assert {kind.gpu for kind in instances().values() if kind.gpu} <= set(gpus())


def test_the_table_is_whole() -> None:
    with_gpu = [kind for kind in instances().values() if kind.gpus]
    assert len(with_gpu) == 65
    assert all(kind.memory_gib > 0 and kind.vcpu > 0 and kind.ebs_baseline_mb_s > 0 for kind in instances().values())
    assert all(kind.network_peak_gbps >= kind.network_baseline_gbps for kind in instances().values())
    assert all(kind.ebs_max_mb_s >= kind.ebs_baseline_mb_s for kind in instances().values())


@pytest.mark.parametrize(
    ("name", "plan_with"),
    [
        ("g6e.24xlarge", 100), ("g6e.48xlarge", 100), ("g7.48xlarge", 350), ("g7e.24xlarge", 400),
        ("g7e.48xlarge", 400),
        ("p4d.24xlarge", 100), ("p4de.24xlarge", 100), ("p5.48xlarge", 100), ("p5en.48xlarge", 200),
        ("p6-b200.48xlarge", 200), ("p6-b300.48xlarge", 350), ("g6e.4xlarge", 20), ("g5.xlarge", 2.5),
    ],
)  # fmt: skip
def test_a_pod_has_one_network_card(name: str, plan_with: float) -> None:
    assert instance(name).plan_network_gbps == plan_with


def test_up_to_rates_show_both_baseline_and_burst() -> None:
    kind = instance("g6e.xlarge")
    assert (kind.plan_network_gbps, kind.plan_network_peak_gbps) == (2.5, 20)
    assert (kind.ebs_baseline_mb_s, kind.ebs_max_mb_s) == (125, 625)


def test_a_card_without_burst_has_none() -> None:
    kind = instance("p5.48xlarge")
    assert kind.plan_network_peak_gbps == kind.plan_network_gbps == 100


def test_a_shared_gpu_is_one_for_kubernetes() -> None:
    kind = instance("g6f.large")
    assert kind.gpus == 0.125
    assert kind.kubernetes_gpus == 1
    assert kind.fractional
    assert kind.gpu_memory_mib == 2861


def test_a_missing_price_is_not_zero() -> None:
    assert instance("p5e.48xlarge").usd_per_hour is None
    assert instance("p5.48xlarge").usd_per_hour == 55.04


def test_gpu_memory_is_the_apis_not_the_marketing_figure() -> None:
    assert instance("g5.xlarge").gpu_memory_mib == 22888
    assert instance("g6e.xlarge").gpu_memory_mib == 45776


def test_volumes_are_in_mib_and_instances_in_mb() -> None:
    assert volume_mb_s(Disk(kind="gp3", throughput_mib_s=1000, iops=16_000)) == pytest.approx(1048.576)
    rate = disk_rate(Disk(kind="gp3", throughput_mib_s=1000, iops=16_000), instance("g6e.4xlarge"))
    assert rate.sustained_mb_s == 1000
    assert "EBS limit" in rate.bound_by


def test_few_iops_bound_the_throughput() -> None:
    assert volume_mb_s(Disk(kind="gp3", throughput_mib_s=1000, iops=3_000)) == pytest.approx(786.432)


def test_io2_has_no_throughput_setting() -> None:
    assert volume_mb_s(Disk(kind="io2", throughput_mib_s=1, iops=64_000)) == pytest.approx(4_194.304)


def test_an_unknown_type_gets_the_close_names() -> None:
    with pytest.raises(BadInput) as caught:
        instance("g6e.4xlage", where="model.nodes.instance")
    (problem,) = caught.value.problems
    assert problem.where == "model.nodes.instance"
    assert "g6e.4xlarge" in problem.fix


def test_a_type_without_gpu_is_refused_where_one_is_needed() -> None:
    assert instance("m7i.large").kubernetes_gpus == 0
    with pytest.raises(BadInput, match="has no GPU"):
        gpu_instance("m7i.large")
