"""The builder at hand: docker, podman or buildah, whichever is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.failure import Failure

KNOWN = ("docker", "podman", "buildah")
PLATFORMS = {"amd64": "linux/amd64", "arm64": "linux/arm64"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Builder:
    """A program that builds Dockerfiles.

    Attributes:
        name: one of the known.
        program: its path.
        options: more options of its build, such as an isolation that works inside a container.
    """

    name: str
    program: str
    options: Sequence[str] = ()

    def command(self, folder: Path, tag: str, architecture: str) -> list[str]:
        """The command line that builds a folder's Dockerfile as `tag`; nothing is pushed."""
        verb = {"docker": ["buildx", "build", "--load"], "podman": ["build"], "buildah": ["build", "--layers"]}
        plain = [*verb[self.name], "--platform", PLATFORMS[architecture], *self.options]
        return [self.program, *plain, "--tag", tag, "--file", str(folder / "Dockerfile"), str(folder)]

    def build(self, folder: Path, tag: str, architecture: str) -> None:
        """Builds; the builder's own output goes to stderr.

        Raises:
            Failure: the build failed.
        """
        done = subprocess.run(self.command(folder, tag, architecture), stdout=2, check=False)  # noqa: S603 - a list, no shell
        if done.returncode != 0:
            raise Failure(f"{self.name} ended with exit code {done.returncode}; its own words are above")


def builder_at_hand(asked: str | None, options: Sequence[str] = ()) -> Builder:
    """The builder that was asked for, else the first that is installed.

    Raises:
        Failure: there is none.
    """
    for name in [asked] if asked else KNOWN:
        program = shutil.which(name)
        if program is not None and (name != "docker" or _has_buildx(program)):
            return Builder(name=name, program=program, options=options)
    if asked == "docker" and shutil.which("docker"):
        raise Failure("docker has no buildx here: install that plugin, or take --builder buildah")
    raise Failure(f"{asked or 'no builder'} is not installed. Known: {', '.join(KNOWN)}; --render-only needs none.")


def _has_buildx(docker: str) -> bool:
    """Whether this docker can build for a platform: the plugin is a package of its own."""
    return subprocess.run([docker, "buildx", "version"], capture_output=True, check=False).returncode == 0  # noqa: S603 - a list, no shell
