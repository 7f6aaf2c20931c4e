"""The shape of KEDA's ScaledObject: Kubernetes has no schema of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCALER_TYPES = {"metrics-api", "cron"}
METRIC_TYPES = {"AverageValue", "Value"}


def check_scaled_object(manifest: Mapping[str, Any]) -> None:
    """The shape of KEDA's custom resource (keda.sh/v1alpha1, ScaledObjectSpec); Kubernetes has no schema of it."""
    assert manifest["apiVersion"] == "keda.sh/v1alpha1"
    spec = manifest["spec"]
    assert set(spec) <= {
        "scaleTargetRef",
        "minReplicaCount",
        "maxReplicaCount",
        "pollingInterval",
        "cooldownPeriod",
        "advanced",
        "triggers",
        "fallback",
    }
    assert spec["scaleTargetRef"] == {"name": manifest["metadata"]["name"]}
    assert 0 <= spec["minReplicaCount"] <= spec["maxReplicaCount"]
    for key in ("minReplicaCount", "maxReplicaCount", "pollingInterval", "cooldownPeriod"):
        assert isinstance(spec[key], int)
    down = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert 0 <= down["stabilizationWindowSeconds"] <= 3_600
    assert spec["triggers"]
    for trigger in spec["triggers"]:
        assert set(trigger) <= {"type", "metadata", "metricType", "name"}
        assert trigger["type"] in SCALER_TYPES
        assert trigger.get("metricType", "AverageValue") in METRIC_TYPES
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
