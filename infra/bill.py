"""What a stack costs per hour, from its settings alone: list prices, before anything is bought."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from budget.cost import OS_VOLUME_GIB
from budget.instances import instance as instance_type
from budget.price import (
    CostItem,
    bucket_cost,
    control_plane_cost,
    endpoint_cost,
    nat_cost,
    node_cost,
    total_usd_per_hour,
    volume_cost,
)
from infra.environment import SYSTEM_VOLUME
from infra.environment_settings import Egress, Environment
from infra.model_settings import Model
from infra.network import INTERFACE_ENDPOINTS, NO_EGRESS_ENDPOINTS
from infra.specs import ModelSpecs, nodes_for
from infra.stack_file import Stack


@dataclass(frozen=True, kw_only=True)
class Bill:
    """Hourly cost of a stack.

    Attributes:
        least: with nothing but what always runs.
        most: with every replica the settings allow.
    """

    least: Sequence[CostItem]
    most: Sequence[CostItem]

    @property
    def least_usd_per_hour(self) -> float | None:
        """None when a price is unknown."""
        return total_usd_per_hour(self.least)

    @property
    def most_usd_per_hour(self) -> float | None:
        """None when a price is unknown."""
        return total_usd_per_hour(self.most)


def bill(stack: Stack, specs: ModelSpecs | None) -> Bill:
    """The bill of a stack: an environment's, or what a model adds to it."""
    if stack.model is None or specs is None:
        items = _environment(stack.environment)
        return Bill(least=items, most=items)
    places = stack.model.scaling.min_replicas + stack.model.scaling.spare_replicas
    always = [*_warm_pool(stack.model, specs), bucket_cost(specs.weights_bytes)]
    # Each zone's group may grow as far as it takes to hold every replica.
    most = specs.max_nodes * len(specs.zone_groups)
    return Bill(
        least=[*_nodes(stack.model, specs, nodes_for(places, specs.pods_per_node)), *always],
        most=[*_nodes(stack.model, specs, most), *always],
    )


def _warm_pool(model: Model, specs: ModelSpecs) -> list[CostItem]:
    """Spares of every zone's group: running ones at their full price, stopped ones at that of their volumes."""
    pool = model.nodes.warm_pool
    if pool is None:
        return []
    spares = pool.size * len(specs.zone_groups)
    if pool.state == "running":
        return _nodes(model, specs, spares)
    volume = specs.node.storage.volume
    return _volumes(spares, volume.kind, volume.size_gib, volume.iops, volume.throughput_mib_s)


def _environment(settings: Environment) -> list[CostItem]:
    zones = len(settings.network.zones)
    nat = settings.network.egress is Egress.NAT
    endpoints = len(INTERFACE_ENDPOINTS) + (0 if nat else len(NO_EGRESS_ENDPOINTS))
    nodes = settings.system_nodes
    return [
        control_plane_cost(),
        node_cost(instance_type(nodes.instance), count=nodes.count),
        *_volumes(
            nodes.count,
            SYSTEM_VOLUME.kind,
            SYSTEM_VOLUME.size_gib,
            SYSTEM_VOLUME.iops,
            SYSTEM_VOLUME.throughput_mib_s,
        ),
        *([nat_cost(zones if settings.production else 1)] if nat else []),
        endpoint_cost(endpoints, zones),
    ]


def _nodes(model: Model, specs: ModelSpecs, count: int) -> list[CostItem]:
    if count == 0:
        return []
    volume = specs.node.storage.volume
    return [
        node_cost(specs.node.instance, count=count, purchase=model.nodes.capacity.value),
        *_volumes(count, volume.kind, volume.size_gib, volume.iops, volume.throughput_mib_s),
    ]


def _volumes(count: int, kind: str, size_gib: int, iops: int, throughput_mib_s: int | None) -> list[CostItem]:
    data = volume_cost(kind, gib=size_gib, iops=iops, throughput_mib_s=throughput_mib_s or 0, count=count)
    return [volume_cost("gp3", gib=OS_VOLUME_GIB, count=count), data]
