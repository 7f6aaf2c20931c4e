"""The plan of a deployment as its stack file has it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

from budget.cost import Terms
from budget.findings import Finding
from budget.plan import Plan, plan_of, today
from budget.price import CostItem, prices
from budget.problems import BadInput, bad_input
from budget.scenario import EngineCase, HostCase, ImageCase, ModelCase, NodeCase, PullCase, WarmupCase, WeightsCase
from infra.accounts import partition_of
from infra.bill import bill
from infra.forecast import factors_of, scenario
from infra.model_settings import Model
from infra.rules import contradictions
from infra.specs import model_specs
from infra.stack_file import Stack, names, read

STACK_KEYS: Mapping[str, str] = {
    "instance": "model.nodes.instance",
    "image.bytes": "model.image_facts.compressed_bytes",
    "image.layers": "model.image_facts.layers",
    "image.unpack_ratio": "model.image_facts.unpacked_layers",
    "image.hydration_mib_s": "model.nodes.volume.initialization_mib_s",
    "disk.kind": "model.nodes.disk",
    "disk.size_gib": "model.nodes.volume.size_gib",
    "disk.throughput_mib_s": "model.nodes.volume.throughput_mib_s",
    "disk.iops": "model.nodes.volume.iops",
    "pull.downloads": "model.nodes.soci.max_concurrent_downloads_per_image",
    "pull.unpacks": "model.nodes.soci.max_concurrent_unpacks_per_image",
    "pull.chunk_bytes": "model.nodes.soci.chunk_mib",
    "model.name": "model.source",
    "model.tensor_parallel": "model.engine.tensor_parallel",
    "model.context_tokens": "model.engine.context_tokens",
    "weights.path": "model.weights.path",
    "weights.distributed": "model.weights.distributed",
    "weights.shared_mb_s": "model.weights.shared_fs.throughput_mb_s",
    "weights.memory_limit_bytes": "model.weights.streamer_memory_gib",
    "engine.gpu_memory_utilization": "model.engine.gpu_memory_utilization",
    "engine.startup_plan": "model.engine.startup_plan",
    "engine.compile_cache": "model.engine.compile_cache",
    "engine.version": "model.engine.version",
}
"""Key of a scenario file → key of a stack file that sets the same."""
_PARTS = {
    "node": NodeCase,
    "image": ImageCase,
    "pull": PullCase,
    "model": ModelCase,
    "weights": WeightsCase,
    "engine": EngineCase,
    "warmup": WarmupCase,
    "host": HostCase,
}
SCENARIO_KEYS = {*STACK_KEYS, *(f"{part}.{each.name}" for part, case in _PARTS.items() for each in fields(case))}
_DOTTED = re.compile(r"(?<![\w.])[a-z]+\.[a-z_]+(?![\w.]*\w)")


def stack_plan(name: str, *, terms: Terms, slo_s: float | None, untuned: bool = False) -> Plan:
    """Plans a model stack: its node as configured, its purchase kind, its objective, its environment's share of cost.

    Args:
        name: of the stack.
        terms: how it is used.
        slo_s: what a start may take; None takes the stack's objective.
        untuned: the way most clusters start it instead, at the same price around it.

    Raises:
        BadInput: no such stack, an environment stack, or settings that are wrong.
    """
    stack = read(name)
    if stack.model is None:
        models = [other for other in names() if other.startswith(f"{name}-")]
        raise bad_input(
            name, "is an environment: it has no cold start", f"Plan one of its models: {', '.join(models)}."
        )
    if problems := contradictions(stack):
        raise BadInput(problems)
    return model_plan(stack, stack.model, terms=terms, slo_s=slo_s, untuned=untuned)


def model_plan(stack: Stack, model: Model, *, terms: Terms, slo_s: float | None, untuned: bool = False) -> Plan:
    """The plan of a model stack that is already parsed.

    Raises:
        BadInput: values that contradict each other, by the keys of the stack file.
    """
    try:
        case = scenario(stack, model, model_specs(stack, model).node)
        plan = plan_of(
            today(case) if untuned else case,
            name=f"{stack.name} today" if untuned else stack.name,
            terms=replace(terms, purchase=model.nodes.capacity.value),
            factors=factors_of(stack),
            slo_s=slo_s or model.slo.cold_start_s,
            extra_costs=_around(stack),
        )
    except BadInput as error:
        raise BadInput(
            replace(
                each,
                where=STACK_KEYS.get(each.where, each.where),
                found=in_stack_keys(each.found),
                fix=in_stack_keys(each.fix),
            )
            for each in error.problems
        ) from error
    found = [_in_stack_keys(finding) for finding in plan.findings]
    return replace(plan, findings=[*found, *_other_region(stack.environment.region)])


def in_stack_keys(words: str) -> str:
    """A sentence that names keys of a scenario file, with those of a stack file; where there is none it says so."""

    def stack_key(match: re.Match[str]) -> str:
        key = match[0]
        if key not in SCENARIO_KEYS:
            return key
        return STACK_KEYS.get(key, f"a scenario file's {key}")

    return _DOTTED.sub(stack_key, words)


def _in_stack_keys(finding: Finding) -> Finding:
    return replace(finding, message=in_stack_keys(finding.message), fix=in_stack_keys(finding.fix))


def _other_region(region: str) -> Sequence[Finding]:
    """That the price table is of another region than the stack."""
    table = prices()
    if region == table.region:
        return []
    known = partition_of(region) == "aws"
    return [
        Finding(
            code="price-region",
            level="info",
            message=f"dollars are list prices of {table.region}, this stack is in {region}: they differ by region",
            fix=f"`coldstart prices --refresh --region {region}` reads its own."
            if known
            else "No list here has its prices: give the node's with --usd-per-hour.",
        )
    ]


def _around(stack: Stack) -> Sequence[CostItem]:
    """The environment's hourly lines: paid once for all its models."""
    lines = bill(replace(stack, name=stack.environment_name, model=None), None).least
    return [replace(line, item=f"environment: {line.item}") for line in lines]
