"""Refreshing prices over the wire of the Price List API, which moto lacks: the front answers in its protocol."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping
from datetime import UTC, date, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from budget.instances import instances
from budget.price import prices as price_table
from scripts.account.session import Account
from scripts.failure import Failure
from scripts.price_list.catalogue import ListPrice, Product, instance_product, price, products
from scripts.price_list.tables import Refreshed, new_instances, new_prices
from scripts.prices import SERVED_FROM, refresh
from tests.aws.account.front import Front

NOW = datetime(2026, 12, 24, 18, tzinfo=UTC)
PUBLISHED = "2026-12-20T11:00:00Z"


def entry(usage: str, unit: str, usd: str, *, attributes: Mapping[str, str] | None = None, more: Any = ()) -> str:
    """A product of the price list, as the API sends it: JSON in a string."""
    dimensions = {
        "A.B.C": {"unit": unit, "beginRange": "0", "endRange": "Inf", "pricePerUnit": {"USD": usd}},
        **{f"A.B.{index}": each for index, each in enumerate(more)},
    }
    return json.dumps(
        {
            "product": {"attributes": {"usagetype": usage, **(attributes or {})}},
            "publicationDate": PUBLISHED,
            "terms": {"OnDemand": {"A.B": {"priceDimensions": dimensions}}},
        }
    )


def filters(request: Mapping[str, Any]) -> dict[str, str]:
    assert {each["Type"] for each in request["Filters"]} == {"TERM_MATCH"}
    return {each["Field"]: each["Value"] for each in request["Filters"]}


@pytest.fixture
def listed(front: Front) -> dict[str, list[str]]:
    """What the price list holds: usage type or instance type → products. Starts with every one of ours, at $2."""
    held = {
        product.usage: [entry(f"USE1-{product.usage}", product.unit, "2.0000000000")] for product in products().values()
    }
    held |= {name: [entry(f"BoxUsage:{name}", "Hrs", "3.5000000000")] for name in instances()}

    def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
        asked = filters(request)
        if "instanceType" in asked:
            found = held.get(asked["instanceType"], [])
        else:
            found = [text for name, texts in held.items() if name not in instances() for text in texts]
        return {"FormatVersion": "aws_v1", "PriceList": found}

    front.answers["pricing.GetProducts"] = answer
    return held


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Copies of the tables that a test may write."""
    for name in ("prices.json", "instances.csv"):
        shutil.copy(str(files("budget").joinpath(name)), tmp_path)
    return tmp_path


def test_a_refresh_writes_both_tables_with_date_and_source(
    account: Account, listed: dict[str, list[str]], tables: Path
) -> None:
    listed["g6e.2xlarge"] = [entry("BoxUsage:g6e.2xlarge", "Hrs", "2.2420800000")]
    listed["p5.48xlarge"] = []
    before = (tables / "prices.json").read_text().splitlines()
    outcome = refresh(account.region(SERVED_FROM).pricing, "us-east-1", tables, say=lambda _: None, now=NOW)

    table = json.loads((tables / "prices.json").read_text())
    assert (table["region"], table["priced_on"], table["hours_per_month"]) == ("us-east-1", "2026-12-24", 730)
    assert table["items"]["nat_gateway_usd_per_hour"] == {
        "usd": 2.0,
        "source": "AWS Price List API, us-east-1, list of 2026-12-20",
    }
    assert table["items"]["gp3_usd_per_mib_s_month"]["usd"] == 2 / 1024, "AWS prices a GiB/s, the table a MiB/s"
    assert table["items"]["s3_get_usd_per_1000"]["usd"] == 2000
    assert table["items"].keys() == price_table().usd.keys(), "an item that AWS's list does not name is kept"
    kept = [line for line in before if '"internet_in_usd_per_gb"' in line]
    assert kept == [
        line for line in (tables / "prices.json").read_text().splitlines() if '"internet_in_usd_per_gb"' in line
    ]
    assert "internet_in_usd_per_gb" in outcome.kept

    text = (tables / "instances.csv").read_text()
    rows = {row["instance"]: row for row in csv.DictReader(line for line in text.splitlines() if line[0] != "#")}
    assert rows.keys() == instances().keys()
    assert (rows["g6e.2xlarge"]["usd_per_hour"], rows["g6e.2xlarge"]["priced_on"]) == ("2.24208", "2026-12-20")
    assert (rows["p5.48xlarge"]["usd_per_hour"], rows["p5.48xlarge"]["priced_on"]) == ("", ""), "not sold is not free"
    assert "# On-demand prices of us-east-1, from the AWS Price List API as of 2026-12-24." in text
    assert "g6e.2xlarge" not in outcome.changed
    assert outcome.changed["p5.48xlarge"][1] is None
    assert not list(tables.glob(".*")), "nothing half-written is left"


