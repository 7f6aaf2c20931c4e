"""Rules of a model's settings, against the instance it asks for, the model's facts and its environment."""

from __future__ import annotations

import math
import re
import zoneinfo
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from budget.coefficients import coefficients
from budget.counted import counted
from budget.drivers import R580, R580_FIX, bottlerocket_runs
from budget.feasibility import feasibility
from budget.findings import Finding
from budget.instances import Instance, gpu_instance
from budget.memory import allocatable_memory_bytes
from budget.price import prices
from budget.problems import BadInput, Problem
from infra import volume_rules, weight_rules
from infra.environment_rules import numbers, release_problem
from infra.environment_settings import Egress
from infra.forecast import budget, cuda_of, facts_of_model, scenario, slo_problem, tensor_parallel, vllm_version
from infra.guardrails import MOST_NODES
from infra.model_settings import Capacity, Model, Nodes
from infra.setting import DIGEST
from infra.specs import ModelSpecs, model_specs
from infra.stack_file import Stack
from nodeconfig import bottlerocket
from serving.engine import refusals

G7_SINCE = ((1, 37), (1, 68, 0))
"""g7 needs driver branch R595: first in Bottlerocket's Kubernetes 1.37 variant, 1.68.0 (bottlerocket#4939)."""
CRON_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of the month", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
SCENARIO_PLACES: Mapping[str, str] = {"model.tensor_parallel": "model.engine.tensor_parallel"}
"""Key of a scenario → the setting it comes from."""
FINDING_PLACES: Mapping[str, str] = {
    "gpu-memory": "model.engine.context_tokens",
    "disk-space": "model.nodes.volume.size_gib",
    "cuda-too-new": "model.nodes.bottlerocket_release",
    "driver-too-old": "model.nodes.bottlerocket_release",
    "driver-cuda": "model.nodes.bottlerocket_release",
}
"""Code of a budget finding → the setting it is about; all others are about the instance."""


def problems(stack: Stack, model: Model) -> Sequence[Problem]:
    """What is wrong with a model's settings, across fields; what follows from them is checked once they hold."""
    return _settings(stack, model) or _followed(stack, model, _derived)


def contradictions(stack: Stack, model: Model) -> Sequence[Problem]:
    """The same without what a plan answers itself: whether the model fits, and how long a start takes."""
    return _settings(stack, model) or _followed(stack, model, _contradictions)


def _settings(stack: Stack, model: Model) -> Sequence[Problem]:
    found = [
        *_pins(stack, model),
        *_image_source(stack, model),
        *_image_facts(model),
        *_scaling(model),
        *_zones(stack, model),
    ]
    try:
        instance = gpu_instance(model.nodes.instance, where="model.nodes.instance")
        facts = facts_of_model(stack, model)
    except BadInput as error:
        return [*found, *error.problems]
    found += [
        *_gpus(model, instance),
        *_purchase(model.nodes, instance),
        *volume_rules.problems(model, instance),
        *_soci(model.nodes),
        *_release(stack, model, instance),
        *_engine(model),
        *_secrets(stack, model),
        *weight_rules.problems(model, ranks=tensor_parallel(model, instance), facts=facts),
    ]
    return found


def _followed(
    stack: Stack, model: Model, rules: Callable[[Stack, Model, ModelSpecs], Sequence[Problem]]
) -> Sequence[Problem]:
    try:
        return rules(stack, model, model_specs(stack, model))
    except BadInput as error:
        places = SCENARIO_PLACES
        return [replace(problem, where=places.get(problem.where, problem.where)) for problem in error.problems]


def warnings(stack: Stack, model: Model) -> Sequence[Problem]:
    """What is allowed, but costs something that the settings don't show."""
    found: list[Problem] = []
    if model.revision is None:
        found.append(Problem("model.revision", "not pinned", f"Run: coldstart pin {stack.name}"))
    if not DIGEST.search(model.image):
        found.append(Problem("model.image", f"{model.image} has no digest", f"Run: coldstart pin {stack.name}"))
    if not _private(model.image) and stack.environment.network.egress is Egress.NAT:
        found.append(
            Problem(
                "model.image",
                "pulled from a public registry through NAT on every new node, at "
                f"${prices().usd['nat_gateway_usd_per_gb']:g} per GB and its rate limits",
                "Copy it into the region's private ECR.",
            )
        )
    specs = model_specs(stack, model)
    found += [
        Problem(FINDING_PLACES.get(finding.code, "model.nodes.instance"), finding.message, finding.fix)
        for finding in _findings(stack, model, specs)
        if finding.level == "warning"
    ]
    found += [] if model.slo.enforce else _slo(stack, model, specs)
    return [*found, *volume_rules.warnings(specs)]


