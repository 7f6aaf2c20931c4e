"""The scenario file of `coldstart plan`: parsed once, every mistake named at once, and written back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from budget.disk import GP3_DEFAULT_IOPS, Disk
from budget.instances import Instance, instance
from budget.models import ModelFacts, known_models
from budget.models import model as model_facts
from budget.problems import BadInput, Problem, bad_input, did_you_mean
from budget.scenario import (
    EngineCase,
    HostCase,
    ImageCase,
    LayerCase,
    ModelCase,
    NodeCase,
    PullCase,
    Scenario,
    WarmupCase,
    WeightsCase,
    problems_of,
)
from infra.forecast import TYPICAL_ENGINE_IMAGE_BYTES

_Made = TypeVar("_Made")
TB = 1e12
IOPS_PER_MIB_S = 4
"""gp3 grants 0.25 MiB/s per provisioned IOPS (EBS documentation)."""
COMMON_TENSOR_PARALLEL = (1, 2, 4, 8, 16)
"""Sizes that divide the heads of nearly every model; others need `model.attention_heads` to be checked."""


def _number(value: object) -> object:
    """YAML reads `yes` as a boolean and `1e9` as text: the first is not a number, the second is."""
    if isinstance(value, bool):
        raise ValueError("is true or false, not a number")  # noqa: TRY004 - pydantic collects value errors
    return value


def _whole_layers(value: object) -> object:
    """Upstream tools write 0 for what null says here: one request per layer."""
    return None if value == 0 and not isinstance(value, bool) else value


def _version(value: object) -> object:
    """`0.33` comes as a number from YAML; versions are compared part by part."""
    if isinstance(value, bool):
        raise ValueError("is true or false, not a version")  # noqa: TRY004 - pydantic collects value errors
    return str(value) if isinstance(value, int | float) else value


Number = Annotated[float, BeforeValidator(_number)]
Whole = Annotated[int, BeforeValidator(_number)]
Version = Annotated[str, BeforeValidator(_version), Field(pattern=r"^\d+\.\d+(\.\d+)?$")]
Bytes = Annotated[Number, Field(gt=0, le=10 * TB)]
Rate = Annotated[Number, Field(gt=0, le=1e6)]


class _Tree(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Node(_Tree):
    warm: bool = False
    driver: Annotated[Whole, Field(ge=400, le=999)] | None = None


class _Layer(_Tree):
    bytes: Bytes
    unpacked_bytes: Bytes | None = None
    waste_bytes: Annotated[Number, Field(ge=0, le=TB)] | None = None


class _Image(_Tree):
    bytes: Annotated[Number, Field(gt=0, le=TB)] = TYPICAL_ENGINE_IMAGE_BYTES
    layers: Annotated[tuple[Bytes | _Layer, ...], Field(min_length=1, max_length=500)] | None = None
    unpack_ratio: Annotated[Number, Field(ge=1, le=200)] | None = None
    registry: Literal["ecr", "docker-hub"] = "ecr"
    cached: bool = False
    hydration_mib_s: Annotated[Number, Field(ge=100, le=300)] | None = None
    cuda: Version | None = None


class _Pull(_Tree):
    snapshotter: Literal["soci", "overlayfs"] = "soci"
    downloads: Annotated[Whole, Field(ge=1, le=1024)] = 20
    unpacks: Annotated[Whole, Field(ge=1, le=256)] = 12
    chunk_bytes: Annotated[Annotated[Number, Field(ge=2**16, le=1e11)] | None, BeforeValidator(_whole_layers)] = (
        16_000_000
    )
    decompressor: Literal["igzip", "unpigz", "go", "zstd"] = "igzip"
    discard: bool | None = None


class _Disk(_Tree):
    kind: Literal["nvme", "gp3", "io2"]
    throughput_mib_s: Annotated[Number, Field(ge=1, le=4_000)] = 125
    iops: Annotated[Number, Field(ge=100, le=256_000)] | None = None
    size_gib: Annotated[Number, Field(ge=1, le=65_536)] | None = None


class _Model(_Tree):
    name: str | None = None
    weights_bytes: Bytes | None = None
    layers: Annotated[Whole, Field(ge=1, le=1_000)] | None = None
    parameters: Annotated[Number, Field(ge=1e6, le=1e14)] | None = None
    tensor_parallel: Annotated[Whole, Field(ge=1, le=64)] = 1
    attention_heads: Annotated[Whole, Field(ge=1, le=4_096)] | None = None
    kv_heads: Annotated[Whole, Field(ge=1, le=4_096)] | None = None
    quantization: Literal["fp8", "awq", "gptq", "mxfp4", "nvfp4", "int8"] | None = None
    context_tokens: Annotated[Whole, Field(ge=1, le=100_000_000)] | None = None
    concurrency: Annotated[Whole, Field(ge=1, le=65_536)] = 1


class _Weights(_Tree):
    path: Literal["stream", "download", "local", "baked", "shared-fs"] = "stream"
    source: Literal["s3", "hub", "disk"] | None = None
    concurrency: Annotated[Whole, Field(ge=1, le=4_096)] = 32
    files: Annotated[Whole, Field(ge=1, le=10_000)] | None = None
    distributed: bool = False
    shared_mb_s: Rate | None = None
    streamer: Version = "0.17"
    clients: Annotated[Whole, Field(ge=1, le=1_024)] | None = None
    memory_limit_bytes: Annotated[Whole, Field(ge=-1, le=10**13)] | None = None


class _Engine(_Tree):
    compile_cache: Literal["hit", "miss", "none"] = "miss"
    eager: bool = False
    capture_sizes: Annotated[Whole, Field(ge=0, le=2_000)] = 67
    cpu_factor: Annotated[Number, Field(ge=0.05, le=20)] | None = None
    version: Version | None = None
    startup_plan: bool = False
    gpu_memory_utilization: Annotated[Number, Field(gt=0.1, le=0.99)] = 0.9


class _Warmup(_Tree):
    requests: Annotated[Whole, Field(ge=0, le=10_000)] = 5


class _Host(_Tree):
    cores: Annotated[Number, Field(gt=0, le=1_024)] | None = None
    memory_bytes: Annotated[Number, Field(gt=1e6, le=100 * TB)] | None = None
    network_mb_s: Rate | None = None
    connection_mb_s: Rate | None = None
    unpack_layer_mb_s: Rate | None = None
    unpack_cpu_s_per_gb: Annotated[Number, Field(ge=0, le=1_000)] | None = None
    disk_mb_s: Rate | None = None
    dirty_bytes: Annotated[Number, Field(ge=1, le=100 * TB)] | None = None


class _File(_Tree):
    instance: str
    node: _Node = _Node()
    image: _Image = _Image()
    pull: _Pull = _Pull()
    disk: _Disk | None = None
    model: _Model
    weights: _Weights = _Weights()
    engine: _Engine = _Engine()
    warmup: _Warmup = _Warmup()
    host: _Host = _Host()


# --- reading ----------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice: the second would silently win."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [key.value for key, _ in node.value]
    for key in keys:
        if keys.count(key) > 1:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", node.start_mark)
    return dict(loader.construct_pairs(node, deep=True))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read(path: Path) -> Scenario:
    """The scenario of a YAML or JSON file.

    Raises:
        BadInput: no such file, no mapping, or everything that is wrong with its keys.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise bad_input(str(path), f"cannot be read: {reason}", "Give a scenario file, YAML or JSON.") from error
    try:
        document: object = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader that also refuses doubled keys
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path} line {mark.line + 1}" if mark is not None else str(path)
        raise bad_input(where, f"is no YAML: {getattr(error, 'problem', error)}", "Mend the syntax.") from error
    if not isinstance(document, dict):
        raise bad_input(str(path), "is not a mapping", f"Its keys are {', '.join(_File.model_fields)}.")
    return parse(cast("dict[str, object]", document))


