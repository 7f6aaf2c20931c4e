"""The engine image in a registry: only what the registry says it lacks fails; who can't reach it knows nothing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import httpx2 as httpx
import pytest

from infra.stack_file import STACKS
from scripts.checks import engine_image
from scripts.checks.finding import Subject, Verdict
from scripts.preflight import wanted_of
from scripts.registry import HttpRegistry

STACK = "dev-llama-3-1-8b"
Answer = Callable[[httpx.Request], httpx.Response]


def manifest(document: dict[str, Any]) -> tuple[str, bytes]:
    """Digest and bytes."""
    content = json.dumps(document).encode()
    return f"sha256:{hashlib.sha256(content).hexdigest()}", content


DIGEST, IMAGE = manifest(
    {"layers": [{"digest": f"sha256:{'1' * 64}", "size": size} for size in (5_000_000_000, 4_000_000_000)]}
)
OTHER = {"manifests": [{"digest": DIGEST, "platform": {"os": "linux", "architecture": "arm64"}}]}
ODD = {"manifests": ["arm64"]}


def always(status: int, content: bytes = b"") -> Answer:
    return lambda _: httpx.Response(status, content=content)


def nobody(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("[Errno -3] Temporary failure in name resolution", request=request)


def silence(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("timed out", request=request)


def limited(request: httpx.Request) -> httpx.Response:
    """As Docker Hub limits: what is read counts, a look at whether it is there does not."""
    return httpx.Response(200 if request.method == "HEAD" else 429)


def broken_off(request: httpx.Request) -> httpx.Response:
    """Out of order at the first look, out of reach at the second."""
    return nobody(request) if request.method == "HEAD" else httpx.Response(500)


PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
CASES: list[tuple[str, str, Answer, Verdict, str]] = [
    ("all is well", DIGEST, always(200, IMAGE), PASS, "answers, 9.0 GB"),
    ("no name", DIGEST, nobody, WARN, "does not answer: .*name resolution"),
    ("silence", DIGEST, silence, WARN, "does not answer: timed out"),
    ("out of order", DIGEST, always(503), WARN, "503"),
    ("too many requests", DIGEST, limited, WARN, "429"),
    ("out of order, then out of reach", DIGEST, broken_off, WARN, "500"),
    ("no access", DIGEST, always(401), WARN, "refuses access"),
    ("forbidden", DIGEST, always(403), WARN, "refuses access"),
    ("a proxy's page", DIGEST, always(200, b"<html>"), WARN, "do not match their digest"),
    ("of no known shape", manifest(ODD)[0], always(200, manifest(ODD)[1]), WARN, "is it a container image"),
    ("not there", DIGEST, always(404), FAIL, f"registry.example.com has no vllm:{DIGEST}"),
    ("of another machine", manifest(OTHER)[0], always(200, manifest(OTHER)[1]), FAIL, "not built for linux/amd64"),
]


@pytest.mark.parametrize(
    ("digest", "answer", "verdict", "found"), [each[1:] for each in CASES], ids=[each[0] for each in CASES]
)
def test_only_what_a_registry_lacks_fails(digest: str, answer: Answer, verdict: Verdict, found: str) -> None:
    with HttpRegistry(httpx.Client(transport=httpx.MockTransport(answer))) as registry:
        (finding,) = engine_image.CHECK.run(subject(registry, f"registry.example.com/vllm:v0.33.0@{digest}"))
    assert finding.verdict is verdict
    assert re.search(found, finding.found)
    assert finding.found.startswith("can't be checked: ") is (verdict is WARN)
    assert bool(finding.fix) is (verdict is not PASS)


def subject(registry: HttpRegistry, image: str) -> Subject:
    """The shipped model with another image; AWS is not asked about images in other registries."""
    wanted = wanted_of(STACK, STACKS)
    assert wanted.model is not None
    return Subject(
        wanted=replace(wanted, model=wanted.model.model_copy(update={"image": image})),
        account=cast("Any", None),
        clients=cast("Any", None),
        registry=registry,
        api=lambda: None,
    )
