"""Levers: one setting each, tried on a scenario by planning it again with the lever pulled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from budget.coefficients import Coefficients
from budget.cost import DEFAULT_TERMS, Cost, Terms, cost_of
from budget.disk import GP3_IOPS_PER_MIB_S, GP3_TUNED_MIB_S, SOCI_FLOOR_MIB_S, Disk, disk_rate
from budget.feasibility import FP8_WEIGHT_ONLY, quantization_of
from budget.image import TYPICAL_LAYERS, even_layers, layers_of, unpacked_bytes, without_waste
from budget.instances import MIB_S_TO_MB_S, instances
from budget.phases import Budget, budget_of
from budget.scenario import LayerCase, PullCase, Scenario

GP3_TUNED = Disk(kind="gp3", throughput_mib_s=GP3_TUNED_MIB_S, iops=GP3_IOPS_PER_MIB_S * GP3_TUNED_MIB_S)
SLIM_SHARE = 0.6
"""A slim multi-stage engine image against a stock one. The wheels of vLLM alone are 4.3 GB, a stock image 9 to 11."""
FEW_CAPTURE_SIZES = 11
"""Graph sizes that cover 64 concurrent requests: 1, 2, 4, then every 8."""
EVEN_ENOUGH = 1.5
"""A largest layer within this multiple of the mean leaves nothing to re-balance."""
HYDRATION_MIB_S = 300.0
"""The fastest rate at which EBS fetches a volume's snapshot (EBS documentation: 100 to 300 MiB/s)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lever:
    """One setting.

    Attributes:
        name: stable, for machines.
        what: what to change, for people.
        pull: the scenario with it pulled; None when it already is, or does not apply.
        keeps_node: a node runs on between starts, which the re-planned scenario does not show.
        billed: how it is paid where no table has its price.
    """

    name: str
    what: str
    pull: Callable[[Scenario, Coefficients], Scenario | None]
    keeps_node: bool = False
    billed: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """What a lever does.

    Attributes:
        saves_s: expected seconds; negative when it makes the start slower.
        usd_per_hour: change of the hourly bill; None without a price.
        phase: the phase that changes most.
        billed: how it is paid where no table has its price, or an empty string.
    """

    lever: str
    what: str
    saves_s: float
    usd_per_hour: float | None
    phase: str
    billed: str = ""


# --- pull -------------------------------------------------------------------------------------------------------------


