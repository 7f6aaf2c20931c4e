"""What a deployment costs per hour, what one cold start costs, and when a warm replica is cheaper than starting one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from budget.disk import data_volume_gib
from budget.phases import Budget
from budget.price import (
    CostItem,
    Purchase,
    bucket_cost,
    node_cost,
    prices,
    registry_cost,
    total_usd_per_hour,
    volume_cost,
)
from budget.scenario import Scenario
from budget.weights import read_bytes

OS_VOLUME_GIB = 4
"""Bottlerocket's system partition set; images and pods never touch it."""
IDLE_TAIL_S = 600
"""A node stays this long after its last pod before it is removed (Karpenter's WhenEmpty advice: 10 to 30 minutes)."""
UNBILLED_S = 10.0
"""An instance bills from `running`; before that it is `pending` for about this long."""
GET_BYTES = 8 * 2**20
"""One S3 request of the streamer."""
HOURS_PER_MONTH = 730


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """How a deployment is bought and used.

    Attributes:
        usd_per_hour: price of one node when known; None takes the list.
        nodes: that run all the time.
        idle_tail_s: billed after the last request before the node goes.
        breach_usd: what one cold start beyond the SLO costs in other ways (lost requests), US dollars.
        hours_per_month: hours in which the deployment serves.
        starts_per_month: cold starts in them.
        private_egress: bytes from the internet cross a NAT gateway.
    """

    purchase: Purchase = "on-demand"
    usd_per_hour: float | None = None
    nodes: int = 1
    idle_tail_s: float = IDLE_TAIL_S
    breach_usd: float = 0.0
    hours_per_month: float = HOURS_PER_MONTH
    starts_per_month: float = 0.0
    private_egress: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Money. None wherever a list price is missing: it is never counted as zero.

    Attributes:
        items: the hourly lines; they sum to `usd_per_hour`.
        node_usd_per_hour: of them, the nodes alone.
        around_usd_per_hour: of them, what the stack around it costs (control plane, endpoints, NAT), whoever shares it.
        usd_per_start: node time from billing to Ready, idle tail, metered bytes, requests: what one pause that goes to
            zero causes.
        break_even_gap_s: a pause between uses longer than this makes scaling to zero cheaper than staying warm; None
            without a price, and on a node that stays, where a pause saves nothing.
        usd_per_month: at the terms' hours and starts.
    """

    items: Sequence[CostItem]
    usd_per_hour: float | None
    node_usd_per_hour: float | None
    around_usd_per_hour: float | None
    usd_per_start: float | None
    node_usd: float | None
    idle_tail_usd: float | None
    metered_bytes: float
    metered_usd: float
    requests_usd: float
    break_even_gap_s: float | None
    usd_per_month: float | None


DEFAULT_TERMS = Terms()


def cost_of(scenario: Scenario, budget: Budget, terms: Terms = DEFAULT_TERMS, extra: Sequence[CostItem] = ()) -> Cost:
    """The bill of one replica's node, and of one cold start.

    Args:
        scenario: what runs.
        budget: its cold start.
        terms: how it is bought and used.
        extra: further hourly lines of the stack (control plane, endpoints, NAT).
    """
    node = node_cost(scenario.instance, count=terms.nodes, purchase=terms.purchase, usd_per_hour=terms.usd_per_hour)
    items = [node, *_volumes(scenario, terms), *_storage(scenario), *extra]
    hourly = total_usd_per_hour(items)
    rate = None if node.usd_per_hour is None else node.usd_per_hour / terms.nodes
    billed_s = max(0.0, budget.total.expected_s - (0.0 if scenario.node.warm else UNBILLED_S))
    metered, requests = _metered(scenario, terms), _requests_usd(scenario)
    metered_usd = metered / 1e9 * prices().usd["nat_gateway_usd_per_gb"]
    node_usd = None if rate is None else rate * billed_s / 3600
    tail_usd = None if rate is None else rate * (0.0 if scenario.node.warm else terms.idle_tail_s) / 3600
    start = None if node_usd is None or tail_usd is None else node_usd + tail_usd + metered_usd + requests
    return Cost(
        items=items,
        usd_per_hour=hourly,
        node_usd_per_hour=node.usd_per_hour,
        around_usd_per_hour=total_usd_per_hour(extra),
        usd_per_start=start,
        node_usd=node_usd,
        idle_tail_usd=tail_usd,
        metered_bytes=metered,
        metered_usd=metered_usd,
        requests_usd=requests,
        break_even_gap_s=(
            break_even_gap_s(rate, start, terms) if rate and start is not None and not scenario.node.warm else None
        ),
        usd_per_month=None
        if hourly is None or start is None
        else hourly * terms.hours_per_month + start * terms.starts_per_month,
    )


def break_even_gap_s(usd_per_hour: float, start_usd: float, terms: Terms) -> float:
    """Pause at which one warm node costs what going to zero and starting again costs, seconds.

    Going to zero pays for all that a start costs (the idle tail before it, its node time, the bytes it fetches) and
    what the wait costs in other ways; staying warm pays the pause.

    Args:
        usd_per_hour: of one node.
        start_usd: `Cost.usd_per_start`.
        terms: for the breach.
    """
    return 3600 * (start_usd + terms.breach_usd) / usd_per_hour


def _volumes(scenario: Scenario, terms: Terms) -> list[CostItem]:
    system = volume_cost("gp3", gib=OS_VOLUME_GIB, count=terms.nodes)
    disk = scenario.disk
    if disk.kind == "nvme":
        return [system]
    gib = scenario.disk_gib or data_volume_gib(image_bytes=scenario.image.bytes)
    data = volume_cost(disk.kind, gib=gib, iops=disk.iops, throughput_mib_s=disk.throughput_mib_s, count=terms.nodes)
    return [system, data]


def _storage(scenario: Scenario) -> list[CostItem]:
    items: list[CostItem] = []
    if scenario.weights.path in {"stream", "download"} and scenario.weights.source == "s3":
        items.append(bucket_cost(scenario.model.weights_bytes))
    if scenario.image.registry == "ecr":
        items.append(registry_cost(scenario.image.bytes))
    return items


def _metered(scenario: Scenario, terms: Terms) -> float:
    """Bytes of one start that come from the internet through NAT. ECR and S3 use endpoints."""
    if not terms.private_egress:
        return 0.0
    pulled = scenario.image.bytes if scenario.image.registry == "docker-hub" and not scenario.image.cached else 0.0
    hub = scenario.weights.path == "download" and scenario.weights.source == "hub"
    return pulled + (scenario.model.weights_bytes if hub else 0.0)


def _requests_usd(scenario: Scenario) -> float:
    if scenario.weights.source != "s3" or scenario.weights.path not in {"stream", "download"}:
        return 0.0
    copies = read_bytes(scenario) if scenario.weights.path == "stream" else scenario.model.weights_bytes
    return math.ceil(copies / GET_BYTES) / 1000 * prices().usd["s3_get_usd_per_1000"]
