"""`--record-answer` and `--forget-answer`: the right answer of a stack's model, kept and taken back."""

from __future__ import annotations

import json
from typing import Any

import click

from scripts.failure import Failure
from scripts.ledger.bundle import Bundle
from scripts.ledger.collect import Collector
from scripts.ledger.consent import agree
from scripts.ledger.folder import load, starts_in
from scripts.ledger.known_answer import answer_of, forget, model_of, record
from scripts.ledger.kubeconfig import Kubeconfig
from scripts.ledger.pod_facts import condition
from scripts.ledger.raw import text
from scripts.ledger.target import Target, pods_of
from scripts.ledger.wishes import Wishes
from scripts.staging.bucket import Bucket, connect


def record_answer(target: Target, wishes: Wishes, *, as_json: bool) -> None:
    """Keeps the answer of a start as the right one, and shows it."""
    name, model = model_of(target.stack, "--record-answer")
    answer = answer_of(_finished(target, wishes).launcher)

    def agreed(what: str) -> None:
        agree(what, "a recorded answer is replaced", yes=wishes.yes)

    new = record(_bucket(target, name), model, answer, agreed=agreed)
    uri = model.manifest_uri(name)
    if as_json:
        click.echo(json.dumps({"format": 1, "manifest": uri, "recorded": new, "answer": answer}, indent=2))
        return
    click.echo(f"{'recorded' if new else 'recorded already'}: {_shown(answer)}")
    click.echo(f"  {answer['firm_tokens']} of {len(answer['token_ids'])} tokens are compared at each start, {uri}")


def forget_answer(target: Target, wishes: Wishes, *, as_json: bool) -> None:
    """Takes the recorded answer of a stack's model back, and shows what it was."""
    name, model = model_of(target.stack, "--forget-answer")

    def agreed(what: str) -> None:
        agree(what, "a recorded answer is removed", yes=wishes.yes)

    removed = forget(_bucket(target, name), model, agreed=agreed)
    uri = model.manifest_uri(name)
    if as_json:
        click.echo(json.dumps({"format": 1, "manifest": uri, "removed": removed}, indent=2))
    elif removed is None:
        click.echo(f"nothing to forget: no answer is recorded in {uri}")
    else:
        click.echo(f"forgotten: {_shown(removed)}")
        click.echo(f"  starts check only that an answer is sane, until one is recorded again, {uri}")


def _shown(answer: Any) -> str:  # noqa: ANN401 - whatever stands in the manifest
    return f"{text(answer, 'prompt')!r} → {text(answer, 'text')!r}"


def _bucket(target: Target, name: str) -> Bucket:
    return connect(name, region=target.stack.environment.region if target.stack else None)


def _finished(target: Target, wishes: Wishes) -> Bundle:
    """The start whose answer is taken: the newest that is Ready, or the one that was named."""
    if wishes.source:
        return load(starts_in(wishes.source)[0])
    with Kubeconfig.of(wishes.context) as api:
        collector = Collector(api)
        ready = [pod for pod in pods_of(collector, target) if text(condition(pod, "Ready"), "status") == "True"]
        if not ready:
            raise Failure(f"no pod of {target.model} in namespace {target.namespace} is Ready")
        return collector.start(ready[0])
