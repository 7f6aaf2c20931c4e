"""The answer of a right start, in the manifest of the staged model: later starts are compared with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


def model_of(stack: Stack | None, option: str) -> tuple[str, StagedModel]:
    """Bucket and model whose manifest keeps the answer.

    Args:
        stack: what was named.
        option: what asks, for the error.

    Raises:
        BadInput: no model stack, or one that is not pinned.
    """
    model = stack.model if stack else None
    if stack is None or model is None:
        raise bad_input(option, "nothing says which staged model is meant", "Name a model stack.")
    if model.revision is None:
        raise bad_input(option, f"{stack.name} is not pinned", f"Run `coldstart pin {stack.name}` first.")
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
        raise Failure("the launcher of this start has not checked an answer (yet), so there is none to record")
    if checked.get("right") is not True:
        raise Failure(f"this start gave a wrong answer, so nothing is recorded: {text(checked, 'reason')}")
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
    held = _held(bucket, model)
    before = held.document.get("answer")
    if before == answer:
        return False
    if before:
        agreed(f"{model} has a recorded answer, {_brief(before)!r}; it becomes {_brief(answer)!r}")
    held.replace(held.document | {"answer": answer})
    return True


def forget(bucket: Bucket, model: StagedModel, *, agreed: Callable[[str], None]) -> object:
    """Takes the answer out of the manifest and returns it; None when none is recorded.

    The next starts check that an answer is sane, until one is recorded again.

    Args:
        bucket: where the model is staged.
        model: whose manifest it is.
        agreed: asked with what would be removed; raises to refuse.

    Raises:
        BadInput: there is a manifest that can't be read.
        Failure: the model isn't staged, S3 refused, or somebody else wrote the manifest meanwhile.
    """
    held = _held(bucket, model)
    if "answer" not in held.document:
        return None
    before = held.document["answer"]
    agreed(f"{model} has a recorded answer, {_brief(before)!r}; it is removed, and starts check only for sanity then")
    held.replace({name: value for name, value in held.document.items() if name != "answer"})
    return before or {}


def _brief(answer: object) -> str:
    return text(answer, "text")[:60]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Held:
    """A manifest as it stands in the bucket."""

    bucket: Bucket
    key: str
    document: dict[str, Any]
    metadata: Mapping[str, str]
    etag: str

    def replace(self, document: dict[str, Any]) -> None:
        """Writes another document in its place, if it is still what was read.

        Raises:
            Failure: somebody else wrote the manifest meanwhile, or S3 refused.
        """
        arn = self.bucket.arn(self.key)
        with told(arn):
            try:
                self.bucket.client.put_object(
                    Bucket=self.bucket.name,
                    Key=self.key,
                    Body=(json.dumps(document, indent=1, sort_keys=True) + "\n").encode(),
                    Metadata=self.metadata,
                    IfMatch=self.etag,
                )
            except ClientError as error:
                if is_taken(error):
                    raise Failure(f"somebody else wrote {arn} meanwhile. Run it again") from error
                raise


def _held(bucket: Bucket, model: StagedModel) -> _Held:
    with told(bucket.arn(model.manifest_key)):
        try:
            found = bucket.client.get_object(Bucket=bucket.name, Key=model.manifest_key)
        except bucket.client.exceptions.NoSuchKey as error:
            raise Failure(f"{model} is not staged in s3://{bucket.name}: `coldstart stage` it first") from error
        body = found["Body"].read()
    parse_manifest(body, where=model.manifest_uri(bucket.name))
    return _Held(
        bucket=bucket,
        key=model.manifest_key,
        document=json.loads(body),
        metadata=found["Metadata"],
        etag=found["ETag"],
    )
