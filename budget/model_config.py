"""A model's `config.json`: one fact, many spellings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from budget.problems import bad_input

Json = Mapping[str, object]


def json_object(value: object) -> Json:
    """A JSON object as it stands, anything else as an empty one."""
    return cast("Json", value) if isinstance(value, Mapping) else cast("Json", {})


def text_config(config: Json) -> Json:
    """The language part of a config: multimodal ones nest it."""
    for key in ("text_config", "llm_config", "language_config"):
        nested = config.get(key)
        if isinstance(nested, Mapping):
            return {**config, **cast("Json", nested)}
    return config


def architecture(config: Json) -> str:
    """Name of the model class, else the model type."""
    names = config.get("architectures")
    listed = cast("list[object]", names) if isinstance(names, list) else []
    return str(listed[0]) if listed else str(config.get("model_type", "unknown"))


def number(config: Json, *keys: str) -> int | None:
    """The first of the keys that holds an integer; models spell the same fact differently."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def required(config: Json, *keys: str) -> int:
    """As `number`, and it is there and positive.

    Raises:
        BadInput: none of the keys is.
    """
    value = number(config, *keys)
    if value is None or value <= 0:
        raise bad_input("config.json", f"has none of {', '.join(keys)}", "Use the config.json of a decoder model.")
    return value