def _pins(stack: Stack, model: Model) -> Iterator[Problem]:
    if not stack.environment.production:
        return
    if model.revision is None:
        yield Problem("model.revision", "not pinned, in a production environment", f"Run: coldstart pin {stack.name}")
    if not DIGEST.search(model.image):
        yield Problem(
            "model.image",
            f"{model.image} has no digest, in a production environment",
            f"Run: coldstart pin {stack.name}",
        )


def _private(image: str) -> re.Match[str] | None:
    return re.match(r"^\d{12}\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?/", image)


def _image_source(stack: Stack, model: Model) -> Iterator[Problem]:
    region, private = stack.environment.region, _private(model.image)
    if private and private[1] != region:
        yield Problem("model.image", f"is in {private[1]}, the environment in {region}", "Copy it into the region.")
    if not private and stack.environment.network.egress is Egress.NONE:
        yield Problem(
            "model.image",
            f"{model.image} is in a public registry, and the environment has no egress",
            f"Copy it to {stack.environment.account}.dkr.ecr.{region}.amazonaws.com and name it from there.",
        )


def _image_facts(model: Model) -> Iterator[Problem]:
    facts = model.image_facts
    if facts is None:
        return
    pinned = model.image.partition("@")[2]
    if facts.digest and pinned and facts.digest != pinned:
        yield Problem(
            "model.image_facts.digest",
            f"{facts.digest[:19]}… is another image than model.image, {pinned[:19]}…",
            "Run `coldstart image inspect STACK --write` again, or remove image_facts.",
        )
    if facts.layers and sum(facts.layers) != facts.compressed_bytes:
        yield Problem(
            "model.image_facts.layers",
            f"sum to {sum(facts.layers)} bytes, compressed_bytes says {facts.compressed_bytes}",
            "Let `coldstart image inspect --write` write both.",
        )
    for name in ("unpacked_layers", "waste_layers"):
        of_each: tuple[int, ...] = getattr(facts, name)
        if of_each and len(of_each) != len(facts.layers):
            yield Problem(
                f"model.image_facts.{name}",
                f"{len(of_each)} of them, and {len(facts.layers)} layers",
                "One for each layer, in the same order: let `coldstart image inspect --write` write them.",
            )
    for index, (waste, size) in enumerate(zip(facts.waste_layers, facts.layers, strict=False)):
        if waste > size:
            yield Problem(
                f"model.image_facts.waste_layers[{index}]",
                f"{waste} bytes in a layer of {size}",
                "At most the layer's own: let `coldstart image inspect --write` write them.",
            )


def _scaling(model: Model) -> Iterator[Problem]:
    scaling = model.scaling
    if scaling.min_replicas > scaling.max_replicas:
        yield Problem(
            "model.scaling.min_replicas",
            f"{scaling.min_replicas} is more than max_replicas {scaling.max_replicas}",
            "Raise max_replicas or lower min_replicas.",
        )
    if scaling.min_replicas == 0 and not scaling.schedule:
        yield Problem(
            "model.scaling.min_replicas",
            "0 without a schedule: a model without a replica has no queue to see, so nothing would ever wake it",
            "Add a model.scaling.schedule, or keep one replica.",
        )
    for index, window in enumerate(scaling.schedule):
        where = f"model.scaling.schedule[{index}]"
        if window.replicas > scaling.max_replicas:
            yield Problem(
                f"{where}.replicas",
                f"{window.replicas} is more than max_replicas {scaling.max_replicas}",
                "Raise max_replicas.",
            )
        yield from _cron(where, window.start, window.end)
        if window.timezone not in zoneinfo.available_timezones():
            yield Problem(f"{where}.timezone", f"{window.timezone!r} is not a time zone", "Use one like Europe/Berlin.")


def _cron(where: str, start: str, end: str) -> Iterator[Problem]:
    """A window whose fields are no times, or that ends when it begins."""
    for name, text in (("start", start), ("end", end)):
        for field, (what, low, high) in zip(text.split(), CRON_FIELDS, strict=True):
            numbers_in = [int(number) for number in re.findall(r"\d+", field.partition("/")[0])]
            if not re.fullmatch(r"[\d*,/-]+", field) or any(not low <= number <= high for number in numbers_in):
                yield Problem(f"{where}.{name}", f"{field!r} is no {what}", f"Use {low} to {high}, *, lists or ranges.")
    if start == end:
        yield Problem(where, f"begins and ends at {start}", "Give it a length.")


