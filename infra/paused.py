"""What `paused` means to the program: held sizes are left alone, and anything made meanwhile is made asleep.

`coldstart pause` holds the GPU groups at zero through the cloud's own APIs and writes `coldstart:paused: true` into
the stack file. What it changed are properties that the program then ignores, so a preview shows nothing and an `up`
wakes nothing, even one that refreshes (docs/decisions/0030).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONFIG_KEY = "paused"
"""Below the project's namespace in a stack file."""
RECORD_TAG = "coldstart/paused"
"""On an Auto Scaling group: the sizes it had, which `resume` puts back. It lives and dies with the group."""
PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
"""KEDA holds a scaled object at that many replicas while it carries this annotation; cron triggers included."""
GROUP_SIZES = ("scalingConfig", "warmPoolConfig")
"""Properties of a node group that belong to whoever paused it."""
SCALED_OBJECT_HOLD = ("metadata.annotations",)
"""The same of a scaled object. All annotations: ignoring one key would leave an empty map, which is a change."""


def asleep(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """A scaled object that starts at zero replicas and stays there."""
    metadata = manifest["metadata"]
    annotations = {**metadata.get("annotations", {}), PAUSED_REPLICAS: "0"}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}
