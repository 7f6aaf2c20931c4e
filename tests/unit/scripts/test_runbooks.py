"""Runbooks stay true: their commands exist, with the options they name; so do settings, links and the page's length."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import click
import pytest

from infra.environment_settings import Environment
from infra.model_settings import Model
from scripts.cli import VERBS

FOLDER = Path(__file__).parents[3] / "docs" / "runbooks"
RUNBOOKS = sorted(path.name for path in FOLDER.glob("*.md"))
PAGE_LINES = 66
COMMAND = re.compile(r"coldstart ((?:[a-z]+)(?: [^`#\n|]*)?)")
SETTING = re.compile(r"`((?:environment|model)(?:\.[a-z_]+)+)")


def options_of(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def commands(text: str) -> list[list[str]]:
    """Every `coldstart …` in code, spoken or shown."""
    spans = [*re.findall(r"`([^`\n]+)`", text), *re.findall(r"^    (.+)$", text, re.MULTILINE)]
    return [shlex.split(found) for span in spans for found in COMMAND.findall(span.partition("#")[0])]


@pytest.mark.parametrize("name", RUNBOOKS)
def test_commands_exist_with_the_options_they_are_given(name: str) -> None:
    found = commands((FOLDER / name).read_text())
    assert found
    for verb, *arguments in found:
        assert verb in VERBS, f"coldstart {verb}"
        command = importlib.import_module(f"scripts.{verb}").command
        if isinstance(command, click.Group):
            context = click.Context(command)
            assert arguments, f"coldstart {verb} alone"
            command = command.get_command(context, arguments[0])
            assert command is not None, f"coldstart {verb} {arguments[0]}"
        given = {each for each in arguments if each.startswith("-")}
        assert given <= options_of(command) | {"--help"}, f"coldstart {verb} {' '.join(arguments)}"


@pytest.mark.parametrize("name", RUNBOOKS)
def test_settings_exist(name: str) -> None:
    for path in SETTING.findall((FOLDER / name).read_text()):
        kind, *parts = path.split(".")
        node: object = {"environment": Environment, "model": Model}[kind]
        for part in parts:
            fields = getattr(node, "model_fields", {})
            assert part in fields, path
            annotation = fields[part].annotation
            inner = [each for each in getattr(annotation, "__args__", ()) if hasattr(each, "model_fields")]
            node = inner[0] if inner else annotation


@pytest.mark.parametrize("name", RUNBOOKS)
def test_one_page_and_links_that_lead_somewhere(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert len(text.splitlines()) <= PAGE_LINES
    assert "You see | It means | Do" in text
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (FOLDER / target).is_file(), target


def test_there_is_one_for_each_trouble() -> None:
    assert {name.removesuffix(".md") for name in RUNBOOKS} == {
        "audit-found-a-leak",
        "destroy-hangs",
        "no-capacity",
        "node-does-not-join",
        "pod-never-ready",
        "pull-denied-or-slow",
        "quota-is-zero",
        "upgrade-kubernetes",
        "weights-denied-or-slow",
        "wrong-answers-after-a-model-change",
    }
