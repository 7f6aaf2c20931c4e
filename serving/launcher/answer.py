"""The known answer, or at least a sane one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, cast

from serving.launcher.facts import AnswerFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from serving.launcher.config import KnownAnswer
    from serving.launcher.engine_api import EngineApi

FIRM_MARGIN_NATS = 0.5
"""Log-probability by which a token must lead the next one to be compared on another machine.

Ours: the same weights under another tensor-parallel degree, GPU or batch shape move a log-probability by hundredths to
a few tenths of a nat in bf16, so a token that leads by less may flip without anything being wrong."""

_SANITY_TOKENS = 24

_SANITY_PROMPT = "The capital of France is"


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A greedy completion: tokens, their log-probabilities, and by how much each led the next best."""

    token_ids: tuple[int, ...]
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    margins: tuple[float, ...]
    text: str

    @classmethod
    def from_reply(cls, document: Mapping[str, Any]) -> Completion:
        """Reads the first choice of a /v1/completions answer; what is missing in it is empty."""
        choices = cast("list[dict[str, Any]]", document.get("choices") or [{}])
        logprobs = cast("dict[str, Any]", choices[0].get("logprobs") or {})
        chosen = cast("list[float | None]", logprobs.get("token_logprobs") or [])
        ranked = cast("list[dict[str, float] | None]", logprobs.get("top_logprobs") or [])
        return cls(
            token_ids=tuple(cast("list[int]", choices[0].get("token_ids") or [])),
            tokens=tuple(cast("list[str]", logprobs.get("tokens") or [])),
            logprobs=tuple(math.nan if value is None else value for value in chosen),
            margins=tuple(_margin(best or {}) for best in ranked),
            text=str(choices[0].get("text") or ""),
        )

    def firm_tokens(self) -> int:
        """Leading tokens that were no near ties; at least one."""
        for index, margin in enumerate(self.margins):
            if margin < FIRM_MARGIN_NATS:
                return max(1, index)
        return max(1, len(self.margins))


def _margin(ranked: Mapping[str, float]) -> float:
    """By how much the best token leads the next; 0 when only one is told."""
    best = sorted(ranked.values(), reverse=True)
    return best[0] - best[1] if len(best) > 1 else 0.0


def insane(answer: Completion) -> str:
    """Why an answer can't be that of a loaded model; empty when it may be."""
    size = len(answer.token_ids or answer.tokens)
    if not size:
        return "the answer is empty"
    if not answer.logprobs or not all(math.isfinite(value) for value in answer.logprobs):
        return "log-probabilities are missing or not finite"
    if size > 1 and len(set(answer.token_ids or answer.tokens)) == 1:
        return f"one token is repeated {size} times"
    return ""


def differs(answer: Completion, known: KnownAnswer) -> str:
    """Why an answer is not the known one; empty when it is."""
    firm = known.firm_tokens
    if answer.token_ids:
        for at, (want, got) in enumerate(zip_longest(known.token_ids[:firm], answer.token_ids[:firm])):
            if want != got:
                return f"token {at + 1} of {firm} is {'missing' if got is None else got} instead of {want}"
        return ""
    got_text = "".join(answer.tokens[:firm]) or answer.text
    if got_text and known.text.startswith(got_text):
        return ""
    return f"the text begins {got_text[:60]!r} instead of {known.text[:60]!r}"


def check_answer(api: EngineApi, known: KnownAnswer | None, timeout_s: float) -> AnswerFacts:
    """Asks for the known answer, or for any sane one, greedily."""
    body: dict[str, object] = {
        "prompt": known.prompt if known else _SANITY_PROMPT,
        "max_tokens": len(known.token_ids) if known else _SANITY_TOKENS,
        "temperature": 0,
        "logprobs": 2,
        "return_token_ids": True,
    }
    reply = api.post("/v1/completions", body, timeout_s)
    answer = Completion.from_reply(reply.document)
    wrong = insane(answer) or (differs(answer, known) if known else "")
    reason = (f"wrong answer: {wrong}" if wrong else "") if reply.ok else f"no answer: {reply.why()}"
    return AnswerFacts(
        check="known" if known else "sanity",
        right=not reason,
        reason=reason,
        prompt=str(body["prompt"]),
        token_ids=list(answer.token_ids),
        text=answer.text,
        firm_tokens=answer.firm_tokens(),
    )
