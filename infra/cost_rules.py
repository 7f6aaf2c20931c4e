"""Rules of `environment.cost` and `model.cost`: appointments that exist, bills that stay below their limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from budget.problems import BadInput, Problem
from infra.accounts import expires_after
from infra.bill import bill
from infra.expiry import moment
from infra.specs import model_specs
from infra.stack_file import Stack


def problems(stack: Stack) -> Iterator[Problem]:
    """What is wrong with a stack's limits of cost."""
    yield from _expiry("environment.cost.expires_after", stack.environment.cost.expires_after)
    if stack.model is not None:
        yield from _expiry("model.cost.expires_after", stack.model.cost.expires_after)
    yield from _maximum(stack)


def warnings(stack: Stack) -> Sequence[Problem]:
    """What a stack's limits of cost do that the person may not expect."""
    setting = expires_after(stack)
    where = "model" if stack.model and stack.model.cost.expires_after else "environment"
    now = datetime.now(UTC)
    if stack.model is None or setting is None or moment(setting, now) > now:
        return ()
    return [
        Problem(
            f"{where}.cost.expires_after",
            f"{setting} has passed: GPU groups are at zero, and one made now is put to zero within minutes",
            f"Set a later date, or run: coldstart extend {stack.name}",
        )
    ]


def limit_of(stack: Stack) -> tuple[str, float | None]:
    """Key and value of what a stack may cost per hour; None without a limit."""
    if stack.model is not None:
        return "model.cost.max_usd_per_hour", stack.model.cost.max_usd_per_hour
    return "environment.cost.max_usd_per_hour", stack.environment.cost.max_usd_per_hour


def _expiry(where: str, setting: str | None) -> Iterator[Problem]:
    if setting is None:
        return
    now = datetime.now(UTC)
    try:
        at = moment(setting, now)
    except (ValueError, OverflowError) as error:
        yield Problem(where, f"{setting!r} is not a time: {error}", "Write one like 8h, 3d or 2026-12-01T18:00Z.")
        return
    if setting[-1] in "hd" and at == now:
        yield Problem(where, f"{setting!r} is not a length of time", "Write 1h or more, or leave it unset.")


def _maximum(stack: Stack) -> Iterator[Problem]:
    where, limit = limit_of(stack)
    if limit is None:
        return
    try:
        found = bill(stack, model_specs(stack, stack.model) if stack.model else None)
    except BadInput:
        return  # said by the rules of the model itself
    unknown = [item.item for item in found.most if item.usd_per_hour is None]
    known_usd = sum(item.usd_per_hour for item in found.most if item.usd_per_hour is not None)
    if known_usd > limit:
        yield Problem(
            where,
            f"{limit:g}, but the stack can cost {'at least ' if unknown else ''}${known_usd:.2f} per hour",
            "Raise the limit, or lower "
            + ("model.scaling.max_replicas or choose a cheaper instance." if stack.model else "what it is made of."),
        )
    elif unknown:
        yield Problem(
            where,
            f"can't be kept: no price is known for {', '.join(unknown)}",
            "Refresh the table (coldstart prices --refresh), or remove the limit.",
        )