def parse(document: Mapping[str, object]) -> Scenario:
    """The scenario of a parsed file.

    Contradictions between keys are looked for even when single keys are wrong, so that one run shows every mistake.

    Raises:
        BadInput: everything wrong with it.
    """
    problems: list[Problem] = []
    tree = _validated(document, problems)
    scenario = _scenario(tree, problems) if tree is not None else None
    if scenario is not None:
        problems.extend(problems_of(scenario))
        problems.extend(_absurd(scenario))
    if problems:
        raise BadInput(_told_once(problems))
    assert scenario is not None  # noqa: S101 - no problem means that it was built
    return scenario


def _told_once(problems: Sequence[Problem]) -> list[Problem]:
    """A wrong value is left out to look at the rest: it is then not missing as well."""
    wrong = {problem.where for problem in problems if problem.found != "missing"}
    return [each for each in dict.fromkeys(problems) if each.found != "missing" or each.where not in wrong]


def _validated(document: Mapping[str, object], problems: list[Problem]) -> _File | None:
    """The typed file; wrong keys are reported, left out, and the rest is tried again without them."""
    try:
        return _File.model_validate(document)
    except ValidationError as error:
        problems.extend(_problem(detail) for detail in error.errors())
        pruned = _without(document, [detail["loc"] for detail in error.errors()])
    try:
        return _File.model_validate(pruned)
    except ValidationError:
        return None


