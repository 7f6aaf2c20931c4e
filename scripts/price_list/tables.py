"""The price tables of the budget room as files: read whole, written whole, in the layout they have."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from pathlib import Path

from scripts.failure import Failure
from scripts.price_list.catalogue import ListPrice

PRICES, INSTANCES = "prices.json", "instances.csv"
REFRESHED = "# On-demand prices of "
"""How the comment begins that a refresh leaves in the table of instances."""
_ENTRY = re.compile(r'^(?P<indent>\s+)"(?P<name>\w+)": (?P<value>.+?),?$')


@dataclass(frozen=True, kw_only=True)
class Refreshed:
    """What AWS says now.

    Attributes:
        region: of the prices.
        on: the day it was asked.
        items: item → price.
        instances: instance type → price; None where it is not sold on demand.
    """

    region: str
    on: date
    items: Mapping[str, ListPrice]
    instances: Mapping[str, ListPrice | None]


def folder() -> Path:
    """Where the plan reads its tables."""
    return Path(str(files("budget")))


def new_prices(text: str, found: Refreshed) -> str:
    """The price table with what was found. One line is one item, so that a refresh is a diff that can be read."""
    return "\n".join(_new_line(line, found) for line in text.splitlines()) + "\n"


def _new_line(line: str, found: Refreshed) -> str:
    entry = _ENTRY.match(line)
    if entry is None:
        return line
    name, comma = entry["name"], "," if line.endswith(",") else ""
    head = {
        "region": found.region,
        "priced_on": found.on.isoformat(),
        "source": f"AWS list prices of {found.region}; each item says where its figure comes from; instance prices are "
        f"in {INSTANCES} with their own dates.",
    }
    if name in head:
        return f"{entry['indent']}{json.dumps(name)}: {json.dumps(head[name])}{comma}"
    price = found.items.get(name)
    if price is None:
        return line
    source = f"AWS Price List API, {found.region}, list of {price.published.isoformat()}"
    return f"{entry['indent']}{json.dumps(name)}: {json.dumps({'usd': _rounded(price.usd), 'source': source})}{comma}"


def new_instances(text: str, found: Refreshed) -> str:
    """The table of instances with what was found: prices, their dates, and a line that says where they come from."""
    lines = text.splitlines()
    comments = [line for line in lines if line.startswith("#") and not line.startswith(REFRESHED)]
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    for row in rows:
        if row["instance"] in found.instances:
            price = found.instances[row["instance"]]
            row["usd_per_hour"] = f"{_rounded(price.usd):g}" if price else ""
            row["priced_on"] = price.published.isoformat() if price else ""
    comments.append(f"{REFRESHED}{found.region}, from the AWS Price List API as of {found.on.isoformat()}.")
    written = io.StringIO()
    writer = csv.DictWriter(written, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return "\n".join(comments) + "\n" + written.getvalue()


def write(directory: Path, found: Refreshed) -> None:
    """Replaces both tables, each in one step: whoever reads meanwhile gets the old one or the new one, whole.

    Raises:
        Failure: the folder can't be written to.
    """
    try:
        fresh = {
            PRICES: new_prices((directory / PRICES).read_text(encoding="utf-8"), found),
            INSTANCES: new_instances((directory / INSTANCES).read_text(encoding="utf-8"), found),
        }
        json.loads(fresh[PRICES])
        for name, text in fresh.items():
            _replace(directory / name, text)
    except OSError as error:
        raise Failure(f"the price tables in {directory} can't be written: {error.strerror}") from error


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _rounded(usd: float) -> float:
    """AWS publishes up to ten decimals; unit changes must not add more."""
    return round(usd, 10)
