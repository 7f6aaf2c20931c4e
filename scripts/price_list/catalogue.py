"""The Price List Query API: one product at a time, its on-demand price in the unit that the table wants."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

from scripts.account.refusals import told
from scripts.failure import Failure

if TYPE_CHECKING:
    from mypy_boto3_pricing import PricingClient

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """Where a price is in AWS's list.

    Attributes:
        service: service code.
        filters: attributes that narrow the answer.
        usage: how its usage type ends; empty when the filters say it all.
        unit: that AWS prices it by.
        times: from AWS's unit to the table's.
    """

    service: str
    filters: Mapping[str, str] = field(default_factory=dict[str, str])
    usage: str = ""
    unit: str
    times: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ListPrice:
    """A price as AWS publishes it.

    Attributes:
        published: date of the list that it stands in.
    """

    usd: float
    published: date


@cache
def products() -> Mapping[str, Product]:
    """Item of the price table → where it is."""
    return {name: Product(**entry) for name, entry in cast("Mapping[str, Json]", _document()["items"]).items()}


@cache
def _instance_template() -> Product:
    return Product(**cast("dict[str, Any]", _document()["instance"]))


def instance_product(name: str) -> Product:
    """Where the on-demand Linux price of an instance type is."""
    template = _instance_template()
    return Product(service=template.service, filters={**template.filters, "instanceType": name}, unit=template.unit)


def price(client: PricingClient, product: Product, region: str) -> ListPrice | None:
    """The on-demand price of a product in a region, its first tier; None when it is not sold there.

    Raises:
        Failure: AWS refuses, answers something unreadable, or names two prices.
    """
    filters = {"regionCode": region, **product.filters}
    with told(f"asking the price list for {product.usage or product.filters.get('instanceType', product.service)}"):
        pages = client.get_paginator("get_products").paginate(
            ServiceCode=product.service,
            Filters=[{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in sorted(filters.items())],
            FormatVersion="aws_v1",
        )
        entries = [cast("Json", json.loads(text)) for page in pages for text in page["PriceList"]]
    found = {offer for entry in entries if _is_meant(entry, product) for offer in _offers(entry, product)}
    if len(found) > 1:
        listed = ", ".join(f"${usd:g}" for usd, _ in sorted(found))
        raise Failure(f"the price list names {listed} for {product.usage or product.filters} in {region}")
    return next((ListPrice(usd=usd * product.times, published=published) for usd, published in found), None)


def _is_meant(entry: Json, product: Product) -> bool:
    attributes = cast("Json", entry.get("product", {})).get("attributes", {})
    usage = str(cast("Json", attributes).get("usagetype", ""))
    return not product.usage or re.search(rf"(^|-){re.escape(product.usage)}$", usage) is not None


def _offers(entry: Json, product: Product) -> Iterator[tuple[float, date]]:
    """Prices of the first tier in the wanted unit."""
    published = date.fromisoformat(str(entry.get("publicationDate", ""))[:10])
    terms = cast("Mapping[str, Json]", cast("Json", entry.get("terms", {})).get("OnDemand", {}))
    for term in terms.values():
        for dimension in cast("Mapping[str, Json]", term.get("priceDimensions", {})).values():
            if str(dimension.get("unit", "")).lower() != product.unit.lower():
                continue
            if str(dimension.get("beginRange", "0")) == "0":
                yield float(cast("Json", dimension["pricePerUnit"])["USD"]), published


def _document() -> Json:
    text = files("scripts.price_list").joinpath("products.json").read_text(encoding="utf-8")
    return cast("Json", json.loads(text))
