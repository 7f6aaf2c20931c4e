"""The slim image of an engine as a build context: Dockerfile, requirements, and the program that cuts even layers."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import jinja2

from budget.problems import bad_input
from infra.forecast import vllm_version
from infra.model_settings import Profile
from infra.stack_file import Stack
from scripts.failure import Failure

BASE = "docker.io/library/python:3.12-slim-bookworm"
"""Debian with Python and nothing else. 3.12 is what vLLM's own images run on."""
UNRESOLVED = f"{BASE}@sha256:{'0' * 64}"
"""Stands for the base until Docker Hub has said which digest it has."""
LAYERS = 12
"""As many as SOCI unpacks at once at most; a layer beyond that waits for a core."""
USER = 65532
"""The user that distroless images call nonroot; never one that exists on the node."""
STREAMER = "runai-model-streamer[s3]"
TEMPLATES = Path(__file__).parent / "templates"
_PINNED = re.compile(r"^[A-Za-z0-9][\w.-]*(\[[\w,. -]+\])?\s*(==\s*[\w.!+-]+|@\s*\S+)(\s|;|$)")
"""A name, extras, and one version or the address of one wheel."""
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What is built.

    Attributes:
        stack: the stack it is for.
        requirement: the engine, pinned.
        base: image that both stages start from, by digest.
        compiler: a C compiler stays, for Triton.
        hashed: the requirements carry hashes.
        wheels: wheels come from the build context instead of an index.
        layers: even layers of the wheels.
        user: numeric, not root.
    """

    stack: str
    requirement: str
    requirements: str
    base: str
    compiler: bool
    hashed: bool
    wheels: Path | None
    layers: int = LAYERS
    user: int = USER

    @property
    def base_name(self) -> str:
        """The base without its digest."""
        return self.base.partition("@")[0]


def recipe_of(stack: Stack, *, base: str, requirements: Path | None, wheels: Path | None) -> Recipe:
    """The recipe of a model stack's engine.

    Args:
        stack: a model.
        base: by digest.
        requirements: a file with all wheels pinned; None pins the engine and the streamer alone.
        wheels: a folder of wheels, for builds without an index.

    Raises:
        BadInput: no model, no version of the engine, a base without a digest, or a file that isn't there.
    """
    if stack.model is None:
        raise bad_input(stack.name, "is an environment", "Name a model stack: its engine is what is built.")
    version = vllm_version(stack.model)
    if version is None:
        raise bad_input("model.engine.version", "unset, and the image's tag names none", "Set it, such as 0.27.1.")
    if not _DIGEST.search(base):
        raise bad_input("--base", f"{base} has no digest", "Give NAME:TAG@sha256:...")
    if wheels is not None and not any(wheels.glob("*.whl")):
        raise bad_input("--wheels", f"{wheels} holds no wheels", "Give a folder of .whl files.")
    engine = f"vllm=={'.'.join(map(str, version))}"
    text = f"{engine}\n{STREAMER}\n" if requirements is None else _read(requirements)
    return Recipe(
        stack=stack.name,
        requirement=engine,
        requirements=text,
        base=base,
        # Eager engines run kernels that ship compiled; all others let Triton compile at start.
        compiler=stack.model.profile is not Profile.DEV,
        hashed="--hash=" in text,
        wheels=wheels,
    )


def _read(path: Path) -> str:
    """A requirements file; every wheel in it is pinned, or two builds would differ."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise bad_input("--requirements", f"{path} cannot be read: {error}", "Give a requirements file.") from error
    lines = (line.split(" #")[0].strip() for line in text.replace("\\\n", " ").splitlines())
    for line in lines:
        if line and not line.startswith(("#", "-")) and not _PINNED.match(line):
            fix = "Pin every wheel, as `uv pip compile --generate-hashes` or `pip freeze` does."
            raise bad_input("--requirements", f"{path}: {line[:60]!r} is not a pinned wheel", fix)
    return text


def dockerfile(recipe: Recipe) -> str:
    """The Dockerfile's text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=False,  # noqa: S701 - a Dockerfile, not a page
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("Dockerfile.j2").render(recipe=recipe)


def write_context(recipe: Recipe, folder: Path) -> None:
    """Writes the build context: everything that the Dockerfile copies, and nothing else.

    Raises:
        Failure: the folder can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "Dockerfile").write_text(dockerfile(recipe), encoding="utf-8")
        (folder / "requirements.txt").write_text(recipe.requirements, encoding="utf-8")
        shutil.copyfile(TEMPLATES / "cut_layers.py.txt", folder / "cut_layers.py")
        if recipe.wheels is not None:
            shutil.copytree(recipe.wheels, folder / "wheels", dirs_exist_ok=True)
    except OSError as error:
        raise Failure(f"{folder}: cannot be written: {error.strerror}") from error
