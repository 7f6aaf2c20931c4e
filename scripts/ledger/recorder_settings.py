"""What the recorder's environment says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the environment says."""

    namespace: str
    keep: int = 1000
    port: int = 9464
    otlp_endpoint: str = ""
    cloudwatch: str = ""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """Reads the environment.

        Raises:
            ValueError: what is wrong with it.
        """
        namespace = environment.get("COLDSTART_NAMESPACE", "")
        if not namespace:
            raise ValueError("COLDSTART_NAMESPACE is not set: the namespace that holds the ledgers")
        numbers = {"COLDSTART_KEEP": 1000, "COLDSTART_PORT": 9464}
        for name, default in numbers.items():
            value = environment.get(name, str(default))
            if not value.isdigit():
                raise ValueError(f"{name} is {value!r}, not a number")
            numbers[name] = int(value)
        cloudwatch = environment.get("COLDSTART_CLOUDWATCH", "")
        if cloudwatch not in {"", "log"}:
            raise ValueError(f"COLDSTART_CLOUDWATCH is {cloudwatch!r}; it is `log` or empty")
        return cls(
            namespace=namespace,
            keep=numbers["COLDSTART_KEEP"],
            port=numbers["COLDSTART_PORT"],
            otlp_endpoint=environment.get("COLDSTART_OTLP_ENDPOINT", ""),
            cloudwatch=cloudwatch,
        )
