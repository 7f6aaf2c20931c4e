"""The engine image: which layers it has, as far as anyone knows, and what pulling them takes."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import cast

from budget.coefficients import Coefficients
from budget.counted import counted
from budget.disk import disk_rate
from budget.estimate import NONE, Estimate, spread
from budget.instances import GBPS_TO_BYTES_S, Instance
from budget.node import node_phase
from budget.pull import Layer, PullHost, PullSettings, PullTrace, pull
from budget.scenario import ImageCase, LayerCase, Scenario
from budget.tables import document

TYPICAL_LAYERS = 12
TYPICAL_FAT_INDEX = 6
"""A typical engine image: a base, a dozen layers, and in the middle one that holds the Python packages."""
ORDERS = 16
"""Default containerd lets its layers race for download slots: this many fixed shuffles stand for the race."""
LEAST_KEPT = 0.05
"""Of a layer, however much of it does not belong there: folders, links, what no rule knows."""
DIRTY_SHARE = 0.15
"""Share of available memory that may hold unwritten data before writers are slowed (Linux: between 10 and 20 %)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownImage:
    """A published image. `layers` is empty: sizes come from its manifest."""

    repository: str
    tag: str
    bytes: int
    source: str


@cache
def known_images() -> Mapping[str, KnownImage]:
    """Published images by `repository:tag`."""
    entries = cast("Sequence[Mapping[str, str | int]]", document("images.json")["images"])
    images = [
        KnownImage(
            repository=str(entry["repository"]),
            tag=str(entry["tag"]),
            bytes=int(entry["bytes"]),
            source=str(entry["source"]),
        )
        for entry in entries
    ]
    return MappingProxyType({f"{image.repository}:{image.tag}": image for image in images})


def typical_layers(total_bytes: float, coefficients: Coefficients) -> tuple[LayerCase, ...]:
    """The split assumed when nobody has read the manifest: one fat layer among small ones of equal size."""
    fat = coefficients["typical_fat_share"] * total_bytes
    small = (total_bytes - fat) / (TYPICAL_LAYERS - 1)
    return tuple(LayerCase(bytes=fat if index == TYPICAL_FAT_INDEX else small) for index in range(TYPICAL_LAYERS))


def even_layers(total_bytes: float, unpacked_bytes: float, count: int = TYPICAL_LAYERS) -> tuple[LayerCase, ...]:
    """The same bytes cut into equal layers."""
    return tuple(LayerCase(bytes=total_bytes / count, unpacked_bytes=unpacked_bytes / count) for _ in range(count))


def layers_of(image: ImageCase, coefficients: Coefficients) -> tuple[Layer, ...]:
    """Layers with both sizes: as given, else the typical split at the image's ratio."""
    ratio = image.unpack_ratio or coefficients["unpack_ratio"]
    cases = image.layers if image.layers is not None else typical_layers(image.bytes, coefficients)
    return tuple(
        Layer(
            bytes=layer.bytes,
            unpacked_bytes=layer.bytes * ratio if layer.unpacked_bytes is None else layer.unpacked_bytes,
        )
        for layer in cases
    )


def without_waste(layers: Sequence[LayerCase]) -> tuple[LayerCase, ...]:
    """The same layers once what was found in them is gone; of each a twentieth stays."""
    return tuple(
        replace(
            layer,
            bytes=layer.bytes * kept,
            unpacked_bytes=None if layer.unpacked_bytes is None else layer.unpacked_bytes * kept,
            waste_bytes=0.0,
        )
        for layer in layers
        if (kept := max(LEAST_KEPT, 1 - (layer.waste_bytes or 0.0) / layer.bytes))
    )


def unpacked_bytes(image: ImageCase, coefficients: Coefficients) -> float:
    """Bytes of the image on disk."""
    return sum(layer.unpacked_bytes for layer in layers_of(image, coefficients))


# --- the node as a pull sees it ---------------------------------------------------------------------------------------


def settings_of(scenario: Scenario) -> PullSettings:
    """The simulator's settings."""
    case = scenario.pull
    return PullSettings(
        snapshotter=case.snapshotter,
        downloads=case.downloads,
        unpacks=case.unpacks,
        chunk_bytes=case.chunk_bytes,
        discard=case.discards,
    )