def _zones(stack: Stack, model: Model) -> Iterator[Problem]:
    if len(set(model.nodes.zones)) != len(model.nodes.zones):
        yield Problem("model.nodes.zones", f"{list(model.nodes.zones)} names a zone twice", "Name each zone once.")
    known = stack.environment.network.zones
    for zone in model.nodes.zones:
        if zone not in known:
            yield Problem(
                "model.nodes.zones", f"{zone!r} is not a zone of the environment", f"It has {', '.join(known)}."
            )


def _gpus(model: Model, instance: Instance) -> Iterator[Problem]:
    ranks, gpus = tensor_parallel(model, instance), instance.kubernetes_gpus
    where = "model.engine.tensor_parallel"
    if ranks > gpus:
        yield Problem(where, f"{ranks}, but {instance.name} has {counted(gpus, 'GPU')}", f"Use at most {gpus}.")
    elif gpus % ranks:
        fits = [n for n in range(1, gpus + 1) if gpus % n == 0]
        yield Problem(where, f"{ranks} leaves GPUs of {instance.name} ({gpus}) unused", f"Use one of {fits}.")
    sharing = model.nodes.gpu_sharing
    if (sharing.time_slicing or sharing.mig_profile) and ranks > 1:
        yield Problem(
            "model.nodes.gpu_sharing",
            f"with tensor_parallel {ranks}: ranks would wait for each other's turn, or can't reach each other",
            "Share GPUs only with tensor_parallel 1.",
        )


def _purchase(nodes: Nodes, instance: Instance) -> Iterator[Problem]:
    reserved = nodes.capacity in (Capacity.RESERVATION, Capacity.CAPACITY_BLOCK)
    if reserved and nodes.reservation_id is None:
        yield Problem("model.nodes.reservation_id", f"missing for capacity {nodes.capacity}", "Name it: cr-…")
    if nodes.reservation_id and not reserved:
        yield Problem(
            "model.nodes.reservation_id",
            f"set, but capacity is {nodes.capacity}",
            "Set model.nodes.capacity to reservation or capacity-block.",
        )
    if reserved and len(nodes.zones) != 1:
        yield Problem(
            "model.nodes.zones",
            f"{list(nodes.zones)} for capacity {nodes.capacity}",
            "A reservation is in one zone: name that one.",
        )
    if nodes.capacity is Capacity.CAPACITY_BLOCK and "capacity-block" not in instance.usage_classes:
        yield Problem("model.nodes.capacity", f"{instance.name} is not sold as capacity blocks", "Use a P type.")
    if nodes.warm_pool and nodes.capacity in (Capacity.SPOT, Capacity.CAPACITY_BLOCK):
        yield Problem(
            "model.nodes.warm_pool", f"not possible with capacity {nodes.capacity}", "Use on-demand, or no warm pool."
        )


def _soci(nodes: Nodes) -> Iterator[Problem]:
    soci = nodes.soci
    for kind, total, each in (
        ("downloads", soci.max_concurrent_downloads, soci.max_concurrent_downloads_per_image),
        ("unpacks", soci.max_concurrent_unpacks, soci.max_concurrent_unpacks_per_image),
    ):
        if total is not None and each is not None and each > total:
            yield Problem(
                f"model.nodes.soci.max_concurrent_{kind}_per_image",
                f"{each} is more than max_concurrent_{kind} {total}: the snapshotter would not start",
                "Lower it, or leave the cap over all images unset.",
            )


def _release(stack: Stack, model: Model, instance: Instance) -> Iterator[Problem]:
    release = model.nodes.bottlerocket_release
    where = "model.nodes.bottlerocket_release" if release else "environment.bottlerocket_release"
    release = release or stack.environment.bottlerocket_release
    if model.nodes.bottlerocket_release:
        yield from release_problem(where, release)
    kubernetes, g7 = numbers(stack.environment.kubernetes_version), G7_SINCE
    if instance.family == "g7" and (kubernetes < g7[0] or numbers(release) < g7[1]):
        oldest = [".".join(map(str, version)) for version in g7]
        yield Problem(
            "model.nodes.instance",
            "g7 needs driver branch R595, which this release and Kubernetes version lack",
            f"Use Kubernetes {oldest[0]} or newer with Bottlerocket {oldest[1]} or newer, or another family.",
        )
    version = vllm_version(model)
    cuda = cuda_of(version)
    if version and cuda and not bottlerocket_runs(cuda, numbers(release)):
        yield Problem(
            where,
            f"{release} has a driver older than R{R580}, and vLLM {'.'.join(map(str, version))} carries CUDA {cuda[0]}",
            R580_FIX,
        )


