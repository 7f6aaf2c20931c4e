"""The answer of a right start, written into the manifest of the staged model: later starts are compared with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from budget.problems import bad_input
from budget.staged import StagedModel, parse_manifest
from infra.accounts import bucket_name
from infra.stack_file import Stack
from scripts.failure import Failure
from scripts.ledger.raw import Object, mapping, text
from scripts.staging.bucket import Bucket
from scripts.staging.refusal import is_taken, told

MEMBERS = ("prompt", "token_ids", "text", "firm_tokens")
"""Of the launcher's answer: what its next starts read; the rest is its verdict on this start."""


def model_of(stack: Stack | None) -> tuple[str, StagedModel]:
    """Bucket and model whose manifest keeps the answer.

    Raises:
        BadInput: no model stack, or one that is not pinned.
    """
    model = stack.model if stack else None
    if stack is None or model is None:
        raise bad_input("--record-answer", "nothing says which staged model is meant", "Name a model stack.")
    if model.revision is None:
        raise bad_input("--record-answer", f"{stack.name} is not pinned", f"Run `coldstart pin {stack.name}` first.")
    return bucket_name(stack), StagedModel(name=model.source, revision=model.revision)


def answer_of(launcher: Object) -> dict[str, Any]:
    """What the model answered in a start that is worth comparing others with.

    Args:
        launcher: the launcher's ledger document.

    Raises:
        Failure: the start checked no answer, or its answer was wrong.
    """
    checked = mapping(launcher, "answer")
    if not checked:
        raise Failure("the launcher of this start has checked no answer (yet): it can't be recorded")
    if checked.get("right") is not True:
        raise Failure(f"this start did not answer right, so that nothing is recorded: {text(checked, 'reason')}")
    answer = {name: checked[name] for name in MEMBERS if name in checked}
    if len(answer) < len(MEMBERS) or not answer["token_ids"]:
        raise Failure("the engine returned no token ids: a text alone can't be compared token by token")
    return answer


def record(bucket: Bucket, model: StagedModel, answer: dict[str, Any], *, agreed: Callable[[str], None]) -> bool:
    """Writes the answer into the manifest; False when it is there already.

    Args:
        bucket: where the model is staged.
        model: whose manifest it is.
        answer: see `answer_of`.
        agreed: asked with what would be replaced when another answer is recorded; raises to refuse.

    Raises:
        BadInput: there is a manifest that can't be read.
        Failure: the model isn't staged, S3 refused, or somebody else wrote the manifest meanwhile.
    """
    arn = bucket.arn(model.manifest_key)
    with told(arn):
        try:
            found = bucket.client.get_object(Bucket=bucket.name, Key=model.manifest_key)
        except bucket.client.exceptions.NoSuchKey as error:
            raise Failure(f"{model} is not staged in s3://{bucket.name}: `coldstart stage` it first") from error
        body = found["Body"].read()
    parse_manifest(body, where=model.manifest_uri(bucket.name))
    document = json.loads(body)
    before = document.get("answer")
    if before == answer:
        return False
    if before:
        agreed(f"{model} has a recorded answer, {before.get('text', '')[:60]!r}; it becomes {answer['text'][:60]!r}")
    changed = json.dumps(document | {"answer": answer}, indent=1, sort_keys=True) + "\n"
    with told(arn):
        try:
            bucket.client.put_object(
                Bucket=bucket.name,
                Key=model.manifest_key,
                Body=changed.encode(),
                Metadata=found["Metadata"],
                IfMatch=found["ETag"],
            )
        except ClientError as error:
            if is_taken(error):
                raise Failure(f"somebody else wrote {arn} meanwhile. Run it again") from error
            raise
    return True
