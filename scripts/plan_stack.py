"""The plan of a deployment as its stack file has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from budget.cost import Terms
from budget.plan import Plan, plan_of
from budget.price import CostItem
from budget.problems import bad_input
from infra.bill import bill
from infra.forecast import factors_of, scenario
from infra.settings import Model
from infra.specs import model_specs
from infra.stack_file import Stack, names, read


def stack_plan(name: str, *, terms: Terms, slo_s: float | None) -> Plan:
    """Plans a model stack: its node as configured, its purchase kind, its objective, its environment's share of cost.

    Raises:
        BadInput: no such stack, an environment stack, or settings that are wrong.
    """
    stack = read(name)
    if stack.model is None:
        models = [other for other in names() if other.startswith(f"{name}-")]
        raise bad_input(
            name, "is an environment: it has no cold start", f"Plan one of its models: {', '.join(models)}."
        )
    return model_plan(stack, stack.model, terms=terms, slo_s=slo_s)


def model_plan(stack: Stack, model: Model, *, terms: Terms, slo_s: float | None) -> Plan:
    """The plan of a model stack that is already parsed."""
    specs = model_specs(stack, model)
    case = scenario(stack, model, specs.node)
    return plan_of(
        case,
        name=stack.name,
        terms=replace(terms, purchase=model.nodes.capacity.value),
        factors=factors_of(stack.environment_name),
        slo_s=slo_s or model.slo.cold_start_s,
        extra_costs=_around(stack),
    )


def _around(stack: Stack) -> Sequence[CostItem]:
    """The environment's hourly lines: paid once for all its models."""
    lines = bill(replace(stack, name=stack.environment_name, model=None), None).least
    return [replace(line, item=f"environment: {line.item}") for line in lines]
