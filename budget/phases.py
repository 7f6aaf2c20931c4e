"""The budget of a cold start: six phases that follow each other and sum to the total."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from budget.coefficients import Coefficients, coefficients
from budget.engine import engine_phase, start_phase, warmup_phase
from budget.estimate import Estimate, total_of
from budget.image import pull_phase
from budget.node import node_phase
from budget.scenario import Scenario
from budget.weights import weights_phase

PHASES: Mapping[str, Callable[[Scenario, Coefficients], Estimate]] = MappingProxyType(
    {
        "node": node_phase,
        "pull": pull_phase,
        "start": start_phase,
        "weights": weights_phase,
        "engine": engine_phase,
        "warmup": warmup_phase,
    }
)
"""Name → function, in the order in which they happen."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The phases by name, in order.

    Attributes:
        phases: exactly the keys of `PHASES`.
    """

    phases: Mapping[str, Estimate]

    @property
    def total(self) -> Estimate:
        """All phases one after another."""
        return total_of(self.phases.values())

    @property
    def longest(self) -> str:
        """Name of the phase to blame first."""
        return max(self.phases, key=lambda name: self.phases[name].expected_s)

    def of(self, *names: str) -> Estimate:
        """Some phases together: start, weights and engine are what a measured process start → ready is."""
        return total_of(self.phases[name] for name in names)


def estimate_of(scenario: Scenario, factors: Coefficients, *names: str) -> Estimate:
    """Some phases together, the others not even computed."""
    return total_of(PHASES[name](scenario, factors) for name in names)


def budget_of(scenario: Scenario, factors: Coefficients | None = None) -> Budget:
    """Predicts a cold start.

    Args:
        scenario: checked (`scenario.checked`).
        factors: machine factors; None takes the shipped ones.
    """
    used = factors or coefficients()
    return Budget(MappingProxyType({name: phase(scenario, used) for name, phase in PHASES.items()}))