def host_of(scenario: Scenario, coefficients: Coefficients, *, burst: bool = False) -> PullHost:
    """What the node gives a pull: measured factors where there are any, else the instance table and the shipped ones.

    Args:
        scenario: the what-if.
        coefficients: machine factors.
        burst: rates of "up to" types while their credits last, instead of what they sustain.
    """
    host, instance = scenario.host, scenario.instance
    decompressor = _decompressor(scenario)
    speed = coefficients["unpack_speed"]
    layer = (host.unpack_layer_mb_s or speed * coefficients[f"unpack_{decompressor}_mb_s"]) * 1e6
    cpu = host.unpack_cpu_s_per_gb
    cpu_s_per_byte = (coefficients[f"unpack_{decompressor}_cpu_s_per_gb"] / speed if cpu is None else cpu) / 1e9
    download = min(coefficients["download_cpu_s_per_gb"] / speed / 1e9, cpu_s_per_byte)
    layers = layers_of(scenario.image, coefficients)
    ratio = sum(item.unpacked_bytes for item in layers) / max(1.0, sum(item.bytes for item in layers))
    return PullHost(
        cores=host.cores or instance.vcpu,
        network_bytes_s=_network_bytes_s(scenario, coefficients, burst=burst),
        connection_bytes_s=_connection_bytes_s(scenario, coefficients),
        unpack_bytes_s=layer,
        # The measured figure is what the whole pull costs per byte of output; downloads are part of it.
        unpack_cpu_s_per_byte=max(0.0, cpu_s_per_byte - download / max(ratio, 1.0)),
        download_cpu_s_per_byte=download,
        disk_bytes_s=_disk_bytes_s(scenario, burst=burst),
        dirty_bytes=_dirty_bytes(scenario),
        latency_s=coefficients["pull_latency_s"],
    )


def _decompressor(scenario: Scenario) -> str:
    # igzip is x86 only: Bottlerocket ships unpigz on arm64.
    asked = scenario.pull.decompressor
    return "unpigz" if asked == "igzip" and scenario.instance.arch == "arm64" else asked


def _network_bytes_s(scenario: Scenario, coefficients: Coefficients, *, burst: bool) -> float:
    if scenario.host.network_mb_s:
        return scenario.host.network_mb_s * 1e6
    return network_gbps(scenario.instance, burst=burst) * GBPS_TO_BYTES_S * coefficients["network_efficiency"]


def network_gbps(instance: Instance, *, burst: bool) -> float:
    """What one pod's traffic gets, Gbps."""
    return instance.plan_network_peak_gbps if burst else instance.plan_network_gbps


def _connection_bytes_s(scenario: Scenario, coefficients: Coefficients) -> float:
    if scenario.host.connection_mb_s:
        return scenario.host.connection_mb_s * 1e6
    if scenario.image.registry == "docker-hub":
        return coefficients["docker_hub_connection_mb_s"] * 1e6
    ranged = scenario.pull.chunk_bytes is not None
    return coefficients["ecr_ranged_connection_mb_s" if ranged else "ecr_connection_mb_s"] * 1e6


def _disk_bytes_s(scenario: Scenario, *, burst: bool) -> float:
    if scenario.host.disk_mb_s:
        return scenario.host.disk_mb_s * 1e6
    rate = disk_rate(scenario.disk, scenario.instance)
    return (rate.burst_mb_s if burst else rate.sustained_mb_s) * 1e6


def _dirty_bytes(scenario: Scenario) -> float:
    if scenario.host.dirty_bytes is not None:
        return scenario.host.dirty_bytes
    return DIRTY_SHARE * (scenario.host.memory_bytes or scenario.instance.memory_bytes)


# --- the phase --------------------------------------------------------------------------------------------------------


@cache
def _orders(layers: int) -> tuple[tuple[int, ...], ...]:
    """Image order first, then fixed shuffles: the same scenario gives the same budget."""
    dice = random.Random(layers)  # noqa: S311 - a repeatable shuffle, nothing secret
    shuffles = [tuple(dice.sample(range(layers), layers)) for _ in range(ORDERS - 1)] if layers > 1 else []
    return (tuple(range(layers)), *shuffles)


def _traces(scenario: Scenario, coefficients: Coefficients, *, burst: bool) -> list[PullTrace]:
    layers, settings = layers_of(scenario.image, coefficients), settings_of(scenario)
    host = host_of(scenario, coefficients, burst=burst)
    orders = _orders(len(layers)) if settings.snapshotter == "overlayfs" else _orders(len(layers))[:1]
    return [pull(layers, settings, host, order=order) for order in orders]


def pull_phase(scenario: Scenario, coefficients: Coefficients) -> Estimate:
    """Image pull: download and unpack; what is left of fetching a snapshot when the node has the image.

    Expected is the sustained rate of "up to" types; low adds their burst. Default containerd's random download order
    gives the rest of the band. The spread beyond that comes from the calibration cases: wider when the host's factors
    were not measured, widest when the layers are a typical split.
    """
    if scenario.image.cached:
        return _hydration(scenario, coefficients)
    traces = _traces(scenario, coefficients, burst=False)
    best = _traces(scenario, coefficients, burst=True) if _bursts(scenario) else traces
    expected = sum(trace.seconds for trace in traces) / len(traces)
    middle = min(traces, key=lambda trace: abs(trace.seconds - expected))
    worst = max(trace.seconds for trace in traces)
    factor = coefficients[_spread_name(scenario)]
    return spread(
        expected,
        factor,
        low_s=min(trace.seconds for trace in best),
        high_s=worst,
        bound_by=_words(scenario, coefficients, middle),
        detail=_detail(scenario, coefficients, middle),
    )


