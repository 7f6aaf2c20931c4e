"""An audit for a person, one table for each standing, dearest first, and what to do about leaks; and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from budget.price import prices
from scripts.account.audit import Audit
from scripts.account.bill import total
from scripts.account.kinds import KINDS
from scripts.account.standing import Judged, Standing

TITLES = {
    Standing.LEFTOVER: "Left over: no stack will remove these",
    Standing.UNKNOWN: "Unknown: perhaps ours, never removed by this tool",
    Standing.KEPT: "Kept on purpose",
    Standing.LIVE: "Part of live stacks",
}
DAY = timedelta(days=1)


def show(found: Audit, console: Console, *, free: bool) -> None:
    """Prints an audit.

    Args:
        found: what was found.
        console: where to.
        free: whether free parts of live stacks are listed too.
    """
    for standing in TITLES:
        things = found.of(standing)
        shown = [each for each in things if free or standing is not Standing.LIVE or each.found.price.usd_per_hour != 0]
        if things:
            console.print(_table(standing, shown, found.taken))
            hidden = len(things) - len(shown)
            rest = f", and {hidden} that are free (--free)" if hidden else ""
            console.print(f"{_things(len(shown))}{rest}: {total(each.found for each in things)}")
            _show_commands(shown, console)
            console.print()
    for unseen in found.unseen:
        console.print(f"[yellow]not seen[/] {unseen.kind} in {unseen.region}: {unseen.why}")
    console.print(_last_line(found))
    table = prices()
    console.print(
        f"List prices of {table.region}, {table.priced_on} (coldstart prices); account {found.account}, "
        f"{', '.join(found.regions)}; {found.foreign} things of others; {found.calls} API calls.",
        style="dim",
    )


def rules(console: Console) -> None:
    """Prints by what ours are known, kind by kind, in the order in which they are looked at."""
    table = Table(box=None, pad_edge=False)
    table.add_column("kind", no_wrap=True)
    table.add_column("ours by", overflow="fold")
    for kind in KINDS:
        table.add_row(kind.name, kind.rule)
    console.print(table)


def age(created: datetime | None, now: datetime) -> str:
    """How old something is, in the unit that fits."""
    if created is None:
        return "?"
    passed = now - created
    if passed >= 2 * DAY:
        return f"{passed.days} d"
    hours = passed.total_seconds() / 3600
    return f"{hours:.0f} h" if hours >= 1 else f"{hours * 60:.0f} min"


def _last_line(found: Audit) -> str:
    if not found.states_known:
        return "[red]Not proven:[/] the Pulumi backend did not say which stacks are alive."
    if found.leaks:
        bill = total(thing.found for thing in found.leaks)
        return f"[red]Leak:[/] {_things(len(found.leaks))} of ours that no stack will ever remove, {bill}."
    if found.unseen:
        return "[yellow]Not proven:[/] nothing leaks among what could be seen."
    return "[green]Clean:[/] everything of ours that bills belongs to a live stack or is kept on purpose."


def _table(standing: Standing, things: Sequence[Judged], now: datetime) -> Table:
    table = Table(title=TITLES[standing], title_justify="left", box=None, pad_edge=False)
    for column in ("kind", "id", "age", "what", "why ours"):
        table.add_column(column, overflow="fold")
    table.add_column("USD/h", justify="right")
    table.add_column("USD/month", justify="right")
    for thing in sorted(things, key=_dearest):
        found, rate = thing.found, thing.found.price.usd_per_hour
        table.add_row(
            found.kind,
            escape(found.id),
            age(found.created, now),
            escape(found.detail),
            escape(thing.why if thing.stack is None else f"{thing.why}; stack {thing.stack}"),
            _dollars(rate, "{:,.4f}"),
            _dollars(None if rate is None else rate * prices().hours_per_month, "{:,.2f}"),
        )
    return table


def _dollars(usd: float | None, shape: str) -> str:
    if usd is None:
        return "unknown"
    return shape.format(usd) if usd else "free"


def _show_commands(things: Sequence[Judged], console: Console) -> None:
    """How each goes, below the table and unbroken, so that a line can be copied. Parts of a stack go with it."""
    console.print("To remove:", style="dim")
    ways = [
        f"coldstart teardown {each.stack}" if each.stack else each.found.remove for each in sorted(things, key=_dearest)
    ]
    for way in dict.fromkeys(ways):
        console.print(f"  {way}", markup=False, highlight=False, soft_wrap=True)


def _things(count: int) -> str:
    return f"{count} thing" if count == 1 else f"{count} things"


def _dearest(thing: Judged) -> tuple[float, str, str]:
    rate = thing.found.price.usd_per_hour
    return (-1e9 if rate is None else -rate, thing.found.kind, thing.found.id)


def document(found: Audit) -> Mapping[str, Any]:
    """The audit as one JSON document."""
    table = prices()
    return {
        "account": found.account,
        "regions": list(found.regions),
        "taken": found.taken.isoformat(timespec="seconds"),
        "clean": found.clean,
        "things": [_thing(thing, found.taken) for thing in found.things],
        "totals": {
            standing.value: {
                "things": len(found.of(standing)),
                "usd_per_hour": found.bill(standing).usd_per_hour,
                "usd_per_month": found.bill(standing).usd_per_month,
                "unpriced": found.bill(standing).unpriced,
            }
            for standing in Standing
        },
        "foreign": found.foreign,
        "unseen": [{"kind": each.kind, "region": each.region, "why": each.why} for each in found.unseen],
        "states_known": found.states_known,
        "api_calls": found.calls,
        "prices": {"region": table.region, "priced_on": table.priced_on},
    }


def _thing(thing: Judged, taken: datetime) -> Mapping[str, Any]:
    found, rate = thing.found, thing.found.price.usd_per_hour
    return {
        "kind": found.kind,
        "id": found.id,
        "region": found.region,
        "standing": thing.standing.value,
        "stack": thing.stack,
        "why": thing.why,
        "created": found.created.isoformat() if found.created else None,
        "age_h": round((taken - found.created).total_seconds() / 3600, 2) if found.created else None,
        "detail": found.detail,
        "usd_per_hour": rate,
        "usd_per_month": None if rate is None else rate * prices().hours_per_month,
        "price_note": found.price.note,
        "remove": found.remove,
    }
