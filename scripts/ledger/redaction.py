"""Secrets out of what is saved: a folder with a ledger's evidence is made to be sent to somebody."""

from __future__ import annotations

import re
from typing import Any

REMOVED = "[removed]"
_SENSITIVE = re.compile(r"key|token|secret|passw|credential|auth|cookie|signature", re.IGNORECASE)
_HARMLESS = frozenset(
    (
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "TOKENIZERS_PARALLELISM",
    )
)
"""Names that sound secret and are the proof of an identity: paths and addresses, no credentials."""
_APPLIED = ("kubectl.kubernetes.io/last-applied-configuration",)
_IN_TEXT = (
    re.compile(r"\bhf_[A-Za-z0-9]{16,}"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\beyJ[\w-]{10,}\.[\w-]+\.[\w-]+"),
    re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{8,}"),
    re.compile(r"(?i)(?<=x-amz-signature=)[0-9a-f]+"),
    re.compile(r"(?i)(?<=x-amz-security-token=)[^&\s'\"]+"),
    re.compile(r"(?i)(?<=--api-key[= ])\S+"),
    re.compile(r"""(?i)(?<=['"]api_key['"]: )\[?['"][^'"]*['"]\]?"""),
    re.compile(r"(?i)(?<=--hf-token[= ])\S+"),
    re.compile(r"(?i)(?<=aws_secret_access_key[=:])\s*\S+"),
)


def clean_text(text: str) -> str:
    """A log without what looks like a credential."""
    for pattern in _IN_TEXT:
        text = pattern.sub(REMOVED, text)
    return text


def clean(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A Kubernetes object, or any JSON, without secrets: sensitive variables, applied copies, tokens in text."""
    if isinstance(value, dict):
        return _members(value)  # pyright: ignore[reportUnknownArgumentType] - any JSON object
    if isinstance(value, list):
        return [clean(item) for item in _flags(value)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any JSON list
    return clean_text(value) if isinstance(value, str) else value


def _members(found: dict[str, Any]) -> dict[str, Any]:
    kept = {key: clean(item) for key, item in found.items() if key not in _APPLIED}
    name = kept.get("name")
    if isinstance(name, str) and "value" in kept and _SENSITIVE.search(name) and name not in _HARMLESS:
        kept["value"] = REMOVED
    if found.get("kind") == "Secret":
        kept = {key: item for key, item in kept.items() if key not in {"data", "stringData"}}
    return kept


def _flags(items: list[Any]) -> list[Any]:
    """Arguments without the value that follows a sensitive flag, or is joined to it."""
    kept: list[Any] = []
    for item in items:
        before = kept[-1] if kept else None
        if isinstance(before, str) and before.startswith("--") and "=" not in before and _flag(before):
            kept.append(REMOVED)
        elif isinstance(item, str) and item.startswith("--") and "=" in item and _flag(item.partition("=")[0]):
            kept.append(f"{item.partition('=')[0]}={REMOVED}")
        else:
            kept.append(item)
    return kept


def _flag(name: str) -> bool:
    return (
        any(word in name for word in ("api-key", "token", "secret", "password"))
        and "tokens" not in name
        and "tokenizer" not in name
    )
