"""`coldstart plan`: what a cold start will take and cost, before anything is bought."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from budget.cost import IDLE_TAIL_S, Terms
from budget.plan import Plan, plan_of, today
from budget.problems import BadInput, Problem, bad_input
from budget.scenario import ImageCase
from budget.search import Order, Wish, candidates, cheapest_within
from infra.forecast import CURRENT_CUDA, TYPICAL_ENGINE_IMAGE_BYTES
from scripts import scenario as scenario_file
from scripts.amount import Amount
from scripts.model_facts import facts_at
from scripts.plan_page import page
from scripts.plan_stack import stack_plan
from scripts.plan_view import candidates_document, document, show, show_candidates
from scripts.recalibration import recalibrate
from scripts.waterfall import svg

TODAY = "today"
HOUR_S = 3_600
WEEK_S = 7 * 24 * HOUR_S


@click.command(
    help="Budget of a cold start: seconds per phase, whether it fits, dollars, levers.\n\n"
    "STACK plans a deployment as configured; --model searches all instances; --scenario plans any what-if."
)
@click.argument("names", metavar="[STACK]", nargs=-1)
@click.option("--model", metavar="REF", help="ORG/NAME[@REV], folder or facts file: which instances serve it?")
@click.option("--scenario", metavar="FILE", type=click.Path(path_type=Path), help="YAML or JSON what-if.")
@click.option("--context", type=click.IntRange(1, 100_000_000), help="Tokens of the longest sequence (with --model).")
@click.option(
    "--concurrency", type=click.IntRange(1, 65_536), default=1, help="Sequences of that length at once (with --model)."
)
@click.option("--slo-s", type=Amount(0, 24 * HOUR_S, min_open=True), help="Seconds a cold start may take.")
@click.option(
    "--sort", "order", type=click.Choice(["cost", "cold-start"]), default="cost", help="Order of --model's answer."
)
@click.option("--image-bytes", type=Amount(1, 1e12), help="Compressed bytes of the engine image (with --model).")
@click.option(
    "--compare", metavar="FILE|STACK|today", help="A second plan beside it; `today` is the same start untuned."
)
@click.option(
    "--purchase",
    type=click.Choice(["on-demand", "spot", "reservation", "capacity-block"]),
    default="on-demand",
    help="How nodes are bought; prices other than on-demand are in no list.",
)
@click.option(
    "--usd-per-hour",
    type=Amount(0, 10_000, min_open=True),
    help="Price of one node when it is not the list price.",
)
@click.option("--idle-tail-s", type=Amount(0, WEEK_S), default=IDLE_TAIL_S, help="How long an empty node stays.")
@click.option("--breach-usd", type=Amount(0, 1e6), default=0.0, help="What one start beyond the SLO costs otherwise.")
@click.option("--hours-per-month", type=Amount(0, 744), default=730.0, help="Hours in which it serves.")
@click.option("--starts-per-month", type=Amount(0, 1e6), default=0.0, help="Cold starts in them.")
@click.option(
    "--calibrate",
    metavar="LEDGER",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Refit machine factors from ledgers.",
)
@click.option("--levers", "all_levers", is_flag=True, help="Every lever not pulled yet, not only those that save most.")
@click.option(
    "--check",
    is_flag=True,
    help="Exit with 1 when it (with --model: every instance) does not fit or misses the objective.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("--svg", "svg_path", type=click.Path(path_type=Path), help="Write a waterfall picture.")
@click.option(
    "--html", "html_path", type=click.Path(path_type=Path), help="Write the picture with findings, levers and cost."
)
def command(names: tuple[str, ...], **asked: Any) -> None:  # noqa: ANN401 - the options, typed by click above
    """Runs the verb."""
    _refuse_ignored(names, asked)
    terms = Terms(**{field.name: asked.pop(field.name) for field in fields(Terms) if field.name in asked})
    options = Options(**asked)
    if options.calibrate:
        stack, ledgers = _stack_and_ledgers(names, options.calibrate)
        _say(recalibrate(stack, ledgers), as_json=options.as_json)
        return
    _one_subject(names, options)
    if options.model is not None:
        _search(options, terms)
        return
    stack = names[0] if names else None
    first = _plan(stack or str(options.scenario), is_file=not names, terms=terms, slo_s=options.slo_s)
    plans = [first] if options.compare is None else [_compared(options.compare, first, terms, stack=stack), first]
    _write_pictures(plans, options)
    if options.as_json:
        answer = document(first)
        if options.compare is not None:
            answer["compare"] = document(plans[0])
        click.echo(json.dumps(answer, indent=2))
    else:
        for plan in plans:
            show(plan, Console(highlight=False), all_levers=options.all_levers)
    if options.check and not (first.fits and first.within_slo is not False):
        raise click.exceptions.Exit(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """The command line besides how it is bought."""

    model: str | None
    scenario: Path | None
    context: int | None
    concurrency: int
    slo_s: float | None
    order: Order
    image_bytes: float | None
    compare: str | None
    calibrate: tuple[Path, ...]
    all_levers: bool
    check: bool
    as_json: bool
    svg_path: Path | None
    html_path: Path | None


IGNORED: Mapping[str, Mapping[str, str]] = {
    "STACK": {
        "context": "the stack file says it: model.engine.context_tokens",
        "concurrency": "the stack file says it: model.engine.concurrency",
        "order": "it orders the answer of --model",
        "image_bytes": "the stack file says it: model.image_facts.compressed_bytes",
        "purchase": "the stack file says it: model.nodes.capacity",
    },
    "--scenario": {
        "context": "the scenario file says it: model.context_tokens",
        "concurrency": "the scenario file says it: model.concurrency",
        "order": "it orders the answer of --model",
        "image_bytes": "the scenario file says it: image.bytes",
    },
    "--model": dict.fromkeys(
        ("compare", "all_levers", "svg_path", "html_path"), "it is of one start, --model searches many instances"
    ),
}
"""What is planned → options that would not change its answer, and why."""
FOR_CALIBRATION = {"names", "calibrate", "as_json"}


def _refuse_ignored(names: Sequence[str], asked: Mapping[str, Any]) -> None:
    """An option that the answer would not heed is refused: heeded is what a person believes it to be.

    Raises:
        BadInput: every such option that was given.
    """
    context = click.get_current_context()
    given = {
        parameter.name: parameter.opts[0]
        for parameter in context.command.params
        if parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    }
    ignored: Mapping[str, str] = {}
    where = "--model" if asked["model"] else "--scenario" if asked["scenario"] else "STACK"
    if asked["calibrate"]:
        where, why = "--calibrate", "it refits machine factors, it plans nothing"
        ignored = dict.fromkeys(given.keys() - FOR_CALIBRATION, why)
    elif names or where != "STACK":
        ignored = IGNORED[where]
    problems = [
        Problem(option, f"has no effect with {where}: {ignored[name]}", "Leave it out.")
        for name, option in given.items()
        if name in ignored
    ]
    if problems:
        raise BadInput(problems)


def _one_subject(names: Sequence[str], options: Options) -> None:
    given = len(names) + (options.model is not None) + (options.scenario is not None)
    if given != 1:
        found = "nothing to plan" if not given else f"{given} things to plan at once"
        raise bad_input("coldstart plan", found, "Give one of STACK, --model REF, --scenario FILE.")


def _plan(reference: str, *, is_file: bool, terms: Terms, slo_s: float | None) -> Plan:
    if is_file:
        path = Path(reference)
        return plan_of(scenario_file.read(path), name=path.stem, terms=terms, slo_s=slo_s)
    return stack_plan(reference, terms=terms, slo_s=slo_s)


def _compared(reference: str, first: Plan, terms: Terms, *, stack: str | None) -> Plan:
    """What stands beside the plan: the same start untuned, a scenario file, or a stack."""
    if reference == TODAY and stack is not None:
        return stack_plan(stack, terms=terms, slo_s=first.slo_s, untuned=True)
    if reference == TODAY:
        return plan_of(today(first.scenario), name=f"{first.name} today", terms=terms, slo_s=first.slo_s)
    is_file = Path(reference).suffix in {".yaml", ".yml", ".json"}
    return _plan(reference, is_file=is_file, terms=terms, slo_s=first.slo_s)


def _search(options: Options, terms: Terms) -> None:
    facts = facts_at(str(options.model))
    if options.context is not None and facts.context and options.context > facts.context:
        allowed = f"Allowed: 1 to {facts.context}."
        raise bad_input("--context", f"{facts.name} ends at {facts.context:,} tokens", allowed)
    wish = Wish(
        image=ImageCase(bytes=options.image_bytes or TYPICAL_ENGINE_IMAGE_BYTES, cuda=CURRENT_CUDA),
        context=options.context,
        concurrency=options.concurrency,
        slo_s=options.slo_s,
    )
    found = candidates(facts, wish, order=options.order, terms=terms)
    cheapest = cheapest_within(found, wish.slo_s)
    if options.as_json:
        click.echo(json.dumps(candidates_document(facts, found, cheapest, wish.slo_s), indent=2))
    else:
        show_candidates(facts, found, cheapest, Console(highlight=False))
    within = [each for each in found if each.fits and each.budget.total.expected_s <= (wish.slo_s or math.inf)]
    if options.check and not within:
        raise click.exceptions.Exit(1)


def _write_pictures(plans: Sequence[Plan], options: Options) -> None:
    for path, text in ((options.svg_path, svg), (options.html_path, page)):
        if path is None:
            continue
        try:
            path.write_text(text(plans), encoding="utf-8")
        except OSError as error:
            raise bad_input(str(path), f"cannot be written: {error.strerror}", "Give a writable path.") from error
        click.echo(f"wrote {path}", err=True)


def _stack_and_ledgers(names: Sequence[str], ledgers: Sequence[Path]) -> tuple[str, list[Path]]:
    """`plan STACK --calibrate A B C`: click gives A to the option and leaves B and C among the names."""
    stacks = [name for name in names if not Path(name).suffix]
    if len(stacks) != 1:
        raise bad_input("--calibrate", f"{len(stacks)} stacks given", "Give the one stack that the ledgers come from.")
    return stacks[0], [*ledgers, *(Path(name) for name in names if Path(name).suffix)]


def _say(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    for line in answer["lines"]:
        click.echo(line)
