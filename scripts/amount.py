"""A number on the command line: dollars, seconds, bytes."""

from __future__ import annotations

import math
from typing import Any

import click


class Amount(click.FloatRange):
    """A number within bounds that make sense; `nan` compares with nothing, so no range keeps it out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401 - click's own signature
        """The number, or click's refusal in words."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not an amount: give a number in the range {self._describe_range()}.", param, ctx)
        return number
