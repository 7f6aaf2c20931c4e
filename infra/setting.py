"""One setting of a stack file: what it means, its unit, its default and why; and the texts settings are made of."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticKnownError

REVISION = re.compile(r"^[0-9a-f]{40}$")
DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


class Tree(BaseModel):
    """A node of the settings tree: unknown keys are refused, values never change after parsing."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """YAML reads `yes` as true, and Python takes true for 1: never meant where a number stands."""
        field = cls.model_fields[info.field_name or ""]
        if isinstance(value, bool) and bool not in _types(field.annotation) and {int, float} & _types(field.annotation):
            raise PydanticKnownError("int_type")
        return value


def _types(annotation: object) -> frozenset[object]:
    """The plain types of a field such as `int | None`."""
    return frozenset(get_args(annotation) or (annotation,))


def setting(
    default: Any = ...,  # noqa: ANN401 - a default is of the field's type
    *,
    what: str,
    why: str = "",
    unit: str = "",
    **limits: Any,  # noqa: ANN401 - passed on to pydantic as they are
) -> Any:  # noqa: ANN401 - pydantic.Field is typed the same
    """A field with what it means, its unit, and why its default is what it is."""
    extra: dict[str, JsonValue] = {"unit": unit, "why": why}
    if isinstance(default, type):
        return Field(default_factory=default, description=what, json_schema_extra=extra, **limits)
    return Field(default, description=what, json_schema_extra=extra, **limits)


FEWEST_ACCOUNT_DIGITS = 10
"""Fewer are a typing mistake rather than an account id whose leading zeros YAML has eaten."""


def _account(value: object) -> object:
    """YAML reads an unquoted account id as a number, so leading zeros come back here."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 10 ** (FEWEST_ACCOUNT_DIGITS - 1):
        return f"{value:012d}"
    return value


Account = Annotated[str, BeforeValidator(_account), StringConstraints(pattern=r"^\d{12}$")]
Region = Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")]
Cidr = Annotated[str, StringConstraints(pattern=r"^\d{1,3}(\.\d{1,3}){3}/\d{1,2}$")]
Zone = Annotated[str, StringConstraints(pattern=r"^[a-f]$")]
RoleArn = Annotated[str, StringConstraints(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/.+$")]
KeyArn = Annotated[str, StringConstraints(pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/.+$")]
Release = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]
Minor = Annotated[str, StringConstraints(pattern=r"^1\.\d{2}$")]
Source = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")]
Image = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][\w./:-]*(@sha256:[0-9a-f]{64})?$")]
Cron = Annotated[str, StringConstraints(pattern=r"^(\S+ ){4}\S+$")]
TagText = Annotated[str, StringConstraints(pattern=r"^[\w .:/=+\-@]{1,128}$")]
"""What every AWS service takes as a tag's key or value."""
SnapshotId = Annotated[str, StringConstraints(pattern=r"^snap-([0-9a-f]{8}|[0-9a-f]{17})$")]
BucketName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$")]


def _moment(value: object) -> object:
    """YAML reads an unquoted date or time as such, so its text comes back here."""
    return value.isoformat() if isinstance(value, date) else value


Moment = Annotated[
    str,
    BeforeValidator(_moment),
    StringConstraints(
        pattern=r"^(\d{1,4}[hd]|\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?)$",
    ),
]
