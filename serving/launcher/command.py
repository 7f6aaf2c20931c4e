"""The engine's command line: the weights path put in, contradictions refused, secrets kept out of the log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from serving.launcher.refusal import BadConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from serving.launcher.config import Config, WeightsPath

WEIGHTS = "{weights}"
"""In the engine's command: the arguments of the weights path in use."""

DIR = "{dir}"
"""In a path's arguments: the directory of its copy."""


def engine_arguments(argv: Sequence[str], path: WeightsPath, directory: Path | None) -> list[str]:
    """The engine's command line with one weights path put in."""
    local = str(directory) if directory else ""
    filled: list[str] = []
    for argument in argv:
        if argument == WEIGHTS:
            filled.extend(value.replace(DIR, local) for value in path.engine_args)
        else:
            filled.append(argument)
    return filled


def check_engine_argv(argv: Sequence[str], config: Config) -> None:
    """Refuses a command line that can't belong to this configuration.

    Raises:
        BadConfig: with every problem.
    """
    problems: list[str] = []
    if not argv:
        problems.append("no engine command after `--`: launch.py --config FILE -- vllm serve {weights} ...")
    elif argv.count(WEIGHTS) != 1:
        problems.append(f"the engine command must hold {WEIGHTS} exactly once, not {argv.count(WEIGHTS)} times")
    for name, value in _port_options(argv):
        if value != str(config.engine_port):
            problems.append(f"the engine command says {name} {value}, the configuration {config.engine_port}")
    if problems:
        raise BadConfig(problems)


def _port_options(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, argument in enumerate(argv):
        if argument == "--port" and index + 1 < len(argv):
            yield "--port", argv[index + 1]
        elif argument.startswith("--port="):
            yield "--port", argument.removeprefix("--port=")


_SECRET = re.compile(r"(?i)(key|token|secret|password)")


def without_secrets(argv: Sequence[str]) -> list[str]:
    """Arguments for the log: what follows an option that names a secret is left out."""
    shown: list[str] = []
    secret_follows = False
    for argument in argv:
        name, equals, _ = argument.partition("=")
        secret = name.startswith("--") and _SECRET.search(name) is not None
        if secret_follows and not argument.startswith("--"):
            shown.append("***")
        else:
            shown.append(f"{name}=***" if secret and equals else argument)
        secret_follows = secret and not equals
    return shown
