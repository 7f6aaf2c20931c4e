"""Bottlerocket user data of a GPU node: one frozen spec in, plain TOML out, parsed back before it is returned."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined

from budget.instances import Instance
from budget.problems import BadInput, Problem
from nodeconfig.soci import Tuning
from nodeconfig.storage import BOUND_DIRECTORIES, Storage

BIND_SOCI_SINCE = (1, 46, 0)
"""First release whose `bind` moves SOCI's directory too (its changelog)."""

IMAGE_GC_HIGH_PERCENT, IMAGE_GC_LOW_PERCENT = 80, 75
"""The kubelet evicts pods at 85 % full: unused images must go before that."""
CONTAINER_LOG_MAX_SIZE, CONTAINER_LOG_MAX_FILES = "50Mi", 3
"""A start's log lines are the ledger's evidence; the default of 10 MiB is rotated away by a chatty engine."""

MIG_GPUS: Mapping[tuple[str, int], str] = {
    ("A100", 40): "a100.40gb",
    ("A100", 80): "a100.80gb",
    ("H100", 80): "h100.80gb",
    ("H200", 141): "h200.141gb",
}
"""GPU and its memory in GiB as the API reports it → the key Bottlerocket's MIG settings use."""

_PARTS_OF_80_GB = {"1g.10gb": 7, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}
MIG_PROFILES: Mapping[str, Mapping[str, int]] = {
    "a100.40gb": {"1g.5gb": 7, "1g.10gb": 4, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1},
    "a100.80gb": _PARTS_OF_80_GB,
    "h100.80gb": _PARTS_OF_80_GB,
    "h200.141gb": {"1g.18gb": 7, "1g.35gb": 4, "2g.35gb": 3, "3g.71gb": 2, "4g.71gb": 1, "7g.141gb": 1},
}
"""GPU → profile → instances of it on one GPU (NVIDIA, MIG user guide, supported profiles)."""

