"""The weights phase: from storage to GPU memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from budget.coefficients import Coefficients
from budget.disk import disk_rate
from budget.estimate import Estimate, spread
from budget.host import cpu_factor
from budget.image import network_gbps
from budget.instances import GBPS_TO_BYTES_S
from budget.scenario import Scenario

BYTES_PER_FILE = 5e9
"""Hub checkpoints are cut into files of about this size; it decides how many downloads can run at once."""
HUB_PARALLEL_FILES = 8
"""Default max_workers of huggingface_hub's snapshot_download."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Bytes through one narrowest place.

    Attributes:
        bytes: what moves.
        limits: place → bytes per second it lets through.
    """

    bytes: float
    limits: Mapping[str, float]

    @property
    def binds(self) -> str:
        """The narrowest place."""
        return min(self.limits, key=lambda name: self.limits[name])

    @property
    def seconds(self) -> float:
        """Time at its rate."""
        return self.bytes / self.limits[self.binds]


def weights_phase(scenario: Scenario, coefficients: Coefficients) -> Estimate:
    """Reads the weights and puts them on the GPUs."""
    path = scenario.weights.path
    if path == "stream":
        return _streamed(scenario, coefficients)
    if path == "download":
        return _downloaded(scenario, coefficients)
    if path == "shared-fs":
        return _shared(scenario, coefficients)
    return _local(scenario, coefficients)


def read_bytes(scenario: Scenario) -> float:
    """Bytes read from storage: once per rank unless the ranks share one read."""
    copies = 1 if scenario.weights.distributed else scenario.ranks
    return scenario.model.weights_bytes * copies


def object_store_bytes_s(connections: float, coefficients: Coefficients) -> float:
    """What a number of connections draws from S3 before any other limit.

    Each further connection adds a little less than the one before. Fitted on the Run:ai benchmark (4 and 16
    connections; 32 and 64 already meet the network).
    """
    return coefficients["s3_connection_mb_s"] * 1e6 * connections ** coefficients["s3_connection_exponent"]


def _store_limits(scenario: Scenario, coefficients: Coefficients, *, burst: bool) -> dict[str, float]:
    host, weights = scenario.host, scenario.weights
    connections = weights.concurrency * (1 if weights.distributed else scenario.ranks)
    network = (
        host.network_mb_s * 1e6 if host.network_mb_s else network_gbps(scenario.instance, burst=burst) * GBPS_TO_BYTES_S
    )
    rate = object_store_bytes_s(connections, coefficients)
    crowd = max(1.0, connections / coefficients["s3_crowd_connections"])
    return {
        "connections": rate,
        "network": network * coefficients["s3_network_share"] / crowd ** coefficients["s3_crowd_exponent"],
    }


def _gpu_limit(scenario: Scenario, coefficients: Coefficients) -> float:
    """Host-to-device copies of all ranks together."""
    board = scenario.instance.board
    slot = board.pcie_gb_s if board else 32.0
    return slot * 1e9 * coefficients["pcie_share"] * scenario.ranks


def _streamed(scenario: Scenario, coefficients: Coefficients) -> Estimate:
    """Storage to GPU through a host buffer: reading and copying overlap, the slower one counts."""
    if scenario.weights.source == "disk":
        limits = _disk_limits(scenario, coefficients, streams=scenario.weights.concurrency)
        best = limits
    else:
        limits = _store_limits(scenario, coefficients, burst=False)
        best = _store_limits(scenario, coefficients, burst=True)
    for rates in (limits, best):
        rates["PCIe"] = _gpu_limit(scenario, coefficients)
    flow, fast = Flow(read_bytes(scenario), limits), Flow(read_bytes(scenario), best)
    overhead = coefficients["weights_overhead_s"]
    shared = f"{scenario.ranks} ranks read everything: {scenario.ranks} x {scenario.model.weights_bytes / 1e9:.3g} GB, "
    prefix = shared if scenario.ranks > 1 and not scenario.weights.distributed else ""
    return spread(
        flow.seconds + overhead,
        coefficients["spread_weights_stream"],
        low_s=fast.seconds + overhead,
        bound_by=prefix + _limit_words(flow, scenario),
        detail=_flow_detail(flow, scenario),
    )


def _limit_words(flow: Flow, scenario: Scenario) -> str:
    rate = flow.limits[flow.binds] / 1e9
    words = {
        "connections": f"{scenario.weights.concurrency} connections to {scenario.weights.source}",
        "network": f"the network, {scenario.instance.plan_network_gbps:g} Gbps sustained",
        "PCIe": "the PCIe slots of the GPUs",
        "disk": f"the {scenario.disk.kind} disk",
        "stream": "one reading stream",
        "hub": "the hub's rate per file",
        "shared file system": "the shared file system",
        "loader": "the loader, tensor by tensor",
    }
    return f"{words.get(flow.binds, flow.binds)} ({rate:.2g} GB/s)"


def _flow_detail(flow: Flow, scenario: Scenario) -> dict[str, float | str | bool | None]:
    rates = {f"{name.replace(' ', '_')}_gb_s": round(rate / 1e9, 4) for name, rate in flow.limits.items()}
    return {
        "weights_bytes": round(scenario.model.weights_bytes),
        "read_bytes": round(flow.bytes),
        "rate_gb_s": round(flow.limits[flow.binds] / 1e9, 4),
        "network_baseline_gbps": scenario.instance.plan_network_gbps,
        "network_peak_gbps": scenario.instance.plan_network_peak_gbps,
        **rates,
    }


def _disk_limits(scenario: Scenario, coefficients: Coefficients, *, streams: float) -> dict[str, float]:
    """Reading from the node's disk: several streams fill it, one does not."""
    if scenario.host.disk_mb_s:
        disk = scenario.host.disk_mb_s * 1e6
    else:
        disk = disk_rate(scenario.disk, scenario.instance).sustained_mb_s * 1e6
    return {"disk": disk, "stream": streams * coefficients["disk_stream_mb_s"] * 1e6}


