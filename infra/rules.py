"""Rules across settings: what no single field can know. Problems stop the program, warnings do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from budget.problems import BadInput, Problem
from infra import cost_rules, environment_rules, model_rules, name_rules
from infra.model_settings import Model
from infra.stack_file import Stack


def problems(stack: Stack) -> Sequence[Problem]:
    """Everything about a stack that can't be."""
    return _found(stack, model_rules.problems)


def contradictions(stack: Stack) -> Sequence[Problem]:
    """Everything that can't be whatever the budget says: a plan answers itself whether a model fits, and how soon."""
    return _found(stack, model_rules.contradictions)


def _found(stack: Stack, of_model: Callable[[Stack, Model], Sequence[Problem]]) -> Sequence[Problem]:
    return [
        *name_rules.problems(stack),
        *environment_rules.problems(stack.environment),
        *(of_model(stack, stack.model) if stack.model is not None else ()),
        *cost_rules.problems(stack),
    ]


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
