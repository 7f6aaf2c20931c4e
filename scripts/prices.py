"""`coldstart prices`: what the plan and the audit count with, and refreshing it from AWS's own list."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from budget.instances import instances
from budget.price import prices as price_table
from budget.problems import bad_input
from infra.accounts import partition_of
from scripts.account.session import sign_in
from scripts.failure import Failure
from scripts.price_list import catalogue, tables
from scripts.price_list.catalogue import ListPrice
from scripts.price_list.tables import Refreshed
from scripts.waiting import Say

if TYPE_CHECKING:
    from mypy_boto3_pricing import PricingClient

SERVED_FROM = "us-east-1"
"""The Price List API has endpoints in three regions only, this one among them; it knows the prices of all."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a refresh changed.

    Attributes:
        changed: name → (old, new) price; None is not sold on demand.
        kept: items that AWS's list did not name, with the price they keep.
    """

    found: Refreshed
    changed: Mapping[str, tuple[float | None, float | None]]
    kept: Sequence[str]


def refresh(client: PricingClient, region: str, directory: Path, *, say: Say, now: datetime) -> Outcome:
    """Asks AWS for every item and every instance type, and writes the tables.

    Raises:
        Failure: AWS refuses, or knows hardly a price: then nothing is written.
    """
    old = dict(price_table().usd)
    items: dict[str, ListPrice] = {}
    for name, product in catalogue.products().items():
        say(name)
        price = catalogue.price(client, product, region)
        if price is not None:
            items[name] = price
    types: dict[str, ListPrice | None] = {}
    for name in instances():
        say(name)
        types[name] = catalogue.price(client, catalogue.instance_product(name), region)
    if not items or not any(types.values()):
        raise Failure(f"AWS's list has no prices for {region}: nothing was written")
    found = Refreshed(region=region, on=now.date(), items=items, instances=types)
    tables.write(directory, found)
    changes: dict[str, tuple[float | None, float | None]] = {}
    for name, price in items.items():
        if old.get(name) != price.usd:
            changes[name] = (old.get(name), price.usd)
    for name, price in types.items():
        before, after = instances()[name].usd_per_hour, price.usd if price else None
        if before != after:
            changes[name] = (before, after)
    return Outcome(found=found, changed=changes, kept=sorted(old.keys() - items.keys()))


# ---- the verb -------------------------------------------------------------------------------------------------------


@click.command()
@click.option("--refresh", "wanted", is_flag=True, help="Ask the AWS Price List API and write the tables.")
@click.option("--region", help="Region whose prices are wanted; default: that of the table.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(*, wanted: bool, region: str | None, as_json: bool) -> None:
    """Show the prices that plan, audit and limits count with: figure, source and date. --refresh asks AWS."""
    if not wanted:
        if region:
            raise click.UsageError("--region goes with --refresh")
        _show_table(as_json=as_json)
        return
    chosen = region or price_table().region
    if partition_of(chosen) != "aws":
        raise bad_input("--region", f"{chosen}: the Price List API serves the partition aws alone", "Keep the table.")
    account = sign_in(account=None, region=chosen)
    with Console(stderr=True).status("asking") as status:
        outcome = refresh(
            account.region(SERVED_FROM).pricing, chosen, tables.folder(), say=status.update, now=datetime.now(UTC)
        )
    if as_json:
        click.echo(json.dumps(document(outcome, account.calls), indent=2))
        return
    for name, (old, new) in sorted(outcome.changed.items()):
        click.echo(f"{name}: {_dollars(old)} is now {_dollars(new)}")
    for name in outcome.kept:
        click.echo(f"{name}: not in AWS's list, kept with its old source", err=True)
    click.echo(f"{len(outcome.changed)} prices changed; {account.calls} API calls; tables in {tables.folder()}")


def document(outcome: Outcome, calls: int) -> Mapping[str, Any]:
    """What a refresh changed, as JSON."""
    return {
        "region": outcome.found.region,
        "on": outcome.found.on.isoformat(),
        "changed": {name: {"old": old, "new": new} for name, (old, new) in sorted(outcome.changed.items())},
        "kept": list(outcome.kept),
        "api_calls": calls,
    }


def _show_table(*, as_json: bool) -> None:
    table = price_table()
    if as_json:
        items = {name: {"usd": usd, "source": table.sources[name]} for name, usd in table.usd.items()}
        types = {
            name: {"usd_per_hour": each.usd_per_hour, "priced_on": each.priced_on} for name, each in instances().items()
        }
        click.echo(
            json.dumps(
                {"region": table.region, "priced_on": table.priced_on, "items": items, "instances": types}, indent=2
            )
        )
        return
    console = Console()
    shown = Table(
        title=f"List prices of {table.region}, {table.priced_on}", title_justify="left", box=None, pad_edge=False
    )
    for column in ("item", "USD", "source"):
        shown.add_column(column, overflow="fold")
    for name, usd in table.usd.items():
        shown.add_row(name, f"{usd:g}", table.sources[name])
    for name, each in instances().items():
        shown.add_row(name, _dollars(each.usd_per_hour), f"on demand per hour, {each.priced_on or 'not sold'}")
    console.print(shown)


def _dollars(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"
