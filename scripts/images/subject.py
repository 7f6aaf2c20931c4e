"""What a verb is about: a stack's image on its own node, or any image on an instance type."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from budget.instances import gpu_instance
from budget.problems import bad_input, did_you_mean
from infra.forecast import scenario
from infra.specs import model_specs
from infra.stack_file import STACKS, Stack, names, path_of, read
from scripts.images.places import FORMS, is_reference, reference_of, source_of
from scripts.images.prediction import Puller, puller
from scripts.images.source import Source
from scripts.registry import ARCHITECTURES, DOCKER_HUB, HttpRegistry

DEFAULT_INSTANCE = "g6e.2xlarge"
"""One GPU, 8 vCPUs: the middle of what single-GPU models run on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """An image, and the node that would pull it.

    Attributes:
        reference: the image, as it is written.
        stack_path: the stack file it stands in; None for a bare image.
    """

    reference: str
    source: Source
    puller: Puller
    architecture: str
    stack: Stack | None = None
    stack_path: Path | None = None


def subject_of(text: str, instance: str | None, registry: HttpRegistry, directory: Path = STACKS) -> Subject:
    """The subject that a person names by a stack or an image.

    Args:
        text: name of a stack file, or an image.
        instance: instance type that pulls; None takes the stack's, or the default one.
        registry: client for images in registries.
        directory: where stack files are.

    Raises:
        BadInput: neither a model stack nor an image, or an unknown instance type.
    """
    if text in names(directory):
        return _stack_subject(text, instance, registry, directory)
    if not is_reference(text):
        hint = did_you_mean(text, names(directory)) if names(directory) else ""
        raise bad_input(
            text, "is neither a stack nor an image", f"{hint} {FORMS} Docker's own images are library/NAME.".strip()
        )
    node = gpu_instance(instance or DEFAULT_INSTANCE, where="--instance")
    return Subject(
        reference=text,
        source=source_of(text, registry),
        puller=puller(node, registry="docker-hub" if _on_docker_hub(text) else "ecr"),
        architecture=ARCHITECTURES[node.arch],
    )


def _stack_subject(name: str, instance: str | None, registry: HttpRegistry, directory: Path) -> Subject:
    stack = read(name, directory)
    model = stack.model
    if model is None:
        raise bad_input(name, "is an environment", "Name a model stack, or an image.")
    node = gpu_instance(model.nodes.instance, where="model.nodes.instance")
    own = Puller(scenario=scenario(stack, model, model_specs(stack, model).node), tuned=False)
    asked = gpu_instance(instance, where="--instance") if instance else node
    return Subject(
        reference=model.image,
        source=source_of(model.image, registry),
        puller=own if asked == node else puller(asked, registry=own.scenario.image.registry),
        architecture=ARCHITECTURES[asked.arch],
        stack=stack,
        stack_path=path_of(name, directory),
    )


def _on_docker_hub(text: str) -> bool:
    if text.startswith(("oci:", "docker-archive:")):
        return False
    return reference_of(text).registry == DOCKER_HUB
