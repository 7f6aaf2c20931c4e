"""From what a person wrote to typed settings: every problem at once, each with its key path and its mend."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from budget.models import ModelFacts, facts_document, facts_from
from budget.problems import BadInput, Problem, bad_input, did_you_mean
from infra.environment_settings import Environment
from infra.model_settings import Model
from infra.paused import CONFIG_KEY
from infra.settings import KINDS
from infra.shapes import EXAMPLES

PROJECT = "coldstart"
SECRETS = frozenset({"apiKey"})
"""Secrets a stack may set, `pulumi config set --secret coldstart:<name>`."""
STACKS = Path(__file__).parent / "stacks"
_STACK_NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,61}[a-z0-9]$")


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A stack file, parsed.

    Attributes:
        name: stack name, as in `Pulumi.<name>.yaml`.
        environment: settings of the environment itself, or of the one the model runs on.
        model: settings of the model; None in an environment stack.
        secrets: names of the secrets that are set; their values never come here.
        paused: `coldstart pause` holds its GPU nodes at zero.
        facts: of its model, from the file beside the stack file; None where there is none.
        directory: folder of the stack file, and of what is kept beside it.
    """

    name: str
    environment: Environment
    model: Model | None
    secrets: frozenset[str] = frozenset()
    paused: bool = False
    facts: ModelFacts | None = None
    directory: Path = STACKS

    @property
    def environment_name(self) -> str:
        """Name of the environment stack."""
        return self.model.environment if self.model else self.name

    @property
    def slug(self) -> str:
        """What is left of a model stack's name without its environment: names namespace, Service and identity."""
        return self.name.removeprefix(f"{self.environment_name}-")


def names(directory: Path = STACKS) -> Sequence[str]:
    """Names of all stack files in a folder; a file whose name no stack could have is left out."""
    found = (path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in directory.glob("Pulumi.*.yaml"))
    return sorted(name for name in found if _STACK_NAME.match(name))


def path_of(name: str, directory: Path = STACKS) -> Path:
    """Where a stack's file lies.

    Raises:
        BadInput: it can't be a stack's name, or there is no such stack; names the close ones.
    """
    if not _STACK_NAME.match(name):
        fix = "One has 2 to 63 lower-case letters, digits and hyphens, and neither begins nor ends with a hyphen."
        raise bad_input(name, "is not a valid stack name", fix)
    path = directory / f"Pulumi.{name}.yaml"
    if not path.is_file():
        raise bad_input(name, f"there is no stack file {path.name}", did_you_mean(name, names(directory)))
    return path


def facts_path(name: str, directory: Path = STACKS) -> Path:
    """Where the facts of a stack's model are kept when they do not ship: beside its file, to be committed with it."""
    return directory / f"facts.{name}.json"


def write_facts(name: str, facts: ModelFacts, directory: Path = STACKS) -> None:
    """Keeps the facts of a stack's model, for every later evaluation to read."""
    text = json.dumps(facts_document(facts), indent=1, sort_keys=True) + "\n"
    facts_path(name, directory).write_text(text, encoding="utf-8")


def _facts(name: str, directory: Path) -> ModelFacts | None:
    path = facts_path(name, directory)
    if not path.is_file():
        return None
    try:
        return facts_from(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError) as error:
        raise bad_input(path.name, "holds no facts of a model", f"Delete it and run: coldstart pin {name}") from error


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice: YAML would let the last one win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - the library's signature
        keys = [key.value for key, _ in node.value]
        for key_node, _ in node.value:
            if keys.count(key_node.value) > 1:
                words = f"{key_node.value} stands here twice"
                raise yaml.constructor.ConstructorError(problem=words, problem_mark=key_node.start_mark)
        return super().construct_mapping(node, deep)


