"""`coldstart pin STACK`: resolves revision and image digest and writes them into the stack file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import click
from huggingface_hub import HfApi
from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

from budget.instances import gpu_instance
from budget.models import ModelFacts, known_models
from budget.problems import bad_input
from infra.model_settings import Model
from infra.setting import REVISION
from infra.stack_file import PROJECT, STACKS, Stack, facts_path, path_of, read, write_facts
from scripts.failure import Failure
from scripts.model_facts import HUB_ERRORS, facts_at, unanswered
from scripts.registry import ARCHITECTURES, HttpRegistry, ImagePin, Registry
from scripts.stack_edit import edited, in_a_line

UNPINNED_COMMENT = "# No digest is known for this tag here"
"""What a shipped file says of an image without a digest; it goes once there is one."""


class Hub(Protocol):
    """Resolves branches and tags of model repositories."""

    def commit(self, source: str, revision: str) -> str:
        """The 40-hex commit of a branch, tag or commit."""
        ...

    def facts(self, source: str, commit: str) -> ModelFacts:
        """What a commit's config.json and safetensors headers say."""
        ...


class HuggingFaceHub:
    """The hub, through its own client."""

    def __init__(self, api: HfApi | None = None) -> None:
        self._api = api or HfApi()

    def commit(self, source: str, revision: str) -> str:
        """The 40-hex commit of a branch, tag or commit.

        Raises:
            BadInput: a name that no repository can have.
            Failure: no such repository or revision, no access, or the hub does not answer.
        """
        try:
            sha = self._api.model_info(source, revision=revision).sha
        except GatedRepoError as error:
            raise Failure(f"{source} is gated: accept its licence on the hub and set HF_TOKEN") from error
        except RevisionNotFoundError as error:
            raise Failure(f"{source} has no revision {revision!r}") from error
        except RepositoryNotFoundError as error:
            raise Failure(f"{source} is not on the hub, or private: set HF_TOKEN") from error
        except HFValidationError as error:
            raise bad_input("model.source", f"{source!r} is not a name on the hub", "Write ORG/NAME.") from error
        except (*HUB_ERRORS, ValueError) as error:
            raise unanswered(error, source, self._api, "run it again later; nothing was changed") from error
        if sha is None or not REVISION.match(sha):
            raise Failure(f"the hub answered {sha!r} for {source}@{revision}, which is not a commit")
        return sha

    def facts(self, source: str, commit: str) -> ModelFacts:
        """What a commit's config.json and safetensors headers say.

        Raises:
            BadInput: files that are no model a plan understands.
            Failure: no access, or the hub does not answer.
        """
        return facts_at(f"{source}@{commit}", api=self._api)


@dataclass(frozen=True, kw_only=True)
class Pins:
    """What a stack's names stood for when they were asked.

    Attributes:
        revision: 40-hex commit.
        image: with its digest.
        layers: compressed bytes of each.
        facts: of the model; None where those that ship, or that are there already, hold.
    """

    revision: str
    image: str
    layers: tuple[int, ...]
    facts: ModelFacts | None


def resolve(stack: Stack, model: Model, hub: Hub, registry: Registry, *, revision: str | None) -> Pins:
    """Resolves a model's names. A pin that is there already stays, unless another revision is asked for.

    Raises:
        Failure: hub or registry refuse or do not answer.
    """
    wanted = revision or model.revision or "main"
    commit = wanted if REVISION.match(wanted) else hub.commit(model.source, wanted)
    name = model.image.partition("@")[0]
    architecture = ARCHITECTURES[gpu_instance(model.nodes.instance, where="model.nodes.instance").arch]
    # A pinned image is asked for by its digest: the tag may have moved on, or be gone.
    pin: ImagePin = registry.resolve(model.image, architecture)
    known = model.source in known_models() or (
        stack.facts is not None and (stack.facts.name, stack.facts.revision) == (model.source, commit)
    )
    return Pins(
        revision=commit,
        image=f"{name}@{pin.digest}",
        layers=pin.layers,
        facts=None if known else hub.facts(model.source, commit),
    )


def write(path: Path, pins: Pins) -> None:
    """Writes pins into a stack file and keeps its comments and order.

    What an inspection found of the image stays as long as its layers are the same.
    """
    with edited(path, without_comment=UNPINNED_COMMENT) as config:
        model = config[f"{PROJECT}:model"]
        model["revision"], model["image"] = pins.revision, pins.image
        known = cast("dict[str, object]", model.get("image_facts") or {})
        digest = pins.image.partition("@")[2]
        if pins.layers and (known.get("digest", digest) != digest or list(pins.layers) != known.get("layers")):
            known = {"compressed_bytes": sum(pins.layers), "layers": in_a_line(pins.layers)}
        if known:
            model["image_facts"] = {"digest": digest} | known


def pin(name: str, directory: Path, hub: Hub, registry: Registry, *, revision: str | None = None) -> Mapping[str, Any]:
    """Resolves and writes the pins of a model stack; answers what stands in the file now.

    Raises:
        BadInput: no such stack, or an environment.
        Failure: hub or registry refuse or do not answer; the file is as it was.
    """
    stack = read(name, directory)
    if stack.model is None:
        raise bad_input(name, "is an environment", "Pin a model stack: an environment has nothing to pin.")
    pins = resolve(stack, stack.model, hub, registry, revision=revision)
    write(path_of(name, directory), pins)
    if pins.facts is not None:
        write_facts(name, pins.facts, directory)
    return {
        "stack": name,
        "revision": pins.revision,
        "image": pins.image,
        "image_bytes": sum(pins.layers) or None,
        "layers": len(pins.layers) or None,
        "facts": str(facts_path(name, directory)) if pins.facts else None,
    }


@click.command()
@click.argument("stack")
@click.option("--revision", help="Branch, tag or commit to pin instead of what the file says.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(stack: str, revision: str | None, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Resolve the model revision and the image digest of STACK, and write both into its stack file.

    Facts of a model that do not ship are read from the hub and kept beside it, in facts.STACK.json.
    """
    with HttpRegistry() as registry:
        found = pin(stack, STACKS, HuggingFaceHub(), registry, revision=revision)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for key, value in found.items():
        if value is not None:
            click.echo(f"{key:<12} {value}")
