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
)

from infra.guardrails import GUARDRAILS, Check, Guardrail


def _validator(check: Check):  # noqa: ANN202 - pulumi_policy's own callable type is private
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        for violation in check(args.resource_type, args.props):
            report(f"{args.name}: {violation}", None)

    return validate


def _policy(guardrail: Guardrail) -> ResourceValidationPolicy:
    return ResourceValidationPolicy(
        name=guardrail.name,
        description=guardrail.description,
        enforcement_level=EnforcementLevel.MANDATORY,
        validate=_validator(guardrail.check),
    )


PolicyPack(
    name="coldstart",
    enforcement_level=EnforcementLevel.MANDATORY,
    policies=[_policy(guardrail) for guardrail in GUARDRAILS],
)
