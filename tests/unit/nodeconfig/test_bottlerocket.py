"""User data: what a node boots with, value by value, and what EKS's merger would lose."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budget.instances import instance, instances
from budget.problems import BadInput
from nodeconfig.bottlerocket import NodeSpec, Sharing, check_mergeable, reasons, user_data
from nodeconfig.soci import Tuned, Tuning, tune
from nodeconfig.storage import Storage, Volume, choose

GPU_TYPES = sorted(name for name, found in instances().items() if found.gpus)
MIG_TYPES = {
    "p4d.24xlarge": "a100.40gb",
    "p4de.24xlarge": "a100.80gb",
    "p5.4xlarge": "h100.80gb",
    "p5.48xlarge": "h100.80gb",
    "p5e.48xlarge": "h200.141gb",
    "p5en.48xlarge": "h200.141gb",
}
SMALL = Volume(kind="gp3", size_gib=20, iops=3_000, throughput_mib_s=125)
TUNED = Volume(kind="gp3", size_gib=100, iops=4_000, throughput_mib_s=1_000)


def node(name: str = "g6e.4xlarge", **changes: Any) -> NodeSpec:
    found = instance(name)
    spec = NodeSpec(
        release=(1, 69, 0),
        instance=found,
        soci=tune(found, [900_000_000, 4_000_000_000, 60_000_000]),
        storage=choose(found, wanted="auto", nvme_volume=SMALL, ebs_volume=TUNED),
        sharing=Sharing(),
        metrics=True,
    )
    return replace(spec, **changes)


def on(kind: str) -> Storage:
    volume = SMALL if kind == "nvme" else TUNED
    return Storage(kind=kind, rate_mb_s=1.0, capacity_bytes=10**12, reason="a test says so", volume=volume)  # type: ignore[arg-type]


def settings(spec: NodeSpec) -> dict[str, Any]:
    return tomllib.loads(user_data(spec))["settings"]


# ---- parallel pull --------------------------------------------------------------------------------------------------


def test_the_snapshotter_is_switched_on_with_its_whole_tuning() -> None:
    """Switched on alone it does three downloads, one unpack and whole layers: almost no gain."""
    for name in GPU_TYPES:
        spec = node(name)
        found = settings(spec)
        assert found["container-runtime"] == {"snapshotter": "soci"}
        assert found["container-runtime-plugins"] == {
            "soci-snapshotter": {
                "pull-mode": "parallel-pull-unpack",
                "parallel-pull-unpack": {
                    "max-concurrent-downloads-per-image": spec.soci.downloads.value,
                    "concurrent-download-chunk-size": f"{spec.soci.chunk_mib.value}MiB",
                    "max-concurrent-unpacks-per-image": spec.soci.unpacks.value,
                    "discard-unpacked-layers": True,
                },
            }
        }


def test_caps_over_all_images_are_written_where_asked_for() -> None:
    asked = Tuning(
        downloads=Tuned(value=10, reason="asked for"),
        unpacks=Tuned(value=3, reason="asked for"),
        chunk_mib=Tuned(value=32, reason="asked for"),
        downloads_all=40,
        unpacks_all=6,
        discard=False,
    )
    pull = settings(node(soci=asked))["container-runtime-plugins"]["soci-snapshotter"]["parallel-pull-unpack"]
    assert pull == {
        "max-concurrent-downloads": 40,
        "max-concurrent-downloads-per-image": 10,
        "concurrent-download-chunk-size": "32MiB",
        "max-concurrent-unpacks": 6,
        "max-concurrent-unpacks-per-image": 3,
        "discard-unpacked-layers": False,
    }


# ---- where the bytes go ---------------------------------------------------------------------------------------------


def test_nvme_is_bound_before_anything_is_written() -> None:
    """`init` before `bind`, and again after every stop: after `once`, images would silently go to the data volume."""
    for name in GPU_TYPES:
        if not instance(name).nvme_disks:
            continue
        commands = settings(node(name, storage=on("nvme")))["bootstrap-commands"]
        assert commands == {
            "coldstart-storage": {
                "commands": [
                    ["apiclient", "ephemeral-storage", "init"],
                    [
                        "apiclient",
                        "ephemeral-storage",
                        "bind",
                        "--dirs",
                        "/var/lib/containerd",
                        "/var/lib/kubelet",
                        "/var/lib/soci-snapshotter",
                        "/var/log/pods",
                    ],
                ],
                "essential": True,
                "mode": "always",
            }
        }


def test_on_ebs_nothing_runs_at_boot() -> None:
    for name in GPU_TYPES:
        assert "bootstrap-commands" not in settings(node(name, storage=on("ebs")))


# ---- kubelet, metrics -----------------------------------------------------------------------------------------------


def test_the_kubelet_collects_images_before_it_evicts_pods() -> None:
    assert settings(node())["kubernetes"] == {
        "image-gc-high-threshold-percent": "80",
        "image-gc-low-threshold-percent": "75",
        "container-log-max-size": "50Mi",
        "container-log-max-files": 3,
    }


def test_labels_and_taints_are_left_to_the_node_group() -> None:
    kubernetes = settings(node())["kubernetes"]
    assert not {"node-labels", "node-taints", "cluster-name", "api-server", "cluster-certificate"} & kubernetes.keys()


@pytest.mark.parametrize("metrics", [True, False])
def test_metrics_are_off_where_they_could_not_be_sent(*, metrics: bool) -> None:
    found = settings(node(metrics=metrics))
    assert found.get("metrics") == (None if metrics else {"send-metrics": False})


# ---- sharing --------------------------------------------------------------------------------------------------------


def test_nothing_is_shared_unless_asked_for() -> None:
    assert "kubelet-device-plugins" not in settings(node())


@pytest.mark.parametrize("storage", ["nvme", "ebs"])
@pytest.mark.parametrize("metrics", [True, False])
def test_time_slicing(storage: str, *, metrics: bool) -> None:
    """Never renamed: the cluster autoscaler looks for nvidia.com/gpu on every node with an accelerator's label."""
    found = settings(node(storage=on(storage), metrics=metrics, sharing=Sharing(time_slicing=4)))
    assert found["kubelet-device-plugins"] == {
        "nvidia": {
            "device-sharing-strategy": "time-slicing",
            "time-slicing": {"replicas": 4, "rename-by-default": False},
        }
    }


