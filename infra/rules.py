"""Rules across settings: what no single field can know. Problems stop the program, warnings do not."""

from __future__ import annotations

from collections.abc import Sequence

from budget.problems import BadInput, Problem
from infra import cost_rules, environment_rules, model_rules, name_rules
from infra.stack_file import Stack


def problems(stack: Stack) -> Sequence[Problem]:
    """Everything about a stack that can't be."""
    found = [*name_rules.problems(stack), *environment_rules.problems(stack.environment)]
    if stack.model is not None:
        found += model_rules.problems(stack, stack.model)
    return found + list(cost_rules.problems(stack))


def contradictions(stack: Stack) -> Sequence[Problem]:
    """Everything that can't be whatever the budget says: a plan answers itself whether a model fits, and how soon."""
    found = [*name_rules.problems(stack), *environment_rules.problems(stack.environment)]
    if stack.model is not None:
        found += model_rules.contradictions(stack, stack.model)
    return found + list(cost_rules.problems(stack))


def warnings(stack: Stack) -> Sequence[Problem]:
    """Everything about a stack that can be, but costs something the person may not know of."""
    found = list(cost_rules.warnings(stack))
    if stack.model is not None:
        found += model_rules.warnings(stack, stack.model)
    return found


def check(stack: Stack) -> None:
    """Refuses a stack that can't be.

    Raises:
        BadInput: every broken rule.
    """
    if found := problems(stack):
        raise BadInput(found)
