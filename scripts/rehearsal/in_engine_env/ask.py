"""Asks a served model as a user does, with the `openai` package; one JSON document on standard output.

    python ask.py BASE_URL MODEL COUNT

COUNT equal completions one after another, then a streamed one and a chat. Run by the engine environment's Python.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import contextlib
import json
import sys
import time

from openai import NotFoundError, OpenAI

PROMPT = "The capital of France is"


def main(base_url: str, model: str, count: int) -> None:
    """Asks, and prints what came and how long it took."""
    client = OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=120)
    with contextlib.suppress(NotFoundError):  # imports what the client loads late, and never reaches the engine
        client.completions.create(model="no such model", prompt=PROMPT, max_tokens=1)
    latencies_s = []
    text = ""
    for _ in range(count):
        began = time.perf_counter()
        answer = client.completions.create(
            model=model, prompt=PROMPT, max_tokens=16, temperature=0, extra_body={"ignore_eos": True}
        )
        latencies_s.append(round(time.perf_counter() - began, 4))
        text = answer.choices[0].text
    streamed = client.completions.create(model=model, prompt=PROMPT, max_tokens=8, temperature=0, stream=True)
    pieces = [piece.choices[0].text for piece in streamed if piece.choices]
    chat = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "How long did you take?"}], max_tokens=8, temperature=0
    )
    document = {
        "latencies_s": latencies_s,
        "text": text,
        "streamed": "".join(pieces),
        "chat": chat.choices[0].message.content,
    }
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
