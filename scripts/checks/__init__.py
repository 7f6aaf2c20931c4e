"""The checks of `coldstart preflight`, in the order in which a person wants to read them."""

from __future__ import annotations

from scripts.checks import (
    controllers,
    engine_image,
    identity,
    keys,
    kubernetes_version,
    network,
    node_image,
    offering,
    quota,
    reservation,
    service_roles,
    staged_weights,
)
from scripts.checks.finding import Check

CHECKS: tuple[Check, ...] = (
    identity.CHECK,
    quota.CHECK,
    offering.CHECK,
    reservation.CHECK,
    kubernetes_version.CHECK,
    node_image.CHECK,
    engine_image.CHECK,
    staged_weights.CHECK,
    network.CHECK,
    service_roles.CHECK,
    keys.CHECK,
    controllers.CHECK,
)