def config_of(name: str, directory: Path = STACKS) -> dict[str, Any]:
    """The `config:` section of a stack file, keys with their namespace.

    Raises:
        BadInput: no such stack, or the file is no YAML mapping.
    """
    path = path_of(name, directory)
    try:
        document: object = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a safe loader
    except UnicodeDecodeError as error:
        raise bad_input(path.name, f"byte {error.start} is no UTF-8", "Save the file as UTF-8.") from error
    except RecursionError as error:
        raise bad_input(path.name, "is nested too deeply", "Copy one of the shipped stack files.") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark is not None else ""
        raise bad_input(f"{path.name}{line}", "not YAML", str(getattr(error, "problem", error))) from error
    config = document.get("config") if isinstance(document, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - YAML is untyped until parsed below
    if not isinstance(config, dict):
        raise bad_input(path.name, "has no `config:` section", "Copy one of the shipped stack files.")
    return {str(key): value for key, value in config.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - as above


def parse(name: str, config: Mapping[str, Any], directory: Path = STACKS) -> Stack:
    """Settings of a stack from its config values (keys `coldstart:environment` or `coldstart:model`).

    The engine hands the same values to the program that a stack file holds, so this is the only way in. A model's
    environment is read from its own stack file beside it.

    Raises:
        BadInput: every problem found, each with its key path.
    """
    kind = _kind(name, config)
    tree = _tree(kind, config[f"{PROJECT}:{kind}"])
    paused = _paused(kind, config)
    if isinstance(tree, Environment):
        return Stack(name=name, environment=tree, model=None, directory=directory)
    model = Model.model_validate(tree)
    _check_name(name, model)
    secrets = frozenset(secret for secret in SECRETS if f"{PROJECT}:{secret}" in config)
    return Stack(
        name=name,
        environment=_environment_of(model, directory),
        model=model,
        secrets=secrets,
        paused=paused,
        facts=_facts(name, directory),
        directory=directory,
    )


def read(name: str, directory: Path = STACKS) -> Stack:
    """Settings of a stack from its file.

    Raises:
        BadInput: as `config_of` and `parse`.
    """
    return parse(name, config_of(name, directory), directory)


def _kind(name: str, config: Mapping[str, Any]) -> str:
    known = {f"{PROJECT}:{kind}": kind for kind in KINDS}
    ours = [key for key in config if _is_meant_for_us(key)]
    others = {f"{PROJECT}:{secret}" for secret in SECRETS} | {f"{PROJECT}:{CONFIG_KEY}"}
    problems = [
        Problem(key, "unknown key", did_you_mean(key, known.keys() | others))
        for key in ours
        if key not in known and key not in others
    ]
    kinds = [known[key] for key in ours if key in known and config[key]]
    if len(kinds) != 1 and not problems:
        found = "sets both an environment and a model" if kinds else "sets neither an environment nor a model"
        problems = [Problem(f"Pulumi.{name}.yaml", found, "A stack is one of them: set one of " + " or ".join(known))]
    if problems:
        raise BadInput(problems)
    return kinds[0]


def _is_meant_for_us(key: str) -> bool:
    """A key of this project, or of one spelled almost like it, which would otherwise be ignored without a word."""
    namespace = key.partition(":")[0]
    return namespace == PROJECT or bool(get_close_matches(namespace, [PROJECT], cutoff=0.8))


def _paused(kind: str, config: Mapping[str, Any]) -> bool:
    """Whether `coldstart pause` wrote its mark; the engine hands every value over as text."""
    key = f"{PROJECT}:{CONFIG_KEY}"
    value = config.get(key)
    known = {None: False, True: True, False: False, "true": True, "false": False}
    if not isinstance(value, bool | str | None) or value not in known:
        raise bad_input(key, f"found {_shown(value)}", "`coldstart pause` writes true; `coldstart resume` removes it.")
    if known[value] and kind != "model":
        raise bad_input(key, "set in an environment", "Only a model has GPU nodes: coldstart pause MODEL-STACK.")
    return known[value]


def _tree(kind: str, value: object) -> BaseModel:
    try:
        return KINDS[kind].model_validate(value)
    except ValidationError as error:
        raise BadInput(_problem(kind, detail) for detail in error.errors()) from None


def _check_name(name: str, model: Model) -> None:
    if not name.startswith(f"{model.environment}-"):
        raise bad_input(
            "model.environment",
            f"stack {name!r} is not a stack of environment {model.environment!r}",
            f"A model stack is named after its environment: {model.environment}-<name>.",
        )


def _environment_of(model: Model, directory: Path) -> Environment:
    environments = [name for name in names(directory) if f"{PROJECT}:environment" in config_of(name, directory)]
    if model.environment not in environments:
        raise bad_input(
            "model.environment",
            f"{model.environment!r} is not an environment stack",
            did_you_mean(model.environment, environments) if environments else "Write an environment stack first.",
        )
    config = config_of(model.environment, directory)
    return Environment.model_validate(_tree("environment", config[f"{PROJECT}:environment"]))


# ---- pydantic's errors, in words ----------------------------------------------------------------------------------


def _problem(kind: str, detail: ErrorDetails) -> Problem:
    where = _key_path(kind, detail["loc"])
    match detail["type"]:
        case "extra_forbidden":
            siblings = _fields(kind, detail["loc"][:-1])
            return Problem(where, "unknown key", did_you_mean(str(detail["loc"][-1]), siblings))
        case "missing":
            return Problem(where, "missing", f"It is required: {_meaning(kind, detail['loc'])}")
        case _:
            meaning, unit = _meaning(kind, detail["loc"]), _unit(kind, detail["loc"])
            return Problem(where, f"found {_shown(detail['input'])}", f"{_expected(detail, unit)} {meaning}")


def _key_path(kind: str, location: Sequence[int | str]) -> str:
    path = kind
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - what fits on a line beside the rest


def _expected(detail: ErrorDetails, unit: str) -> str:
    if detail["type"].startswith("int_"):
        return f"Write a whole number{f' of {unit}' if unit else ''}, without a unit behind it."
    limits = detail.get("ctx", {})
    if detail["type"] == "string_pattern_mismatch" and limits["pattern"] in EXAMPLES:
        return f"Write one like {EXAMPLES[limits['pattern']]}."
    if detail["type"] in ("too_short", "too_long"):
        few = detail["type"] == "too_short"
        return f"List {limits['min_length']} or more." if few else f"List {limits['max_length']} or fewer."
    message = detail["msg"].removeprefix("Input ").removeprefix("String ").removeprefix("Value ")
    return f"It {message}{f' ({unit})' if unit else ''}."


def field_at(kind: str, location: Sequence[int | str]) -> tuple[type[BaseModel] | None, str]:
    """The tree that holds a key, and the key's own name; the tree is None when the path leads nowhere."""
    keys = [part for part in location if isinstance(part, str)]
    return _tree_at(kind, keys[:-1]), keys[-1] if keys else kind


def _tree_at(kind: str, keys: Sequence[str]) -> type[BaseModel] | None:
    tree: type[BaseModel] | None = KINDS[kind]
    for key in keys:
        field = tree.model_fields.get(key) if tree else None
        tree = subtree(field.annotation) if field else None
    return tree


def subtree(annotation: object) -> type[BaseModel] | None:
    """The settings tree inside an annotation such as `WarmPool | None` or `tuple[Window, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((tree for part in get_args(annotation) if (tree := subtree(part))), None)


def _fields(kind: str, location: Sequence[int | str]) -> Sequence[str]:
    tree = _tree_at(kind, [part for part in location if isinstance(part, str)])
    return sorted(tree.model_fields) if tree else []


def _meaning(kind: str, location: Sequence[int | str]) -> str:
    field = _field(kind, location)
    return field.description or "" if field else ""


def _unit(kind: str, location: Sequence[int | str]) -> str:
    field = _field(kind, location)
    extra = field.json_schema_extra if field else None
    return str(cast("dict[str, object]", extra).get("unit", "")) if isinstance(extra, dict) else ""


def _field(kind: str, location: Sequence[int | str]) -> FieldInfo | None:
    tree, key = field_at(kind, location)
    return tree.model_fields.get(key) if tree else None
