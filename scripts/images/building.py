"""`coldstart image build`: the slim image of a stack's engine, rendered and built."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from budget.instances import gpu_instance
from budget.problems import bad_input
from infra.stack_file import STACKS, read
from scripts.images.builder import builder_at_hand
from scripts.images.dockerfile import BASE, UNRESOLVED, recipe_of, write_context
from scripts.images.places import reference_of
from scripts.registry import ARCHITECTURES, HttpRegistry


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildWish:
    """What is asked for; see the options of the verb."""

    tag: str | None = None
    base: str | None = None
    requirements: Path | None = None
    wheels: Path | None = None
    output: Path | None = None
    render_only: bool = False
    builder: str | None = None
    builder_options: tuple[str, ...] = ()


def build(name: str, wish: BuildWish, directory: Path = STACKS) -> Mapping[str, Any]:
    """Renders the build context of a stack's engine, and builds it.

    Args:
        name: of a model stack.
        wish: what is asked for.
        directory: where stack files are.

    Returns:
        What was made, for `--json`.

    Raises:
        BadInput: a wish that can't be fulfilled.
        Failure: the base can't be resolved, no builder, or the build failed.
    """
    stack = read(name, directory)
    if wish.render_only and wish.output is None:
        raise bad_input("--render-only", "without --output nobody would see it", "Give -o FOLDER.")
    tag = wish.tag or f"coldstart/{stack.slug}:latest"
    reference_of(tag)
    # All that a person wrote comes first, then what this machine has; the network last.
    asked = recipe_of(stack, base=wish.base or UNRESOLVED, requirements=wish.requirements, wheels=wish.wheels)
    builder = None if wish.render_only else builder_at_hand(wish.builder, wish.builder_options)
    recipe = asked if wish.base else replace(asked, base=pinned_base())
    architecture = "amd64"
    if stack.model is not None:
        architecture = ARCHITECTURES[gpu_instance(stack.model.nodes.instance, where="model.nodes.instance").arch]
    with ExitStack() as open_:
        folder = wish.output or Path(open_.enter_context(tempfile.TemporaryDirectory(prefix="coldstart-build-")))
        write_context(recipe, folder)
        if builder is not None:
            builder.build(folder, tag, architecture)
    return {
        "stack": name,
        "engine": recipe.requirement,
        "base": recipe.base,
        "layers": recipe.layers,
        "compiler": recipe.compiler,
        "context": str(wish.output) if wish.output else None,
        "builder": builder.name if builder else None,
        "image": tag if builder else None,
    }


def pinned_base() -> str:
    """The base with the digest that its tag has now.

    Raises:
        Failure: Docker Hub does not answer.
    """
    with HttpRegistry() as registry:
        reference = reference_of(BASE)
        return f"{BASE}@{registry.manifest(reference).digest}"