def _soci(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    del coefficients
    if scenario.image.cached or scenario.pull.snapshotter == "soci":
        return None
    return replace(scenario, pull=_tuned(scenario))


def _soci_tuning(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    del coefficients
    pull, tuned = scenario.pull, _tuned(scenario)
    if scenario.image.cached or pull.snapshotter != "soci":
        return None
    untuned = (
        pull.downloads < tuned.downloads
        or pull.unpacks < tuned.unpacks
        or pull.chunk_bytes is None
        or not pull.discards
    )
    return replace(scenario, pull=tuned) if untuned else None


def _tuned(scenario: Scenario) -> PullCase:
    """20 downloads of 16 MB chunks and as many unpacks as cores carry (ECR's and AL2023's published advice)."""
    unpacks = min(12, max(2, scenario.instance.vcpu // 2))
    return PullCase(
        snapshotter="soci",
        downloads=20,
        unpacks=unpacks,
        chunk_bytes=16_000_000,
        decompressor=scenario.pull.decompressor,
        discard=True,
    )


def _rebalanced(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    layers = layers_of(scenario.image, coefficients)
    largest = max(layer.bytes for layer in layers)
    count = max(TYPICAL_LAYERS, len(layers))
    if scenario.image.cached or largest <= EVEN_ENOUGH * scenario.image.bytes / count:
        return None
    even = even_layers(scenario.image.bytes, unpacked_bytes(scenario.image, coefficients), count)
    return replace(scenario, image=replace(scenario.image, layers=even))


def _slim(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    if scenario.image.cached:
        return None
    now, known = scenario.image, scenario.image.layers or ()
    if any(layer.waste_bytes is not None for layer in known):
        layers = without_waste(known)
    else:
        layers = tuple(
            LayerCase(bytes=layer.bytes * SLIM_SHARE, unpacked_bytes=layer.unpacked_bytes * SLIM_SHARE)
            for layer in layers_of(now, coefficients)
        )
    slim = replace(now, bytes=sum(layer.bytes for layer in layers), layers=layers if known else None)
    return replace(scenario, image=slim) if slim.bytes < now.bytes else None


def _zstd(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    del coefficients
    if scenario.image.cached or scenario.pull.decompressor == "zstd" or scenario.host.unpack_layer_mb_s:
        return None
    return replace(scenario, pull=replace(scenario.pull, decompressor="zstd"))


def _private_registry(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    del coefficients
    if scenario.image.cached or scenario.image.registry == "ecr":
        return None
    host = replace(scenario.host, connection_mb_s=None)
    return replace(scenario, image=replace(scenario.image, registry="ecr"), host=host)


def _image_snapshot(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    """A data volume that starts from a snapshot with the image on it. NVMe starts empty: nothing can bring it there."""
    del coefficients
    if scenario.image.cached or scenario.disk.kind == "nvme":
        return None
    return replace(scenario, image=replace(scenario.image, cached=True, hydration_mib_s=HYDRATION_MIB_S))


# --- disk and network -------------------------------------------------------------------------------------------------


def _uses_disk(scenario: Scenario) -> bool:
    """The start writes to or reads from the node's disk, and its rate is not a measured one."""
    on_disk = scenario.weights.path != "stream" or scenario.weights.source == "disk"
    return (not scenario.image.cached or on_disk) and scenario.host.disk_mb_s is None


def _nvme(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    del coefficients
    if scenario.disk.kind == "nvme" or not scenario.instance.nvme_disks or not _uses_disk(scenario):
        return None
    return replace(scenario, disk=Disk(kind="nvme"), disk_gib=None)


def _volume(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    del coefficients
    disk = scenario.disk
    tuned = disk.kind != "gp3" or disk.throughput_mib_s >= GP3_TUNED.throughput_mib_s
    if tuned or not _uses_disk(scenario):
        return None
    return replace(scenario, disk=GP3_TUNED)


def _bigger_network(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    del coefficients
    now = scenario.instance
    offers = [
        other
        for other in instances().values()
        if other.gpu == now.gpu
        and other.gpus == now.gpus
        and other.arch == now.arch
        and other.usd_per_hour is not None
        and other.plan_network_gbps > now.plan_network_gbps
        and (scenario.disk.kind != "nvme" or other.nvme_disks)
    ]
    if not offers or scenario.host.network_mb_s:
        return None
    return replace(scenario, instance=min(offers, key=lambda other: other.usd_per_hour or math.inf))


# --- weights and engine -----------------------------------------------------------------------------------------------


def _streaming(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    del coefficients
    if scenario.weights.path not in {"download", "shared-fs"}:
        return None
    weights = replace(
        scenario.weights,
        path="stream",
        source="s3",
        concurrency=max(32, scenario.weights.concurrency),
        distributed=scenario.ranks > 1,
    )
    return replace(scenario, weights=weights)


def _distributed(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    del coefficients
    if scenario.weights.path != "stream" or scenario.weights.distributed or scenario.ranks == 1:
        return None
    return replace(scenario, weights=replace(scenario.weights, distributed=True))


def _compile_cache(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    del coefficients
    if scenario.engine.eager or scenario.engine.compile_cache == "hit":
        return None
    return replace(scenario, engine=replace(scenario.engine, compile_cache="hit"))


def _capture_sizes(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    del coefficients
    if scenario.engine.eager or scenario.engine.capture_sizes <= FEW_CAPTURE_SIZES:
        return None
    return replace(scenario, engine=replace(scenario.engine, capture_sizes=FEW_CAPTURE_SIZES))


def _startup_plan(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    del coefficients
    version = scenario.engine.version
    if scenario.engine.startup_plan or version is None or version < (0, 28):
        return None
    return replace(scenario, engine=replace(scenario.engine, startup_plan=True))


def _eager(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    del coefficients
    return None if scenario.engine.eager else replace(scenario, engine=replace(scenario.engine, eager=True))


def _fp8(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    del coefficients
    board = scenario.instance.board
    if quantization_of(scenario) or board is None or board.compute_capability < FP8_WEIGHT_ONLY:
        return None
    # Facts of the FP8 checkpoint are not at hand: bytes are, the rest of the model stays.
    model = replace(scenario.model, weights_bytes=scenario.model.weights_bytes / 2)
    return replace(scenario, model=model)


def _warm_node(scenario: Scenario, coefficients: Coefficients) -> Scenario | None:
    del coefficients
    return None if scenario.node.warm else replace(scenario, node=replace(scenario.node, warm=True))


LEVERS = (
    Lever(name="soci", what="SOCI parallel pull, tuned, instead of default containerd", pull=_soci),
    Lever(name="soci-tuning", what="SOCI's whole tuning: 20 downloads, one unpack per two vCPUs, chunks,"
    " discard", pull=_soci_tuning),
    Lever(name="rebalance-layers", what="the same image re-cut into even layers", pull=_rebalanced),
    Lever(name="slim-image", what=f"a slim image: {SLIM_SHARE:.0%} of the bytes, or as `image inspect`"
    " found", pull=_slim),
    Lever(name="zstd", what="layers compressed with zstd", pull=_zstd),
    Lever(name="private-registry", what="the image in a private registry of the region", pull=_private_registry),
    Lever(name="nvme", what="images on the instance's NVMe", pull=_nvme),
    Lever(name="volume-throughput", what=f"gp3 at {GP3_TUNED_MIB_S:,} MiB/s", pull=_volume),
    Lever(name="bigger-network", what="the cheapest larger instance with the same GPUs", pull=_bigger_network),
    Lever(name="streaming", what="weights streamed from the bucket", pull=_streaming),
    Lever(name="distributed", what="ranks share one read of the weights", pull=_distributed),
    Lever(name="compile-cache", what="a kept compile cache", pull=_compile_cache),
    Lever(name="capture-sizes", what=f"{FEW_CAPTURE_SIZES} CUDA graph sizes", pull=_capture_sizes),
    Lever(name="startup-plan", what="a stored start-up plan instead of memory profiling", pull=_startup_plan),
    Lever(name="eager", what="eager mode, for development only", pull=_eager),
    Lever(name="fp8", what="an FP8 checkpoint", pull=_fp8),
    Lever(name="image-on-node", what=f"the image in the data volume's snapshot, fetched at {HYDRATION_MIB_S:g} MiB/s",
    pull=_image_snapshot, billed="by volume"),
    Lever(name="warm-node", what="a warm node", pull=_warm_node, keeps_node=True),
)  # fmt: skip
"""Every lever but the last one, the warm replica, which needs no plan."""


def effects(
    scenario: Scenario, budget: Budget, coefficients: Coefficients, terms: Terms = DEFAULT_TERMS
) -> list[Effect]:
    """What each lever not yet pulled would do, most seconds first."""
    before = cost_of(scenario, budget, terms)
    node = None if before.node_usd_per_hour is None else before.node_usd_per_hour / terms.nodes
    found = [_warm_replica(budget, node)]
    for lever in LEVERS:
        changed = lever.pull(scenario, coefficients)
        if changed is None:
            continue
        after = budget_of(changed, coefficients)
        idle = node if lever.keeps_node else 0.0
        priced = cost_of(changed, after, _with_price_of(terms, scenario, changed)).usd_per_hour
        dollars = _difference(priced, before, idle)
        found.append(
            Effect(
                lever=lever.name,
                what=lever.what,
                saves_s=budget.total.expected_s - after.total.expected_s,
                usd_per_hour=None if lever.billed else dollars,
                phase=_changed_most(budget, after),
                billed=lever.billed,
            )
        )
    return sorted(found, key=lambda effect: -effect.saves_s)


def _with_price_of(terms: Terms, before: Scenario, after: Scenario) -> Terms:
    """A price that was given is of the instance it was given for; another instance has its list price."""
    return terms if after.instance.name == before.instance.name else replace(terms, usd_per_hour=None)


def _difference(after: float | None, before: Cost, idle: float | None) -> float | None:
    if after is None or before.usd_per_hour is None or idle is None:
        return None
    return after - before.usd_per_hour + idle


def _changed_most(before: Budget, after: Budget) -> str:
    return max(before.phases, key=lambda name: abs(before.phases[name].expected_s - after.phases[name].expected_s))


def _warm_replica(budget: Budget, node_usd_per_hour: float | None) -> Effect:
    return Effect(
        lever="warm-replica",
        what="one replica kept warm: no cold start at all",
        saves_s=budget.total.expected_s,
        usd_per_hour=node_usd_per_hour,
        phase=budget.longest,
    )


def slow_for_soci(scenario: Scenario) -> bool:
    """The disk is too slow for parallel pull to gain much."""
    if scenario.host.disk_mb_s:
        return scenario.host.disk_mb_s < SOCI_FLOOR_MIB_S * MIB_S_TO_MB_S
    return (
        scenario.disk.kind != "nvme"
        and disk_rate(scenario.disk, scenario.instance).sustained_mb_s < SOCI_FLOOR_MIB_S * MIB_S_TO_MB_S
    )
