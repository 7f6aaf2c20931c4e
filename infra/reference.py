"""What an environment tells its models: output names and the grammar of stack references, written down once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi


@dataclass(frozen=True, kw_only=True)
class EnvironmentOutputs:
    """Outputs of an environment stack, typed.

    Attributes:
        private_subnets: zone (us-west-2a) → subnet id.
        bucket_region: must be the region of the cluster; the streamer follows no redirect.
    """

    region: pulumi.Output[str]
    cluster: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    certificate_authority: pulumi.Output[str]
    node_role_arn: pulumi.Output[str]
    private_subnets: pulumi.Output[dict[str, str]]
    bucket: pulumi.Output[str]

    def export(self) -> None:
        """Makes them outputs of the stack that runs now."""
        for name in _NAMES:
            pulumi.export(name, getattr(self, name))


_NAMES = tuple(EnvironmentOutputs.__dataclass_fields__)


def environment_outputs(environment: str) -> EnvironmentOutputs:
    """Outputs of an environment stack of this project and organization.

    A missing output fails the preview: the environment has not been brought up yet.
    """
    stack = f"{pulumi.get_organization()}/{pulumi.get_project()}/{environment}"
    reference = pulumi.StackReference(stack)
    outputs: dict[str, pulumi.Output[Any]] = {name: reference.require_output(name) for name in _NAMES}
    return EnvironmentOutputs(**outputs)


def subnets_in(outputs: EnvironmentOutputs, zones: Sequence[str]) -> Sequence[pulumi.Output[str]]:
    """Private subnet of each zone, in that order."""

    def subnet(zone: str) -> pulumi.Output[str]:
        return outputs.private_subnets.apply(lambda subnets: subnets[zone])

    return [subnet(zone) for zone in zones]
