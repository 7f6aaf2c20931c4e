"""Every command line that a model stack can render, read by vLLM's own parser: options for GPUs need no GPU here."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.specs import model_specs
from infra.stack_file import read
from scripts.rehearsal.engine_env import SCRIPTS, EngineEnv
from serving.engine import arguments, known_flags
from serving.launcher.command import engine_arguments
from serving.launcher.config import Config
from serving.manifests import launcher_config
from tests.unit.infra.changed_stacks import change
from tests.unit.serving.test_weight_paths import PATHS

STACKS = ("dev-llama-3-1-8b", "dev-qwen2-5-0-5b", "dev-qwen3-32b")
PROFILES = ("production", "dev")
LIST = Path(__file__).parents[2] / "serving" / "engine_flags.txt"
WRONG = ["vllm", "serve", "s3://b/m/", "--no-such-option", "1"]


def ways() -> Iterator[tuple[str, str, str]]:
    """Stack, weights path and profile; a model on one GPU has no shards to stream."""
    for stack in STACKS:
        for path in PATHS:
            if path != "presharded" or stack == "dev-qwen3-32b":
                yield from ((stack, path, profile) for profile in PROFILES)


def commands(stack: str, directory: Path) -> list[list[str]]:
    """What the launcher would start: one command for each weights path of the stack, its fallbacks included."""
    found = read(stack, directory)
    assert found.model is not None
    serving = model_specs(found, found.model).serving
    command = list(arguments(serving.engine))
    return [
        engine_arguments(command, path, path.directory) for path in Config.from_json(launcher_config(serving)).paths
    ]


def parsed(env: EngineEnv, lines: list[list[str]]) -> list[dict[str, object]]:
    """What vLLM understood of each, or why it refused it."""
    done = subprocess.run(
        [str(env.python), str(SCRIPTS / "parse_commands.py")],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return json.loads(done.stdout)


@pytest.fixture
def rendered(stacks: Path, tmp_path: Path) -> dict[tuple[str, str, str], list[list[str]]]:
    """Every way to render a shipped stack, and the commands that come of it."""
    found: dict[tuple[str, str, str], list[list[str]]] = {}
    for way in ways():
        stack, path, profile = way
        directory = tmp_path / "-".join(way)
        shutil.copytree(stacks, directory)
        change(directory, stack, {"model.weights": PATHS[path], "model.profile": profile})
        found[way] = commands(stack, directory)
    return found


def test_the_flags_that_are_let_through_are_those_of_the_real_parser(
    env: EngineEnv, request: pytest.FixtureRequest
) -> None:
    """The list is of the release that the engine environment holds."""
    flags = json.loads(env.run("parse_commands.py", "--flags"))
    head = [line for line in LIST.read_text().splitlines() if line.startswith("#")]
    if request.config.getoption("--update-golden"):
        LIST.write_text("\n".join([*head, *flags]) + "\n")
        known_flags.cache_clear()
    assert sorted(known_flags()) == flags


def test_the_real_parser_understands_every_rendered_command(
    env: EngineEnv, rendered: dict[tuple[str, str, str], list[list[str]]]
) -> None:
    lines = [(way, command) for way, found in rendered.items() for command in found]
    *understood, refused = parsed(env, [*(command for _, command in lines), WRONG])
    assert "no-such-option" in str(refused["refused"])
    assert len(understood) == len(lines) > len(rendered) == 26
    for (way, command), found in zip(lines, understood, strict=True):
        assert "refused" not in found, (way, command, found)
        assert found["model_tag"] == command[2]
        assert found["enforce_eager"] == (way[2] == "dev")
        for option in ("port", "load_format", "max_model_len", "tensor_parallel_size", "shutdown_timeout"):
            assert str(found[option]) == command[command.index("--" + option.replace("_", "-")) + 1], (way, option)