def _hydration(scenario: Scenario, coefficients: Coefficients) -> Estimate:
    """What is left of fetching a snapshot's blocks once the node is Ready. Both begin at the launch."""
    rate_mib_s = scenario.image.hydration_mib_s
    if rate_mib_s is None or scenario.node.warm:
        return NONE
    whole_s = unpacked_bytes(scenario.image, coefficients) / (rate_mib_s * 2**20)
    node = node_phase(scenario, coefficients)
    return Estimate(
        low_s=max(0.0, whole_s - node.high_s),
        expected_s=max(0.0, whole_s - node.expected_s),
        high_s=max(0.0, whole_s - node.low_s),
        bound_by=f"a volume that fetches its snapshot at {rate_mib_s:g} MiB/s, {whole_s:.0f} s from the launch",
        detail={"hydration_s": round(whole_s, 3), "hydration_mib_s": rate_mib_s},
    )


def _bursts(scenario: Scenario) -> bool:
    instance = scenario.instance
    network = instance.plan_network_peak_gbps > instance.plan_network_gbps and scenario.host.network_mb_s is None
    disk = scenario.host.disk_mb_s is None and (
        scenario.disk.kind == "nvme" or instance.ebs_max_mb_s > instance.ebs_baseline_mb_s
    )
    return network or disk


def _spread_name(scenario: Scenario) -> str:
    if scenario.image.layers is None:
        return "spread_pull_typical_split"
    measured = scenario.host.unpack_layer_mb_s is not None and scenario.host.connection_mb_s is not None
    return "spread_pull_measured_host" if measured else "spread_pull"


def _detail(scenario: Scenario, coefficients: Coefficients, trace: PullTrace) -> dict[str, float | str | bool | None]:
    layers, host = layers_of(scenario.image, coefficients), host_of(scenario, coefficients)
    largest = max(layer.bytes for layer in layers)
    return {
        "image_bytes": round(sum(layer.bytes for layer in layers)),
        "unpacked_bytes": round(sum(layer.unpacked_bytes for layer in layers)),
        "layers": len(layers),
        "layers_known": scenario.image.layers is not None,
        "largest_layer_bytes": round(largest),
        "downloaded_s": round(trace.downloaded_s, 3),
        "network_mb_s": _finite(host.network_bytes_s / 1e6),
        "network_baseline_gbps": scenario.instance.plan_network_gbps,
        "network_peak_gbps": scenario.instance.plan_network_peak_gbps,
        "connection_mb_s": _finite(host.connection_bytes_s / 1e6),
        "unpack_layer_mb_s": _finite(host.unpack_bytes_s / 1e6),
        "unpack_cpu_s_per_gb": round(host.unpack_cpu_s_per_byte * 1e9, 3),
        "cores": host.cores,
        "disk_mb_s": _finite(host.disk_bytes_s / 1e6),
        "dirty_bytes": _finite(host.dirty_bytes),
    }


def _finite(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None


def _words(scenario: Scenario, coefficients: Coefficients, trace: PullTrace) -> str:
    """The binding constraint of the pull, for a person."""
    host, settings = host_of(scenario, coefficients), settings_of(scenario)
    if trace.bound_by == "unpack":
        return _unpack_words(layers_of(scenario.image, coefficients)[trace.last_layer], settings, host)
    connections = settings.downloads
    if settings.chunk_bytes is None:
        connections = min(connections, len(layers_of(scenario.image, coefficients)))
    return {
        "connection": f"{counted(connections, 'connection')} of {host.connection_bytes_s / 1e6:.3g} MB/s",
        "network": f"the network, {host.network_bytes_s / 1e6:.0f} MB/s",
        "disk": f"the disk, {host.disk_bytes_s / 1e6:.0f} MB/s for compressed and unpacked bytes",
        "cpu": f"{host.cores:g} cores unpack at {host.unpack_cpu_s_per_byte * 1e9:.1f} core-seconds per GB",
    }.get(trace.bound_by, trace.bound_by)


def _unpack_words(last: Layer, settings: PullSettings, host: PullHost) -> str:
    rate = f"{host.unpack_bytes_s / 1e6:.0f} MB/s"
    if settings.in_order:
        return f"layers are unpacked one after another at {rate}"
    if settings.unpacks == 1:
        return f"one unpack at a time, {rate}"
    return f"one layer of {last.bytes / 1e9:.2g} GB inflates on one core at {rate}"