def test_each_item_is_one_line_and_only_prices_change(tables: Path) -> None:
    price_ = ListPrice(usd=0.046, published=date(2026, 12, 20))
    found = Refreshed(
        region="eu-central-1", on=date(2026, 12, 24), items={"nat_gateway_usd_per_hour": price_}, instances={}
    )
    for name, new in (("prices.json", new_prices), ("instances.csv", new_instances)):
        old = (tables / name).read_text().splitlines()
        fresh = new((tables / name).read_text(), found).splitlines()
        changed = [line for line in fresh if line not in old]
        assert len(changed) <= 4, changed
        again = new("\n".join(fresh) + "\n", found).splitlines()
        assert again == fresh, "a second refresh with the same prices changes nothing"


def test_the_tables_are_read_as_they_are_written(tables: Path) -> None:
    everything = {name: ListPrice(usd=1.25, published=date(2026, 12, 20)) for name in instances()}
    found = Refreshed(region="us-east-1", on=date(2026, 12, 24), items={}, instances=everything)
    old = (tables / "instances.csv").read_text()
    read = [line for line in new_instances(old, found).splitlines() if not line.startswith("#")]
    columns = {"usd_per_hour", "priced_on"}
    before = list(csv.DictReader(line for line in old.splitlines() if not line.startswith("#")))
    for was, row in zip(before, csv.DictReader(read), strict=True):
        assert {key: value for key, value in row.items() if key not in columns} == {
            key: value for key, value in was.items() if key not in columns
        }
        assert row["usd_per_hour"] == "1.25"


def test_the_first_tier_and_the_right_unit_are_meant(account: Account, front: Front) -> None:
    tiers = [{"unit": "GB-Mo", "beginRange": "51200", "endRange": "Inf", "pricePerUnit": {"USD": "0.022"}}]
    other = entry("EUC1-TimedStorage-INT-ByteHrs", "GB-Mo", "9")
    right = entry("EUC1-TimedStorage-ByteHrs", "GB-Mo", "0.0245", more=tiers)
    front.answers["pricing.GetProducts"] = lambda _: {
        "PriceList": [other, right, entry("TimedStorage-ByteHrs", "Objects", "7")]
    }
    found = price(account.region(SERVED_FROM).pricing, products()["s3_standard_usd_per_gb_month"], "eu-central-1")
    assert found == ListPrice(usd=0.0245, published=date(2026, 12, 20))


def test_two_prices_for_one_item_are_refused(account: Account, front: Front) -> None:
    front.answers["pricing.GetProducts"] = lambda _: {"PriceList": [entry("X", "Hrs", "1"), entry("Y", "Hrs", "2")]}
    with pytest.raises(Failure, match=r"the price list names \$1, \$2 for"):
        price(account.region(SERVED_FROM).pricing, instance_product("g5.xlarge"), "us-east-1")


def test_what_is_asked_for_narrows_to_one_product(account: Account, front: Front) -> None:
    asked: list[Mapping[str, Any]] = []

    def answer(request: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append(request)
        return {"PriceList": []}

    front.answers["pricing.GetProducts"] = answer
    assert price(account.region(SERVED_FROM).pricing, instance_product("g5.xlarge"), "us-west-2") is None
    assert asked[0]["ServiceCode"] == "AmazonEC2"
    assert filters(asked[0]) == {
        "regionCode": "us-west-2",
        "instanceType": "g5.xlarge",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }


@pytest.mark.parametrize("code", ["AccessDeniedException", "InternalErrorException"])
def test_a_refusal_leaves_the_tables_alone(account: Account, front: Front, tables: Path, code: str) -> None:
    before = {path.name: path.read_bytes() for path in tables.iterdir()}
    front.fail("pricing.GetProducts", code=code, times=99)
    with pytest.raises(Failure, match="asking the price list"):
        refresh(account.region(SERVED_FROM).pricing, "us-east-1", tables, say=lambda _: None, now=NOW)
    assert {path.name: path.read_bytes() for path in tables.iterdir()} == before


def test_an_empty_list_leaves_the_tables_alone(account: Account, front: Front, tables: Path) -> None:
    before = {path.name: path.read_bytes() for path in tables.iterdir()}
    front.answers["pricing.GetProducts"] = lambda _: {"PriceList": []}
    with pytest.raises(Failure, match="has no prices for us-east-1: nothing was written"):
        refresh(account.region(SERVED_FROM).pricing, "us-east-1", tables, say=lambda _: None, now=NOW)
    assert {path.name: path.read_bytes() for path in tables.iterdir()} == before


def test_interrupted_between_the_two_files_each_is_still_whole(
    account: Account, listed: dict[str, list[str]], tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert listed
    replace, done = Path.replace, list[Path]()

    def once(path: Path, target: Path) -> Path:
        if done:
            raise KeyboardInterrupt
        done.append(path)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", once)
    with pytest.raises(KeyboardInterrupt):
        refresh(account.region(SERVED_FROM).pricing, "us-east-1", tables, say=lambda _: None, now=NOW)
    json.loads((tables / "prices.json").read_text())
    assert len((tables / "instances.csv").read_text().splitlines()) >= len(instances())


def test_every_item_of_the_table_has_a_product_or_is_known_to_have_none() -> None:
    assert products().keys() <= price_table().usd.keys()
    assert price_table().usd.keys() - products().keys() == {"internet_in_usd_per_gb", "fsx_lustre_usd_per_gb_month"}
    assert all(isinstance(product, Product) and product.unit for product in products().values())
