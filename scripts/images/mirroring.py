"""From what a person names to copies: which images, to which registry, with which repositories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from budget.problems import bad_input, did_you_mean
from infra.accounts import environment_tags, partition_of
from infra.stack_file import STACKS, Stack, names, path_of, read
from scripts.figures import size
from scripts.images.ecr import ensure_repository, owner_of
from scripts.images.environment_images import Needed, needed_images
from scripts.images.mirror import Mirrored, Prepare
from scripts.images.places import is_reference
from scripts.images.stack_facts import write_image
from scripts.registry import Reference


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Images for one destination."""

    images: Sequence[Needed]
    destination: str
    prepare: Prepare


def mirror_jobs(
    asked: Sequence[str], to: str | None, architecture: str, *, write: bool = False, directory: Path = STACKS
) -> Sequence[Job]:
    """One job for each stack, and one for all bare images.

    Raises:
        BadInput: neither stacks nor images, bare images without a destination, or with nothing to write them into.
        Failure: a chart repository doesn't answer.
    """
    known = names(directory)
    stacks = [read(name, directory) for name in asked if name in known]
    bare = [name for name in asked if name not in known]
    for name in bare:
        if not is_reference(name) or name.startswith(("oci:", "docker-archive:")):
            raise bad_input(name, "is neither a stack nor an image in a registry", did_you_mean(name, known))
    if bare and write:
        raise bad_input("--write", f"{bare[0]} is an image, not a stack", "Name the stack whose image it is.")
    if bare and to is None:
        raise bad_input("--to", "missing", "Bare images belong to no account: give HOST[/PREFIX].")
    jobs = [_stack_job(stack, to, directory) for stack in stacks]
    if bare and to is not None:
        images = [Needed(reference=name, architectures=frozenset([architecture]), of="asked for") for name in bare]
        jobs.append(Job(images=images, destination=to, prepare=_prepare({})))
    return jobs


def _stack_job(stack: Stack, to: str | None, directory: Path) -> Job:
    return Job(
        images=needed_images(stack, directory=directory),
        destination=to or private_registry(stack),
        prepare=_prepare(environment_tags(stack)),
    )


def private_registry(stack: Stack) -> str:
    """The environment's own ECR, with its name as prefix."""
    settings = stack.environment
    suffix = ".cn" if partition_of(settings.region) == "aws-cn" else ""
    return f"{settings.account}.dkr.ecr.{settings.region}.amazonaws.com{suffix}/{stack.environment_name}"


def _prepare(tags: Mapping[str, str]) -> Prepare:
    """Makes repositories where the registry is ECR; other registries make them by themselves."""

    def prepare(reference: Reference) -> bool:
        owner = owner_of(reference.registry)
        if owner is None:
            return False
        from scripts.account.session import sign_in  # noqa: PLC0415 - half a second that only ECR needs

        account, region = owner
        return ensure_repository(sign_in(account=account, region=region).region(region).ecr, reference, tags)

    return prepare


def write_places(done: Sequence[Mirrored], directory: Path = STACKS) -> None:
    """Writes the new places into the model stacks whose engine was copied."""
    for copied in done:
        for name in copied.of.split(", "):
            if name in names(directory):
                write_image(path_of(name, directory), copied.target)


def mirrored_lines(done: Sequence[Mirrored]) -> list[str]:
    """What a person reads."""
    return [
        f"{each.target}  {'there already' if each.there else f'copied, {size(each.sent_bytes)} sent'}  ({each.of})"
        for each in done
    ]