def _local_seconds(scenario: Scenario, coefficients: Coefficients) -> float:
    """The default loader over files in the page cache or on fast local disk: so much per GB, each rank its own copy.

    Ranks map the same files, and each takes its slice of every tensor; the copies run side by side.
    """
    gb = scenario.model.weights_bytes / 1e9 / scenario.ranks
    return (coefficients["load_s"] + coefficients["load_s_per_gb"] * gb) * cpu_factor(scenario, coefficients)


def _local(scenario: Scenario, coefficients: Coefficients) -> Estimate:
    """Weights on the node already (or baked into its image): the loader's own pace."""
    seconds = _local_seconds(scenario, coefficients)
    slow_disk = _cold_disk_seconds(scenario, coefficients)
    bound = "the loader, tensor by tensor"
    if slow_disk > seconds:
        seconds, bound = slow_disk, f"one reading stream of the {scenario.disk.kind} volume"
    return spread(
        seconds,
        coefficients["spread_weights_local"],
        bound_by=bound,
        detail={
            "weights_bytes": round(scenario.model.weights_bytes),
            "rate_gb_s": round(scenario.model.weights_bytes / 1e9 / max(seconds, 1e-9), 4),
        },
    )


def _cold_disk_seconds(scenario: Scenario, coefficients: Coefficients) -> float:
    """Local files on an EBS volume are read cold, by one stream, at most at the volume's rate."""
    if scenario.disk.kind == "nvme":
        return 0.0
    flow = Flow(scenario.model.weights_bytes, _disk_limits(scenario, coefficients, streams=1))
    return flow.seconds


def _downloaded(scenario: Scenario, coefficients: Coefficients) -> Estimate:
    """To disk first, then loaded: the two follow each other."""
    limits, best = (
        _download_limits(scenario, coefficients, burst=False),
        _download_limits(scenario, coefficients, burst=True),
    )
    flow, fast = Flow(scenario.model.weights_bytes, limits), Flow(scenario.model.weights_bytes, best)
    load = _local_seconds(scenario, coefficients)
    return spread(
        flow.seconds + load,
        coefficients["spread_weights_download"],
        low_s=fast.seconds + load,
        bound_by=f"download: {_limit_words(flow, scenario)}",
        detail={**_flow_detail(flow, scenario), "fetch_s": round(flow.seconds, 3), "load_s": round(load, 3)},
    )


def _download_limits(scenario: Scenario, coefficients: Coefficients, *, burst: bool) -> dict[str, float]:
    limits = {"disk": _disk_limits(scenario, coefficients, streams=math.inf)["disk"]}
    store = _store_limits(scenario, coefficients, burst=burst)
    limits["network"] = store["network"]
    if scenario.weights.source == "hub":
        files = scenario.weights.files or math.ceil(scenario.model.weights_bytes / BYTES_PER_FILE)
        limits["hub"] = coefficients["hub_file_mb_s"] * 1e6 * min(files, HUB_PARALLEL_FILES)
    else:
        limits["connections"] = object_store_bytes_s(scenario.weights.concurrency, coefficients)
    return limits


def _shared(scenario: Scenario, coefficients: Coefficients) -> Estimate:
    """A shared file system read cold: its throughput, the network, or the loader, whichever is narrowest."""
    limits = {
        "shared file system": (scenario.weights.shared_mb_s or math.inf) * 1e6,
        "network": _store_limits(scenario, coefficients, burst=False)["network"],
        "loader": scenario.model.weights_bytes / _local_seconds(scenario, coefficients),
    }
    flow = Flow(scenario.model.weights_bytes, limits)
    return spread(
        flow.seconds + coefficients["weights_overhead_s"],
        coefficients["spread_weights_download"],
        bound_by=_limit_words(flow, scenario),
        detail=_flow_detail(flow, scenario),
    )
