"""Every kind of thing that an audit looks for. What proves others comes first: VPCs, clusters, buckets, roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripts.account.found import Kind
from scripts.account.kinds import (
    addresses,
    buckets,
    classic_balancers,
    clusters,
    endpoints,
    fast_restores,
    instance_profiles,
    instances,
    interfaces,
    keys,
    launch_templates,
    load_balancers,
    log_groups,
    nat_gateways,
    node_groups,
    repositories,
    reservations,
    roles,
    scaling_groups,
    schedules,
    secrets,
    security_groups,
    snapshots,
    target_groups,
    uploads,
    volumes,
    vpcs,
)

KINDS: tuple[Kind[Any], ...] = (
    roles.KIND,
    instance_profiles.KIND,
    vpcs.KIND,
    clusters.KIND,
    buckets.KIND,
    node_groups.KIND,
    scaling_groups.KIND,
    instances.KIND,
    volumes.KIND,
    snapshots.KIND,
    fast_restores.KIND,
    reservations.KIND,
    launch_templates.KIND,
    load_balancers.KIND,
    classic_balancers.KIND,
    target_groups.KIND,
    nat_gateways.KIND,
    addresses.KIND,
    endpoints.KIND,
    interfaces.KIND,
    security_groups.KIND,
    log_groups.KIND,
    repositories.KIND,
    uploads.KIND,
    keys.KIND,
    secrets.KIND,
    schedules.KIND,
)
BY_NAME: Mapping[str, Kind[Any]] = {kind.name: kind for kind in KINDS}