_STRINGS = re.compile(r"""\"(?:[^"\\\\]|\\\\.)*\"|'[^']*'""")
"""A TOML string on one line."""
_TEMPLATES = Environment(
    loader=PackageLoader("nodeconfig"),
    undefined=StrictUndefined,
    autoescape=False,  # noqa: S701 - renders TOML from validated values; HTML escaping would corrupt it
    keep_trailing_newline=True,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharing:
    """How pods share a GPU; at most one of the two."""

    time_slicing: int | None = None
    mig_profile: str | None = None

    def pods_per_gpu(self, instance: Instance) -> int:
        """How often the device plugin counts a GPU: by turns, or by the instances that a MIG profile cuts it into."""
        if self.time_slicing:
            return self.time_slicing
        if self.mig_profile is None:
            return 1
        if self.mig_profile.isdigit():
            return int(self.mig_profile)
        return MIG_PROFILES.get(_mig_gpu(instance), {}).get(self.mig_profile, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSpec:
    """What a GPU node boots with.

    Attributes:
        release: Bottlerocket release, as numbers.
        instance: EC2 instance type.
        soci: parallel pull tuning.
        storage: where images live.
        sharing: how pods share a GPU.
        metrics: whether the OS may report to Bottlerocket's makers, which needs egress.
    """

    release: tuple[int, int, int]
    instance: Instance
    soci: Tuning
    storage: Storage
    sharing: Sharing
    metrics: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """Why a value of the user data is what it is."""

    key: str
    value: str
    why: str


def user_data(spec: NodeSpec) -> str:
    """The user data of a node.

    Raises:
        BadInput: the release lacks a setting that the spec needs, or the instance can't be shared as asked.
    """
    if found := refusals(spec):
        raise BadInput(found)
    text = _TEMPLATES.get_template("user-data.toml.j2").render(
        soci=spec.soci,
        storage=spec.storage,
        sharing=spec.sharing,
        metrics=spec.metrics,
        mig_gpu=_mig_gpu(spec.instance),
        bound_directories=BOUND_DIRECTORIES,
        image_gc_high_percent=IMAGE_GC_HIGH_PERCENT,
        image_gc_low_percent=IMAGE_GC_LOW_PERCENT,
        container_log_max_size=CONTAINER_LOG_MAX_SIZE,
        container_log_max_files=CONTAINER_LOG_MAX_FILES,
    )
    check_mergeable(text)
    return text


def check_mergeable(text: str) -> Mapping[str, Any]:
    """Parses user data back and refuses what EKS's merger is known to lose.

    Raises:
        ValueError: not TOML, a bracketed header with a quoted key, a quote inside a key or a value, or an array of
            mixed types.
    """
    parsed = tomllib.loads(text)
    for number, header in _headers(text):
        if '"' in header or "'" in header:
            raise ValueError(f"user data line {number}: EKS loses headers with quoted keys: {header}")
    _check_values(parsed, "user data")
    return parsed


def _headers(text: str) -> Iterator[tuple[int, str]]:
    """Bracketed headers with their line numbers; a line inside an array that spans lines is none."""
    depth = 0
    for number, line in enumerate(text.splitlines(), start=1):
        bare = _STRINGS.sub("", line).partition("#")[0]
        if depth == 0 and bare.lstrip().startswith("["):
            yield number, line.strip()
        else:
            depth += bare.count("[") - bare.count("]")


def _check_values(value: object, path: str) -> None:
    match value:
        case str() if '"' in value:
            raise ValueError(f"{path}: EKS loses values with quotes in them: {value}")
        case dict():
            for key, item in cast("dict[str, object]", value).items():
                if '"' in key:
                    raise ValueError(f"{path}: EKS loses keys with quotes in them: {key}")
                _check_values(item, f"{path}.{key}")
        case list():
            items = cast("list[object]", value)
            if len({type(item) for item in items}) > 1:
                raise ValueError(f"{path}: EKS loses arrays of mixed types: {items}")
            for item in items:
                _check_values(item, path)
        case _:
            pass


def reasons(spec: NodeSpec) -> Sequence[Reason]:
    """Why each tuned value is what it is, in the order of the user data."""
    soci, storage = spec.soci, spec.storage
    rows = [
        Reason(
            key="snapshotter",
            value="soci",
            why="downloads layers in parts and unpacks several at once; containerd does one layer after another",
        ),
        Reason(key="max-concurrent-downloads-per-image", value=str(soci.downloads.value), why=soci.downloads.reason),
        Reason(key="concurrent-download-chunk-size", value=f"{soci.chunk_mib.value}MiB", why=soci.chunk_mib.reason),
        Reason(key="max-concurrent-unpacks-per-image", value=str(soci.unpacks.value), why=soci.unpacks.reason),
        Reason(
            key="discard-unpacked-layers", value="true", why="saves a third write of every byte and a sync per layer"
        ),
        Reason(key="images on", value=storage.kind, why=storage.reason),
        Reason(key="data volume", value=_volume(spec), why=_volume_reason(spec)),
        Reason(
            key="parallel image pulls",
            value="on",
            why="Bottlerocket's kubelet configuration has serializeImagePulls: false; there is no setting to write",
        ),
        Reason(
            key="image-gc-high-threshold-percent",
            value=str(IMAGE_GC_HIGH_PERCENT),
            why="below the 85 % at which the kubelet evicts pods",
        ),
        Reason(
            key="container-log-max-size",
            value=CONTAINER_LOG_MAX_SIZE,
            why="a start's log lines must outlive the start: they are the ledger's evidence",
        ),
    ]
    if storage.kind == "nvme":
        rows.append(
            Reason(
                key="bootstrap mode",
                value="always",
                why="instance store is empty after a stop: `once` would fall back to the data volume without a word",
            )
        )
    if not spec.metrics:
        rows.append(Reason(key="send-metrics", value="false", why="without egress every attempt would time out"))
    return rows


def _volume(spec: NodeSpec) -> str:
    volume = spec.storage.volume
    rate = f", {volume.throughput_mib_s} MiB/s" if volume.throughput_mib_s is not None else ""
    return f"{volume.size_gib} GiB {volume.kind}, {volume.iops} IOPS{rate}"


def _volume_reason(spec: NodeSpec) -> str:
    if spec.storage.kind == "nvme":
        return "holds nothing hot: images and pods are on NVMe"
    return f"{spec.instance.name} sustains {spec.instance.ebs_baseline_mb_s:g} MB/s of EBS"


def refusals(spec: NodeSpec) -> Sequence[Problem]:
    """What this node can't be: the release lacks a setting, or the GPU can't be shared as asked."""
    return [*_release_refusal(spec), *_sharing_refusals(spec)]


def _release_refusal(spec: NodeSpec) -> Iterator[Problem]:
    if spec.release < BIND_SOCI_SINCE:
        version, first = (".".join(map(str, release)) for release in (spec.release, BIND_SOCI_SINCE))
        yield Problem("bottlerocket_release", f"{version} can't bind SOCI's directory", f"Use {first} or newer.")


def _sharing_refusals(spec: NodeSpec) -> Iterator[Problem]:
    profile, where = spec.sharing.mig_profile, "model.nodes.gpu_sharing.mig_profile"
    if profile is None:
        return
    if spec.sharing.time_slicing:
        words = "both time_slicing and mig_profile are set"
        yield Problem("model.nodes.gpu_sharing", words, "Choose one way of sharing a GPU.")
    gpu = _mig_gpu(spec.instance)
    if not gpu:
        words = f"{spec.instance.gpu} of {spec.instance.name} has no MIG settings"
        yield Problem(where, words, f"MIG is for {', '.join(sorted({gpu for gpu, _ in MIG_GPUS}))}.")
    elif profile not in MIG_PROFILES[gpu] and not profile.isdigit():
        yield Problem(
            where,
            f"{profile} is no part of the {spec.instance.gpu} of {spec.instance.name}",
            f"It has {', '.join(MIG_PROFILES[gpu])}.",
        )


def _mig_gpu(instance: Instance) -> str:
    return MIG_GPUS.get((instance.gpu, instance.gpu_memory_mib // 1024), "")
