"""The program: a stack's config becomes settings, settings become specs, specs become resources."""

from __future__ import annotations

from pathlib import Path

import pulumi

from infra import environment, model
from infra.paused import CONFIG_KEY
from infra.rules import check, warnings
from infra.settings import KINDS
from infra.specs import model_specs
from infra.stack_file import PROJECT, SECRETS, Stack, parse


def run(directory: Path) -> None:
    """Declares the stack that the engine, or `offline`, runs now.

    Args:
        directory: folder of the stack files, where a model's environment is looked up.

    Raises:
        BadInput: the settings are wrong; every problem at once.
    """
    stack = _stack(directory)
    for warning in warnings(stack):
        pulumi.log.warn(str(warning))
    if stack.model is None:
        environment.declare(stack)
    else:
        api_key = pulumi.Config(PROJECT).get_secret("apiKey")
        model.declare(stack, stack.model, model_specs(stack, stack.model), api_key)


def _stack(directory: Path) -> Stack:
    config = pulumi.Config(PROJECT)
    values: dict[str, object] = {f"{PROJECT}:{kind}": config.get_object(kind) for kind in KINDS}
    values[f"{PROJECT}:{CONFIG_KEY}"] = config.get(CONFIG_KEY)
    # Whether a secret is set is all that the rules may know of it.
    values |= {f"{PROJECT}:{secret}": config.get_secret(secret) is not None for secret in SECRETS}
    stack = parse(pulumi.get_stack(), {key: value for key, value in values.items() if value}, directory)
    check(stack)
    return stack
