"""`coldstart new`: a model stack file from the instance that a plan chose, with the revision pinned."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import yaml
from huggingface_hub import HfApi
from huggingface_hub.errors import HFValidationError

from budget.models import ModelFacts, known_models
from budget.problems import bad_input, did_you_mean
from budget.scenario import ImageCase
from budget.search import Candidate, Wish, candidates, cheapest_within
from infra.forecast import CURRENT_CUDA, TYPICAL_ENGINE_IMAGE_BYTES
from infra.rules import check
from infra.stack_file import PROJECT, STACKS, config_of, names, parse, write_facts
from scripts.amount import Amount
from scripts.model_facts import HUB_ERRORS, facts_at

REVISION = re.compile(r"^[0-9a-f]{40}$")
DEFAULT_IMAGE = "vllm/vllm-openai:v0.33.0"
DEFAULT_CONTEXT = 8_192
NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
MOST_CHARACTERS = 63
"""Of a stack's name; `infra.stack_file` takes no longer one."""


@click.command(
    help="Write the stack file of a model on environment ENV: the cheapest instance within the objective, or the"
    " one named."
)
@click.argument("environment", metavar="ENV")
@click.option("--model", required=True, metavar="REF", help="ORG/NAME[@REVISION], or a facts file of one.")
@click.option("--name", help="Stack name after the environment's; default: from the model's name.")
@click.option("--instance", help="Take this row of the plan instead of the cheapest.")
@click.option("--context", type=click.IntRange(128, 10_000_000), help="Tokens of the longest sequence.")
@click.option("--concurrency", type=click.IntRange(1, 4096), default=1, help="Sequences of that length at once.")
@click.option("--slo-s", type=Amount(min=1), help="Seconds a cold start may take.")
@click.option(
    "--image", default=DEFAULT_IMAGE, show_default=True, help="Engine image; `coldstart pin` adds its digest."
)
@click.option("--max-replicas", type=click.IntRange(1, 1000), default=2, show_default=True, help="Replicas at most.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(environment: str, *, as_json: bool, **asked: Any) -> None:  # noqa: ANN401 - the options, typed by click
    """Runs the verb."""
    answer = write_stack(Request(environment=environment, directory=STACKS, **asked))
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    start = f"cold start about {answer['cold_start_s']:.0f} s"
    click.echo(f"wrote {answer['path']}: {answer['model']} on {answer['instance']}, {start}")
    click.echo(f"next: coldstart pin {answer['stack']}", err=True)
    if answer["revision"] is None:
        pin = f"coldstart pin {answer['stack']}"
        click.echo(f"the revision is not pinned: the hub could not be asked; `{pin}` writes it", err=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What to write, and where.

    Attributes:
        model: as `scripts.model_facts.facts_at` takes it.
        name: of the stack, after the environment's; None takes the model's.
        instance: None takes the cheapest within the objective.
        directory: folder of the stack files.
    """

    environment: str
    model: str
    directory: Path
    name: str | None = None
    instance: str | None = None
    context: int | None = None
    concurrency: int = 1
    slo_s: float | None = None
    image: str = DEFAULT_IMAGE
    max_replicas: int = 2
    force: bool = False


def write_stack(request: Request, *, api: HfApi | None = None) -> dict[str, Any]:
    """Chooses an instance, and writes the file once `pulumi up` would take it.

    Raises:
        BadInput: no such environment, no such model, nothing that fits, a file that is there already.
    """
    _check_environment(request.environment, request.directory)
    if request.name is not None:
        _path(request, request.name)
    facts = facts_at(request.model, api=api)
    name = _slug(facts.name) if request.name is None else request.name
    path = _path(request, name)
    stack = f"{request.environment}-{name}"
    chosen = _chosen(facts, request)
    revision = facts.revision or _revision(facts.name, api)
    config = _config(request, facts, revision, chosen)
    own = None if facts.name in known_models() else replace(facts, revision=revision)
    check(replace(parse(stack, {f"{PROJECT}:model": config}, request.directory), facts=own))
    if own is not None:
        write_facts(stack, own, request.directory)
    path.write_text(_text(config, chosen), encoding="utf-8")
    return {
        "stack": stack,
        "path": str(path),
        "model": facts.name,
        "revision": revision,
        "instance": chosen.instance.name,
        "tensor_parallel": chosen.scenario.ranks,
        "cold_start_s": chosen.budget.total.expected_s,
        "usd_per_hour": chosen.cost.usd_per_hour,
    }


def _check_environment(environment: str, directory: Path) -> None:
    known = [stack for stack in names(directory) if f"{PROJECT}:environment" in config_of(stack, directory)]
    if environment not in known:
        hint = did_you_mean(environment, known) if known else "Write an environment stack file first."
        raise bad_input("ENV", f"{environment!r} is not an environment stack", hint)


def _path(request: Request, name: str) -> Path:
    """Where the file goes.

    Raises:
        BadInput: no stack can be called so, or one is already.
    """
    most = MOST_CHARACTERS - len(request.environment) - 1
    if not NAME.fullmatch(name) or len(name) > most:
        fix = f"Give 1 to {most} lower-case letters, digits and hyphens, with no hyphen at either end."
        raise bad_input("--name", f"{name!r} is not a valid stack name", fix)
    path = request.directory / f"Pulumi.{request.environment}-{name}.yaml"
    if path.exists() and not request.force:
        raise bad_input(str(path), "is there already", "Choose another --name, or --force to overwrite it.")
    return path


def _chosen(facts: ModelFacts, request: Request) -> Candidate:
    wish = Wish(
        image=ImageCase(bytes=TYPICAL_ENGINE_IMAGE_BYTES, cuda=CURRENT_CUDA),
        context=request.context,
        concurrency=request.concurrency,
        slo_s=request.slo_s,
    )
    found, instance = candidates(facts, wish), request.instance
    if instance is None:
        cheapest = cheapest_within(found, request.slo_s)
        if cheapest is not None:
            return cheapest
        fastest = min(
            (each for each in found if each.fits), key=lambda each: each.budget.total.expected_s, default=None
        )
        hint = (
            f"The fastest that fits is {fastest.instance.name}, {fastest.budget.total.expected_s:.0f} s."
            if fastest
            else "See `coldstart plan --model` for what is missing."
        )
        raise bad_input("--slo-s" if fastest else "--model", f"no instance serves {facts.name} so", hint)
    rows = {each.instance.name: each for each in found}
    if instance not in rows:
        raise bad_input("--instance", f"{instance!r} is no GPU instance type", did_you_mean(instance, rows))
    if not rows[instance].fits:
        refusal = next(finding for finding in rows[instance].findings if finding.level == "error")
        raise bad_input("--instance", f"{instance} does not fit: {refusal.message}", refusal.fix)
    return rows[instance]


def _slug(model: str) -> str:
    short = re.sub(r"(?i)-(instruct|chat|it|hf)(?=-|$)", "", model.rpartition("/")[2])
    return re.sub(r"[^a-z0-9]+", "-", short.lower()).strip("-")


def _revision(name: str, api: HfApi | None) -> str | None:
    """The hub's current commit; None when the hub cannot be asked, which the file then says."""
    try:
        sha = (api or HfApi()).model_info(name).sha
    except (*HUB_ERRORS, HFValidationError):
        return None
    return sha if sha and REVISION.match(sha) else None


def _config(request: Request, facts: ModelFacts, revision: str | None, chosen: Candidate) -> dict[str, Any]:
    config: dict[str, Any] = {"environment": request.environment, "source": facts.name}
    if revision is not None:
        config["revision"] = revision
    config |= {"image": request.image, "nodes": {"instance": chosen.instance.name}}
    engine: dict[str, Any] = {}
    if chosen.scenario.ranks != chosen.instance.kubernetes_gpus:
        engine["tensor_parallel"] = chosen.scenario.ranks
    if request.context is not None and request.context != DEFAULT_CONTEXT:
        engine["context_tokens"] = request.context
    if engine:
        config["engine"] = engine
    config["scaling"] = {"min_replicas": 1, "max_replicas": request.max_replicas}
    if request.slo_s is not None:
        config["slo"] = {"cold_start_s": int(request.slo_s)}
    return config


def _text(config: dict[str, Any], chosen: Candidate) -> str:
    """The file as a person would write it, with the plan in a comment."""
    document = {"config": {"pulumi:disable-default-providers": ["aws", "kubernetes"], f"{PROJECT}:model": config}}
    total, hourly = chosen.budget.total, chosen.cost.usd_per_hour
    price = "no list price" if hourly is None else f"${hourly:.2f}/h a node"
    head = (
        f"# Planned: cold start {total.expected_s:.0f} s ({total.low_s:.0f}-{total.high_s:.0f}), {price};"
        " `coldstart plan` has the phases.\n"
    )
    return head + yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=100)