def _without(value: object, locations: Sequence[tuple[int | str, ...]]) -> Any:  # noqa: ANN401 - a YAML document
    if isinstance(value, dict):
        items = cast("dict[str, object]", value)
        gone = {location[0] for location in locations if len(location) == 1}
        kept = {key: item for key, item in items.items() if key not in gone}
        return {
            key: _without(item, [location[1:] for location in locations if len(location) > 1 and location[0] == key])
            for key, item in kept.items()
        }
    # A wrong element spoils its list; the list goes, the layers are then unknown.
    return None if locations and isinstance(value, list) else value


def _problem(detail: ErrorDetails) -> Problem:
    keys = [part for part in detail["loc"] if not str(part).endswith("]") and part != "_Layer"]
    where = ""
    for part in keys:
        where += f"[{part}]" if isinstance(part, int) else f"{'.' if where else ''}{part}"
    kind = detail["type"]
    if kind == "extra_forbidden":
        return Problem(where, "unknown key", did_you_mean(str(detail["loc"][-1]), _siblings(detail["loc"])))
    if kind == "missing":
        return Problem(where, "missing", "It is required.")
    shown = repr(detail["input"])
    return Problem(where, f"found {shown if len(shown) <= 60 else shown[:57] + '...'}", _allowed(detail))  # noqa: PLR2004 - what fits on a line


def _siblings(location: Sequence[int | str]) -> Sequence[str]:
    tree: type[BaseModel] = _File
    for part in location[:-1]:
        if part == "_Layer":
            return list(_Layer.model_fields)
        field = tree.model_fields.get(str(part))
        nested = [kind for kind in (field.annotation, *get_args(field.annotation)) if _is_tree(kind)] if field else []
        if not nested:
            return list(tree.model_fields)
        tree = cast("type[BaseModel]", nested[0])
    return list(tree.model_fields)