def _engine(model: Model) -> Iterator[Problem]:
    version = vllm_version(model)
    if version is None:
        yield Problem(
            "model.engine.version",
            f"missing, and the tag of {model.image} names none",
            "Name vLLM's version, or keep a tag like v0.27.1 before the digest.",
        )
        return
    yield from refusals(version, model.engine.args)


def _secrets(stack: Stack, model: Model) -> Iterator[Problem]:
    if model.engine.require_api_key and "apiKey" not in stack.secrets:
        yield Problem(
            "coldstart:apiKey",
            "not set, but model.engine.require_api_key is true",
            f"Set it: pulumi config set --secret coldstart:apiKey --stack {stack.name}",
        )


def _derived(stack: Stack, model: Model, specs: ModelSpecs) -> Sequence[Problem]:
    """What follows from settings that are each valid: do model and GPU fit, pod and node, start and objective?"""
    found = [
        Problem(FINDING_PLACES.get(finding.code, "model.nodes.instance"), finding.message, finding.fix)
        for finding in _findings(stack, model, specs)
        if finding.level == "error"
    ]
    late = _slo(stack, model, specs) if model.slo.enforce else ()
    return [*found, *_contradictions(stack, model, specs), *_host_memory(specs), *late]


def _contradictions(stack: Stack, model: Model, specs: ModelSpecs) -> Sequence[Problem]:
    del stack
    return [
        *volume_rules.resulting(specs),
        *_group_size(specs),
        *bottlerocket.refusals(specs.node),
        *_slices(model, specs),
        *_cooldown(model, specs),
    ]


def _slo(stack: Stack, model: Model, specs: ModelSpecs) -> Sequence[Problem]:
    problem = slo_problem(model, budget(stack, model, specs.node))
    return [problem] if problem else []


def _findings(stack: Stack, model: Model, specs: ModelSpecs) -> Sequence[Finding]:
    """What the budget room says of this model on this instance. Host memory is checked on the pod as it is rendered."""
    found = feasibility(scenario(stack, model, specs.node), coefficients())
    return [finding for finding in found if finding.code != "host-memory"]


def _group_size(specs: ModelSpecs) -> Iterator[Problem]:
    if specs.max_nodes > MOST_NODES:
        yield Problem(
            "model.scaling.max_replicas",
            f"takes {specs.max_nodes} nodes, a group may have {MOST_NODES}",
            "Lower it, or use instances that hold more replicas.",
        )


def _slices(model: Model, specs: ModelSpecs) -> Iterator[Problem]:
    """Whether the weights fit the slice of a GPU that a pod gets, and pods that take turns fit on one together."""
    profile, pods = specs.node.sharing.mig_profile, specs.node.sharing.time_slicing
    asked = model.engine.gpu_memory_utilization
    if pods and pods * asked > 1:
        yield Problem(
            "model.nodes.gpu_sharing.time_slicing",
            f"{pods} pods share a GPU's memory and each takes {asked:g} of it",
            f"Set model.engine.gpu_memory_utilization to {math.floor(100 / pods) / 100:g} or less, or share it less.",
        )
    if profile is None:
        return
    named = re.search(r"\.(\d+)gb$", profile)
    whole = specs.node.instance.gpu_memory_bytes
    slice_bytes = int(named[1]) * 10**9 if named else whole // int(profile)
    if specs.weights_bytes > slice_bytes * asked:
        yield Problem(
            "model.nodes.gpu_sharing.mig_profile",
            f"{profile} gives a pod {slice_bytes / 1e9:.0f} GB, the weights alone take {specs.weights_bytes / 1e9:.0f}",
            "Choose a larger slice, or none.",
        )


def _host_memory(specs: ModelSpecs) -> Iterator[Problem]:
    instance, pods = specs.node.instance, specs.pods_per_node
    room = allocatable_memory_bytes(instance) // pods
    if specs.serving.memory_bytes > room:
        yield Problem(
            "model.nodes.instance",
            f"a pod needs {specs.serving.memory_bytes / 2**30:.0f} GiB of host memory, "
            f"{instance.name} leaves {room / 2**30:.0f} GiB for each of its pods",
            "Choose an instance with more memory, or lower model.weights.streamer_memory_gib.",
        )


def _cooldown(model: Model, specs: ModelSpecs) -> Iterator[Problem]:
    cooldown, slowest = model.scaling.cooldown_s, specs.slowest_start_s
    if cooldown is not None and cooldown < slowest:
        yield Problem(
            "model.scaling.cooldown_s",
            f"{cooldown} s is shorter than the slowest predicted start of {slowest:.0f} s: "
            "a pod could be scaled away while it loads",
            f"Use {slowest:.0f} or more, or leave it unset.",
        )
