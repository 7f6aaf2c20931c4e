"""How fast a host's single thread is, relative to the host the engine formulas were fitted on."""

from __future__ import annotations

from budget.coefficients import Coefficients
from budget.scenario import Scenario


def cpu_factor(scenario: Scenario, coefficients: Coefficients) -> float:
    """Single-thread time relative to the reference host, above 1 for slower ones.

    What the scenario says; else the instance family's, learnt from starts; else 1.
    """
    if scenario.engine.cpu_factor is not None:
        return scenario.engine.cpu_factor
    known = f"cpu_factor_{scenario.instance.family}"
    return coefficients[known] if known in coefficients.by_name else 1.0
