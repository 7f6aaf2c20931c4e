"""What a text of each pattern looks like: people are shown an example, not a regular expression."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, str] = {
    r"^\d{12}$": "111122223333",
    r"^[a-z]{2}(-[a-z]+)+-\d$": "us-west-2",
    r"^\d{1,3}(\.\d{1,3}){3}/\d{1,2}$": "10.64.0.0/16",
    r"^[a-f]$": "a",
    r"^arn:aws[a-z-]*:iam::\d{12}:role/.+$": "arn:aws:iam::111122223333:role/platform",
    r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/.+$": "arn:aws:kms:us-west-2:111122223333:key/0a1b2c3d",
    r"^\d+\.\d+\.\d+$": "1.53.0",
    r"^1\.\d{2}$": "1.35",
    r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$": "meta-llama/Llama-3.1-8B-Instruct",
    r"^[a-z0-9][\w./:-]*(@sha256:[0-9a-f]{64})?$": "vllm/vllm-openai:v0.27.1",
    r"^(\S+ ){4}\S+$": "0 8 * * 1-5",
    r"^[\w .:/=+\-@]{1,128}$": "platform team",
    r"^snap-([0-9a-f]{8}|[0-9a-f]{17})$": "snap-0123456789abcdef0",
    r"^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$": "acme-weights",
    r"^(\d{1,4}[hd]|\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?)$": "8h or 2026-12-01T18:00Z",
    r"^https?://[\w.-]+(:\d+)?(/[\w./-]*)?$": "http://collector.monitoring.svc:4318",
    r"^([12347]|\dg\.\d+gb)$": "1g.10gb",
    r"^cr-[0-9a-f]{17}$": "cr-0123456789abcdef0",
    r"^fs-[0-9a-f]{8,17}(::fsap-[0-9a-f]{17})?$": "fs-0123456789abcdef0",
    r"^/.+": "/models/llama",
    r"^sha256:[0-9a-f]{64}$": "sha256:" + "0123456789abcdef" * 4,
    r"^[0-9a-f]{40}$": "0e9e39f249a16976918f6564b8830bc894c89659",
}
"""Pattern of a setting → texts that have it."""
