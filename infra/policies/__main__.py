"""The policy pack: the guardrails, as the Pulumi CLI runs them (`pulumi preview --policy-pack infra/policies`)."""

import sys
from pathlib import Path

# The CLI runs this folder by itself; the rooms lie two above it.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)

from budget.problems import BadInput
from infra.cost_rules import limit_of
from infra.guardrails import GUARDRAILS, Check, Guardrail
from infra.hourly_maximum import violation
from infra.stack_file import read

STACK_FILES = Path(__file__).resolve().parents[1] / "stacks"


def _validator(check: Check):  # noqa: ANN202 - pulumi_policy's own callable type is private
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        for breach in check(args.resource_type, args.props):
            report(f"{args.name}: {breach}", None)

    return validate


def _policy(guardrail: Guardrail) -> ResourceValidationPolicy:
    return ResourceValidationPolicy(
        name=guardrail.name,
        description=guardrail.description,
        enforcement_level=EnforcementLevel.MANDATORY,
        validate=_validator(guardrail.check),
    )


def _hourly_maximum(args: StackValidationArgs, report: ReportViolation) -> None:
    """The whole stack against the limit in its own file; the stack's name is part of every URN."""
    for name in {resource.urn.split(":")[2] for resource in args.resources}:
        try:
            _, limit = limit_of(read(name, STACK_FILES))
        except BadInput as error:
            report(f"the limit of cost can't be read: {error}", None)
            return
        found = violation([(each.resource_type, each.name, each.props) for each in args.resources], limit)
        if found:
            report(found, None)


PolicyPack(
    name="coldstart",
    enforcement_level=EnforcementLevel.MANDATORY,
    policies=[
        *(_policy(guardrail) for guardrail in GUARDRAILS),
        StackValidationPolicy(
            name="hourly-maximum",
            description="A stack can't cost more per hour than its cost.max_usd_per_hour.",
            enforcement_level=EnforcementLevel.MANDATORY,
            validate=_hourly_maximum,
        ),
    ],
)
