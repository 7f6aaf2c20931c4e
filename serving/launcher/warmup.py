"""The requests before Ready: a plan, and a probe until it is steady."""

from __future__ import annotations

import http
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from serving.launcher.config import WarmupPlan
    from serving.launcher.engine_api import EngineApi, Reply
    from serving.launcher.facts import WarmupFacts

_TEXT = (
    "A cold start is the time from asking for one more replica to its first answer at normal speed. "
    "It is measured phase by phase: node, pull, start, weights, engine, warm-up. The largest is attacked first. "
)
"""Ordinary words: any tokenizer turns them into ordinary tokens."""

_PROBE_TOKENS = 16
"""Prompt of the probe, of a batch's members and of a streamed request."""

_MODEST_LENGTH = 512
"""Taken for the longest request of an engine that doesn't say: every served model takes this much."""

_MOST_NOTES = 20
"""Of each kind, in the ledger: an engine that refuses every probe says the same every time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One request of the warm-up."""

    name: str
    path: str
    body: Mapping[str, object]


def prompt(tokens: Sequence[int], length: int, turn: int) -> list[int]:
    """`length` tokens that begin elsewhere at every turn, so that the engine's prefix cache can't shorten the work."""
    start = turn * 7 % len(tokens)
    return [tokens[(start + index) % len(tokens)] for index in range(length)]


def warmup_steps(plan: WarmupPlan, tokens: Sequence[int], longest: int) -> list[Step]:
    """The requests of a plan.

    Args:
        plan: what to warm.
        tokens: ordinary tokens of this model.
        longest: most tokens the engine takes, prompt and output together.
    """
    steps: list[Step] = []
    room = max(1, longest - plan.output_tokens)
    fixed: dict[str, object] = {"max_tokens": plan.output_tokens, "temperature": 0, "ignore_eos": True}
    lengths = sorted({min(length, room) for length in plan.prompt_tokens})
    if plan.completion:
        for turn, length in enumerate(lengths):
            body = {**fixed, "prompt": prompt(tokens, length, turn)}
            steps.append(Step(name=f"completion of {length} tokens", path="/v1/completions", body=body))
        for size in sorted(set(plan.batch_sizes)):
            batch = [prompt(tokens, min(_PROBE_TOKENS, room), turn) for turn in range(size)]
            steps.append(Step(name=f"batch of {size}", path="/v1/completions", body={**fixed, "prompt": batch}))
        if plan.stream:
            body = {**fixed, "prompt": prompt(tokens, min(_PROBE_TOKENS, room), 1), "stream": True}
            steps.append(Step(name="streamed completion", path="/v1/completions", body=body))
        body = {**fixed, "prompt": prompt(tokens, min(_PROBE_TOKENS, room), 2), "logprobs": 1}
        steps.append(Step(name="log-probabilities", path="/v1/completions", body=body))
    if plan.chat:
        chat: dict[str, object] = {**fixed, "messages": [{"role": "user", "content": _TEXT[:60]}]}
        steps.append(Step(name="chat", path="/v1/chat/completions", body=chat))
        if plan.stream:
            steps.append(Step(name="streamed chat", path="/v1/chat/completions", body={**chat, "stream": True}))
    return steps


def is_steady(latencies_s: Sequence[float], window: int, tolerance: float) -> bool:
    """Whether the median of the last `window` latencies is within `tolerance` of the best one seen."""
    if len(latencies_s) < window:
        return False
    return statistics.median(latencies_s[-window:]) <= (1.0 + tolerance) * min(latencies_s)


class Warmup:
    """Runs the plan against the engine and notes what it saw."""

    def __init__(self, api: EngineApi, plan: WarmupPlan, facts: WarmupFacts, stopped: Callable[[], bool]) -> None:
        self._api, self._plan, self._facts, self._stopped = api, plan, facts, stopped
        self._deadline = time.monotonic() + plan.cap_s

    def run(self) -> None:
        """Everything once, then the probe until it is steady, the cap is reached or the engine stops."""
        tokens, longest = self._tokens()
        self._probe(tokens, longest)
        self._facts.first_s = self._facts.probes_s[0] if self._facts.probes_s else None
        for step in warmup_steps(self._plan, tokens, longest):
            if self._over():
                self._facts.skipped.append(step.name)
            else:
                self._send(step)
        while not self._over() and not self._facts.steady:
            self._probe(tokens, longest)
            self._facts.steady = is_steady(self._facts.probes_s, self._plan.window, self._plan.tolerance)
        if self._facts.probes_s:
            self._facts.steady_s = statistics.median(self._facts.probes_s[-self._plan.window :])

    def _over(self) -> bool:
        return self._stopped() or time.monotonic() >= self._deadline

    def _left_s(self) -> float:
        return max(1.0, self._deadline - time.monotonic())

    def _tokens(self) -> tuple[list[int], int]:
        """Ordinary tokens of this model and the longest request it takes."""
        reply = self._api.post("/tokenize", {"prompt": _TEXT}, self._left_s())
        tokens = [token for token in reply.document.get("tokens", []) if isinstance(token, int)]
        longest = reply.document.get("max_model_len")
        if not tokens:
            self._facts.unsupported.append(f"tokenize: {reply.why()}")
            tokens = list(range(32, 96))
        if not isinstance(longest, int):
            listed = cast("list[dict[str, object]]", self._api.models(self._left_s()).document.get("data") or [{}])
            longest = listed[0].get("max_model_len")
        return tokens, longest if isinstance(longest, int) and longest > 1 else _MODEST_LENGTH

    def _probe(self, tokens: Sequence[int], longest: int) -> None:
        """The repeated request: a short prompt in, the plan's output tokens out."""
        length = max(1, min(_PROBE_TOKENS, longest - self._plan.output_tokens))
        body = {
            "max_tokens": min(self._plan.output_tokens, max(1, longest - length)),
            "temperature": 0,
            "ignore_eos": True,
        }
        turn = len(self._facts.probes_s)
        reply = self._send(
            Step(name="probe", path="/v1/completions", body={**body, "prompt": prompt(tokens, length, turn)})
        )
        if reply.ok:
            self._facts.probes_s.append(round(reply.seconds, 4))
        elif not self._over():
            time.sleep(min(0.2, self._left_s()))  # an engine that refuses at once must not be hammered

    def _send(self, step: Step) -> Reply:
        reply = self._api.post(step.path, step.body, self._left_s())
        if reply.ok:
            self._facts.requests += 1
        else:
            refused = http.HTTPStatus.BAD_REQUEST <= reply.status < http.HTTPStatus.INTERNAL_SERVER_ERROR
            notes = self._facts.unsupported if refused else self._facts.failed
            if len(notes) < _MOST_NOTES:
                notes.append(f"{step.name}: {reply.why()}")
        return reply