def _is_tree(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _allowed(detail: ErrorDetails) -> str:
    """What would be right, from pydantic's own words."""
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return f"Allowed: {message}." if not message.startswith("is ") else f"It {message}."


# --- to the budget's types --------------------------------------------------------------------------------------------


def _scenario(tree: _File, problems: list[Problem]) -> Scenario | None:
    kind = _collected(problems, lambda: instance(tree.instance))
    model = _model(tree.model, problems)
    if kind is None or model is None:
        return None
    disk, size = _disk(tree, kind)
    image = tree.image
    layers = tuple(_layer(layer) for layer in image.layers) if image.layers is not None else None
    source = tree.weights.source or ("s3" if tree.weights.path in {"stream", "download"} else "disk")
    return Scenario(
        instance=kind,
        node=NodeCase(warm=tree.node.warm, driver=tree.node.driver),
        image=ImageCase(
            bytes=image.bytes,
            layers=layers,
            unpack_ratio=image.unpack_ratio,
            registry=image.registry,
            cached=image.cached,
            hydration_mib_s=image.hydration_mib_s,
            cuda=_pair(image.cuda),
        ),
        pull=PullCase(**tree.pull.model_dump()),
        disk=disk,
        disk_gib=size,
        model=model,
        weights=WeightsCase(
            **tree.weights.model_dump(exclude={"source", "streamer"}),
            source=source,
            streamer=_pair(tree.weights.streamer) or (0, 17),
        ),
        engine=EngineCase(**tree.engine.model_dump(exclude={"version"}), version=_pair(tree.engine.version)),
        warmup=WarmupCase(requests=tree.warmup.requests),
        host=HostCase(**tree.host.model_dump()),
    )


def _collected(problems: list[Problem], make: Callable[[], _Made]) -> _Made | None:
    try:
        return make()
    except BadInput as error:
        problems.extend(error.problems)
        return None


def _pair(version: str | None) -> tuple[int, int] | None:
    if version is None:
        return None
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _layer(layer: float | _Layer) -> LayerCase:
    if isinstance(layer, _Layer):
        return LayerCase(bytes=layer.bytes, unpacked_bytes=layer.unpacked_bytes, waste_bytes=layer.waste_bytes)
    return LayerCase(bytes=layer)


def _disk(tree: _File, kind: Instance) -> tuple[Disk, float | None]:
    if tree.disk is None:
        return Disk(kind="nvme" if kind.nvme_disks else "gp3"), None
    stated = tree.disk
    needed = max(GP3_DEFAULT_IOPS, IOPS_PER_MIB_S * stated.throughput_mib_s)
    iops = needed if stated.iops is None else stated.iops
    return Disk(kind=stated.kind, throughput_mib_s=stated.throughput_mib_s, iops=iops), stated.size_gib


def _model(tree: _Model, problems: list[Problem]) -> ModelCase | None:
    facts = None
    if tree.name is not None:
        facts = _collected(problems, lambda: model_facts(str(tree.name), where="model.name"))
        if facts is None:
            return None
    missing = [key for key in ("weights_bytes", "layers") if getattr(tree, key) is None and facts is None]
    problems.extend(
        Problem(f"model.{key}", "missing", f"Give it, or model.name of a known model ({_some_models()}).")
        for key in missing
    )
    return None if missing else _model_case(tree, facts)


def _some_models() -> str:
    return ", ".join(list(known_models())[:3]) + ", ..."


def _model_case(tree: _Model, facts: ModelFacts | None) -> ModelCase:
    weights = tree.weights_bytes or (facts.weights_bytes if facts else 0.0)
    return ModelCase(
        weights_bytes=weights,
        layers=tree.layers or (facts.layers if facts else 0),
        parameters=tree.parameters or (facts.parameters if facts else weights / 2),
        tensor_parallel=tree.tensor_parallel,
        attention_heads=tree.attention_heads or (facts.attention_heads if facts else None),
        kv_heads=tree.kv_heads or (facts.kv_heads if facts else None),
        quantization=tree.quantization or (facts.quantization if facts else None),
        facts=facts,
        context_tokens=tree.context_tokens,
        concurrency=tree.concurrency,
    )


LEAST_BYTES_PER_PARAMETER, MOST_BYTES_PER_PARAMETER = 0.1, 8.0


def _absurd(scenario: Scenario) -> Iterator[Problem]:
    """Single values that are possible, together with others that make them impossible."""
    model = scenario.model
    each = model.weights_bytes / model.parameters
    if not LEAST_BYTES_PER_PARAMETER <= each <= MOST_BYTES_PER_PARAMETER:
        yield Problem(
            "model.parameters",
            f"{model.parameters:.3g} parameters in {model.weights_bytes:.3g} bytes are {each:.3g} bytes each",
            f"Allowed: {LEAST_BYTES_PER_PARAMETER:g} to {MOST_BYTES_PER_PARAMETER:g}; 2 for bf16, 1 for FP8.",
        )
    if model.attention_heads is None and model.tensor_parallel not in COMMON_TENSOR_PARALLEL:
        yield Problem(
            "model.tensor_parallel",
            f"{model.tensor_parallel} divides the heads of hardly any model",
            f"Allowed: {', '.join(str(size) for size in COMMON_TENSOR_PARALLEL)}; for others give"
            " model.attention_heads.",
        )
    for index, layer in enumerate(scenario.image.layers or ()):
        if layer.unpacked_bytes is not None and not 0.5 <= layer.unpacked_bytes / layer.bytes <= 200:  # noqa: PLR2004 - a tar header's worth below one, a layer bomb above
            yield Problem(
                f"image.layers[{index}].unpacked_bytes",
                f"{layer.unpacked_bytes:.0f} bytes out of {layer.bytes:.0f}",
                "Allowed: 0.5 to 200 times the compressed bytes.",
            )
        if layer.waste_bytes is not None and layer.waste_bytes > layer.bytes:
            yield Problem(
                f"image.layers[{index}].waste_bytes",
                f"{layer.waste_bytes:.0f} bytes in a layer of {layer.bytes:.0f}",
                "At most the layer's own compressed bytes.",
            )
