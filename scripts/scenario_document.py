"""A scenario written back as the file that gives it."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from budget.models import known_models
from budget.scenario import LayerCase, Scenario

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def document_of(scenario: Scenario) -> dict[str, Any]:
    """The file that gives this scenario again."""
    image, model, weights, engine = scenario.image, scenario.model, scenario.weights, scenario.engine
    layers = None if image.layers is None else [_written(layer) for layer in image.layers]
    return {
        "instance": scenario.instance.name,
        "node": {"warm": scenario.node.warm, "driver": scenario.node.driver},
        "image": {
            "bytes": image.bytes,
            "layers": layers,
            "unpack_ratio": image.unpack_ratio,
            "registry": image.registry,
            "cached": image.cached,
            "hydration_mib_s": image.hydration_mib_s,
            "cuda": _text(image.cuda),
        },
        "pull": asdict(scenario.pull),
        "disk": {
            "kind": scenario.disk.kind,
            "throughput_mib_s": scenario.disk.throughput_mib_s,
            "iops": scenario.disk.iops,
            "size_gib": scenario.disk_gib,
        },
        "model": {
            "name": model.facts.name if model.facts is not None and model.facts.name in known_models() else None,
            **{name: value for name, value in _fields(model).items() if name != "facts"},
        },
        "weights": {
            **_fields(weights),
            "streamer": _text(weights.streamer),
        },
        "engine": {
            **_fields(engine),
            "version": _text(engine.version),
        },
        "warmup": {"requests": scenario.warmup.requests},
        "host": asdict(scenario.host),
    }


def _fields(part: DataclassInstance) -> dict[str, Any]:
    """The fields of one part as they stand; facts are not unfolded."""
    return {each.name: getattr(part, each.name) for each in fields(part)}


def _written(layer: LayerCase) -> float | dict[str, float]:
    known = {name: value for name, value in asdict(layer).items() if value is not None}
    return known if len(known) > 1 else layer.bytes


def _text(version: tuple[int, int] | None) -> str | None:
    return None if version is None else f"{version[0]}.{version[1]}"
