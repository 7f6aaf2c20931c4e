"""The node phase: from launch to Ready with its GPUs allocatable."""

from __future__ import annotations

from budget.coefficients import Coefficients
from budget.estimate import NONE, Estimate
from budget.scenario import Scenario


def node_phase(scenario: Scenario, coefficients: Coefficients) -> Estimate:
    """Launch of a GPU node; zero when one is warm.

    No distribution of GPU node launches is published, only single starts between 60 and 167 s on EKS, so the band is
    theirs. Bare-metal types initialise their hardware first.
    """
    if scenario.node.warm:
        return NONE
    extra = coefficients["node_bare_metal_s"] if scenario.instance.bare_metal else 0.0
    boot = coefficients["node_boot_s"]
    expected = coefficients["node_s"] + extra
    return Estimate(
        low_s=coefficients["node_low_s"] + extra,
        expected_s=expected,
        high_s=coefficients["node_high_s"] + 2 * extra,
        bound_by="instance launch, GPU driver and device plugin",
        detail={"boot_and_join_s": boot, "driver_and_gpu_ready_s": expected - boot, "bare_metal": extra > 0},
    )
