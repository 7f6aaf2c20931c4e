"""What found things cost together: per hour and per month, and whether the sum is complete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from budget.price import prices
from scripts.account.found import Found


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    """A sum.

    Attributes:
        usd_per_hour: of everything that has a price.
        unpriced: how many things have none; with any, the sum is a least.
    """

    usd_per_hour: float
    unpriced: int

    @property
    def usd_per_month(self) -> float:
        """As AWS counts months."""
        return self.usd_per_hour * prices().hours_per_month

    def __str__(self) -> str:
        """For a person; cents of an hour matter over a month."""
        at_least = "at least " if self.unpriced else ""
        return f"{at_least}${self.usd_per_hour:,.4f} per hour, ${self.usd_per_month:,.2f} per month"


def total(found: Iterable[Found]) -> Bill:
    """The bill of found things."""
    rates = [each.price.usd_per_hour for each in found]
    known = [rate for rate in rates if rate is not None]
    return Bill(usd_per_hour=sum(known), unpriced=len(rates) - len(known))
