"""The provider's own configuration: region, default tags, and the accounts it may touch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi_aws
from pulumi import _types as pulumi_types

from tests.standin.cloud import Cloud
from tests.standin.translation import Problem
from tests.standin.wire import Properties, is_unknown

SKIPS = (
    "skipCredentialsValidation",
    "skipMetadataApiCheck",
    "skipRegionValidation",
    "skipRequestingAccountId",
    "s3UsePathStyle",
)
UNDERSTOOD = ("region", "defaultTags", "allowedAccountIds", "forbiddenAccountIds", "profile", "maxRetries", *SKIPS)
"""What the program may set; anything else would be ignored silently here and not there."""
FROM_ENGINE = (
    "version",
    "pluginDownloadURL",
    "__internal",
    "__pulumi-go-provider-infer",
    "__pulumi-go-provider-version",
)


class ConfigurationError(Exception):
    """The configuration leads nowhere."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What the program told the provider."""

    region: str
    default_tags: Mapping[str, str]
    allowed_accounts: tuple[str, ...]
    forbidden_accounts: tuple[str, ...]
    ask_account: bool

    @classmethod
    def of(cls, given: Properties, environment: Mapping[str, str]) -> Configuration:
        """Reads it; the engine sends everything but text as JSON.

        Raises:
            ConfigurationError: no region or no credentials.
        """
        values = {name: _parsed(value) for name, value in given.items()}
        region = values.get("region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
        if not region or is_unknown(region):
            raise ConfigurationError("Invalid provider configuration: missing region")
        if not environment.get("AWS_ACCESS_KEY_ID") and not values.get("profile"):
            raise ConfigurationError(
                "No valid credential sources found. Please see https://www.pulumi.com/registry/packages/aws"
            )
        return cls(
            region=region,
            default_tags=(values.get("defaultTags") or {}).get("tags") or {},
            allowed_accounts=tuple(values.get("allowedAccountIds") or ()),
            forbidden_accounts=tuple(values.get("forbiddenAccountIds") or ()),
            ask_account=values.get("skipRequestingAccountId") in (None, False),
        )

    @staticmethod
    def problems(given: Properties) -> list[Problem]:
        """Keys that the real provider does not have, or that the stand-in would ignore."""
        real = set(pulumi_types.input_type_types(pulumi_aws.ProviderArgs))
        found: list[Problem] = []
        for name in given:
            if name in FROM_ENGINE or name in UNDERSTOOD:
                continue
            reason = "is not understood by the stand-in" if name in real else "is no setting of the AWS provider"
            found.append(Problem(name, reason))
        return found

    def check_account(self, cloud: Cloud) -> None:
        """Refuses an account other than the allowed ones.

        Raises:
            ConfigurationError: the credentials belong to another account.
        """
        if not self.ask_account:
            if self.allowed_accounts or self.forbidden_accounts:
                raise ConfigurationError("allowedAccountIds can't be checked with skipRequestingAccountId")
            return
        account = cloud.account
        refused = account in self.forbidden_accounts or (self.allowed_accounts and account not in self.allowed_accounts)
        if refused:
            raise ConfigurationError(f"AWS account ID not allowed: {account}")


def _parsed(value: Any) -> Any:
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except ValueError:
            return value
        return value if isinstance(parsed, int | float) and not isinstance(parsed, bool) else parsed
    return value