@pytest.mark.parametrize(("name", "key"), MIG_TYPES.items())
@pytest.mark.parametrize("profile", ["7", "2"])
def test_mig(name: str, key: str, profile: str) -> None:
    found = settings(node(name, metrics=False, sharing=Sharing(mig_profile=profile)))
    assert found["kubelet-device-plugins"] == {
        "nvidia": {"device-partitioning-strategy": "mig", "mig": {"profile": {key: profile}}}
    }
    assert found["metrics"] == {"send-metrics": False}


def test_mig_is_refused_where_bottlerocket_has_no_settings_for_it() -> None:
    for name in sorted(set(GPU_TYPES) - MIG_TYPES.keys()):
        with pytest.raises(BadInput) as caught:
            user_data(node(name, sharing=Sharing(mig_profile="1g.10gb")))
        assert str(caught.value) == (
            f"model.nodes.gpu_sharing.mig_profile: {instance(name).gpu} of {name} has no MIG settings. "
            "MIG is for A100, H100, H200."
        )


@pytest.mark.parametrize(
    ("name", "profile", "parts"),
    [
        ("p4d.24xlarge", "1g.5gb", 7),
        ("p4d.24xlarge", "1g.10gb", 4),
        ("p4d.24xlarge", "2g.10gb", 3),
        ("p5.48xlarge", "1g.10gb", 7),
        ("p5.48xlarge", "1g.20gb", 4),
        ("p5.48xlarge", "3g.40gb", 2),
        ("p5.48xlarge", "4g.40gb", 1),
        ("p5.48xlarge", "7g.80gb", 1),
        ("p5en.48xlarge", "1g.18gb", 7),
        ("p5en.48xlarge", "1g.35gb", 4),
        ("p5en.48xlarge", "3g.71gb", 2),
        ("p5.48xlarge", "7", 7),
    ],
)
def test_parts_of_a_gpu_are_those_of_nvidias_tables(name: str, profile: str, parts: int) -> None:
    assert Sharing(mig_profile=profile).pods_per_gpu(instance(name)) == parts


def test_a_part_that_the_gpu_is_not_cut_into_is_refused() -> None:
    with pytest.raises(BadInput) as refused:
        user_data(node("p5en.48xlarge", sharing=Sharing(mig_profile="3g.40gb")))
    assert str(refused.value) == (
        "model.nodes.gpu_sharing.mig_profile: 3g.40gb is no part of the H200 of p5en.48xlarge. "
        "It has 1g.18gb, 1g.35gb, 2g.35gb, 3g.71gb, 4g.71gb, 7g.141gb."
    )


def test_mig_and_time_slicing_exclude_each_other() -> None:
    with pytest.raises(BadInput) as caught:
        user_data(node("p5.48xlarge", sharing=Sharing(mig_profile="1g.10gb", time_slicing=2)))
    assert str(caught.value) == (
        "model.nodes.gpu_sharing: both time_slicing and mig_profile are set. Choose one way of sharing a GPU."
    )


# ---- releases -------------------------------------------------------------------------------------------------------


@given(release=st.tuples(st.integers(0, 2), st.integers(0, 99), st.integers(0, 9)))
def test_releases_that_can_not_bind_the_snapshotters_directory_are_refused(release: tuple[int, int, int]) -> None:
    spec = node(release=release)
    if release >= (1, 46, 0):
        assert user_data(spec)
        return
    with pytest.raises(BadInput) as caught:
        user_data(spec)
    version = ".".join(map(str, release))
    assert str(caught.value) == (f"bottlerocket_release: {version} can't bind SOCI's directory. Use 1.46.0 or newer.")


# ---- what EKS's merger loses ----------------------------------------------------------------------------------------


