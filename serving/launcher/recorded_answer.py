"""The known answer where it was recorded: in the manifest of the staged model."""

from __future__ import annotations

from dataclasses import dataclass

from serving.launcher.fields import json_object
from serving.launcher.s3 import s3_client, s3_status, split_uri, transfer_errors


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerJob:
    """A look into a manifest. `manifest`: its s3:// URI."""

    manifest: str


def read_answer(job: AnswerJob) -> dict[str, object]:
    """The member `answer` of a manifest, as it stands there; in a worker.

    Returns:
        `answer` (null when none was recorded) and `reason` why there is none.
    """
    bucket, key = split_uri(job.manifest)
    try:
        text = s3_client(1).get_object(Bucket=bucket, Key=key)["Body"].read()
    except transfer_errors() as error:
        if s3_status(error) not in {403, 404}:  # without s3:ListBucket, S3 answers 403 for a key that is not there
            raise
        return {"answer": None, "reason": f"no manifest at {job.manifest}, or no right to read it"}
    answer = json_object(text).get("answer")
    return {"answer": answer, "reason": "" if answer else f"none is recorded in {job.manifest}"}
