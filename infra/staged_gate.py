"""Nothing of a model is created before its weights are staged: a manifest in the bucket is what says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pulumi
import pulumi_aws as aws

from budget.staged import stage_command
from infra.reference import EnvironmentOutputs
from infra.specs import UNPINNED, ModelSpecs


def once_staged(
    name: str, specs: ModelSpecs, outputs: EnvironmentOutputs, provider: aws.Provider
) -> EnvironmentOutputs:
    """The environment's outputs; those that every node group needs come only when the weights are there.

    A preview ends here, with the command to run, when they are not.

    Args:
        name: of the model stack.
        specs: of the model.
        outputs: of its environment.
        provider: asks the bucket.
    """
    if not specs.serving.weights.needs_bucket:
        return outputs
    key = specs.staged.manifest_key
    found = aws.s3.get_objects_output(
        bucket=outputs.bucket, prefix=key, max_keys=1, opts=pulumi.InvokeOutputOptions(provider=provider)
    )

    def passed(cluster: str, keys: Sequence[str], bucket: str) -> str:
        if key not in keys:
            raise pulumi.RunError(_not_staged(name, specs, f"s3://{bucket}/{key}"))
        return cluster

    cluster = pulumi.Output.all(outputs.cluster, found.keys, outputs.bucket).apply(lambda known: passed(*known))
    return replace(outputs, cluster=cluster)


def _not_staged(name: str, specs: ModelSpecs, manifest: str) -> str:
    if specs.staged.revision == UNPINNED:
        return f"model.revision: not pinned, so nothing is staged for it. Run: coldstart pin {name}"
    return f"model.revision: {specs.staged.name} is not staged: there is no {manifest}. Run: {stage_command(name)}"