@given(
    name=st.sampled_from(GPU_TYPES),
    storage=st.sampled_from(["nvme", "ebs"]),
    metrics=st.booleans(),
    time_slicing=st.one_of(st.none(), st.integers(2, 48)),
    layers=st.lists(st.integers(1, 10**10), min_size=1, max_size=40),
)
def test_whatever_the_spec_the_merger_keeps_all_of_it(
    name: str, storage: str, *, metrics: bool, time_slicing: int | None, layers: list[int]
) -> None:
    spec = node(
        name,
        soci=tune(instance(name), layers),
        storage=on(storage),
        metrics=metrics,
        sharing=Sharing(time_slicing=time_slicing),
    )
    text = user_data(spec)
    assert check_mergeable(text) == tomllib.loads(text)
    assert text.endswith("\n")
    assert "\n\n\n" not in text
    assert "MIME" not in text  # plain TOML: a multipart document is read as nothing


LOST = {
    "a header with a quoted key": '[settings.kubernetes.node-labels."a.b/c"]\nx = "1"\n',
    "an indented header with a quoted key": '  [settings.kubernetes."a.b"]\nx = "1"\n',
    "a header with a key in single quotes": "[settings.kubernetes.'a.b']\nx = \"1\"\n",
    "a table of an array with a quoted key": '[[settings."a.b"]]\nx = "1"\n',
    "an escaped quote in a value": '[settings.motd]\nx = "say \\"hello\\""\n',
    "a quote in a value of single quotes": "[settings.motd]\nx = 'say \"hello\"'\n",
    "a quote written as its code point": '[settings.motd]\nx = "say \\u0022hello"\n',
    "a quote inside a quoted key": "[settings.motd]\n'a\"b' = 1\n",
    "integers and floats in one array": "[settings.x]\ny = [1, 2.5]\n",
    "integers and text in one array": '[settings.x]\ny = [1, "2"]\n',
    "a mixed array inside an array": "[settings.x]\ny = [[1, 2], [1, 2.5]]\n",
    "a mixed array inside a table of an array": "[settings.x]\ny = [{z = [1, 2.5]}]\n",
    "no TOML at all": "[settings\n",
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in LOST.items()])
def test_what_the_merger_loses_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words differ, the refusal is the point
        check_mergeable(text)


KEPT = {
    "quoted keys below a plain header": '[settings.kubernetes.node-labels]\n"a.b/c" = "1"\n',
    "commands over several lines": '[settings.x]\ny = [\n["a", "b"],\n["c"],\n]\n',
    "arrays of one type": "[settings.x]\ny = [1, 2, 3]\nz = [1.5, 2.5]\n",
}


@pytest.mark.parametrize(
    "text",
    [pytest.param(text, id=name) for name, text in KEPT.items()],
)
def test_what_the_merger_keeps_passes(text: str) -> None:
    assert check_mergeable(text) == tomllib.loads(text)


# ---- reasons --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metrics", [True, False])
def test_every_tuned_value_has_its_reason(*, metrics: bool) -> None:
    for name in GPU_TYPES:
        spec = node(name, metrics=metrics)
        rows = {row.key: row for row in reasons(spec)}
        assert all(row.value and row.why for row in rows.values())
        document = user_data(spec)
        for key in (
            "snapshotter",
            "max-concurrent-downloads-per-image",
            "concurrent-download-chunk-size",
            "max-concurrent-unpacks-per-image",
            "discard-unpacked-layers",
            "image-gc-high-threshold-percent",
            "container-log-max-size",
        ):
            assert f'{key} = "{rows[key].value}"' in document or f"{key} = {rows[key].value}\n" in document
        assert rows["images on"].value == spec.storage.kind
        assert rows["images on"].why == spec.storage.reason
        assert ("bootstrap mode" in rows) == (spec.storage.kind == "nvme")
        assert ("send-metrics" in rows) == (not metrics)


def test_reasons_say_what_the_data_volume_is_for() -> None:
    nvme = {row.key: row for row in reasons(node("g6e.2xlarge"))}["data volume"]
    assert (nvme.value, nvme.why) == (
        "20 GiB gp3, 3000 IOPS, 125 MiB/s",
        "holds nothing hot: images and pods are on NVMe",
    )
    ebs = {row.key: row for row in reasons(node("g6.4xlarge"))}["data volume"]
    assert (ebs.value, ebs.why) == ("100 GiB gp3, 4000 IOPS, 1000 MiB/s", "g6.4xlarge sustains 1000 MB/s of EBS")
    io2 = Volume(kind="io2", size_gib=200, iops=20_000, throughput_mib_s=None)
    spec = node("p5.48xlarge", storage=replace(on("ebs"), volume=io2))
    assert {row.key: row.value for row in reasons(spec)}["data volume"] == "200 GiB io2, 20000 IOPS"


@pytest.mark.parametrize("unset", ["downloads", "unpacks"])
def test_a_reason_is_shown_for_a_value_somebody_asked_for(unset: str) -> None:
    asked = replace(node().soci, **{unset: Tuned(value=2, reason="asked for")})
    key = f"max-concurrent-{unset}-per-image"
    row = {row.key: row for row in reasons(node(soci=asked))}[key]
    assert (row.value, row.why) == ("2", "asked for")
