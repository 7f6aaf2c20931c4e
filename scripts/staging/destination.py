"""Where a model goes, and where it comes from, the way a person writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from budget.problems import BadInput, Problem, bad_input
from budget.staged import MODELS
from scripts.staging.folder import open_folder
from scripts.staging.source import Source

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
"""Bucket naming rules of the S3 user guide."""
_HUB = re.compile(r"hf:(?P<name>[^@]*)(@(?P<revision>.*))?")
_HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """What to stage.

    Attributes:
        source: `hf:ORG/NAME@REVISION` or a folder.
        name: `ORG/NAME` of a folder; the hub's models have one.
        trust_remote_code: Python files of the model are staged too.
        endpoint: of the hub; None is HF_ENDPOINT or the public one.
    """

    source: str
    name: str | None = None
    trust_remote_code: bool = False
    endpoint: str | None = None

    @property
    def hub_name(self) -> str | None:
        """`ORG/NAME` of a hub's model, or the name given to a folder."""
        match = _HUB.fullmatch(self.source)
        return match["name"] if match else self.name

    def check(self) -> None:
        """Looks at the spelling alone.

        Raises:
            BadInput: it is not written as it should be; everything at once.
        """
        match = _HUB.fullmatch(self.source)
        if match is None:
            if not self.name:
                raise bad_input("--name", "a folder has no name of its own", "Say --name ORG/NAME.")
            return
        name, revision = match["name"], match["revision"]
        problems = [
            *(
                []
                if _HUB_NAME.fullmatch(name)
                else [Problem("--source", f"{name!r} is not of the form ORG/NAME", "Write it as on its page.")]
            ),
            *([] if revision else [Problem("--source", "names no revision", f"Write hf:{name}@main, or a commit.")]),
            *(
                [Problem("--name", "the hub's model has a name", "Leave it out.")]
                if self.name not in {None, name}
                else []
            ),
        ]
        if problems:
            raise BadInput(problems)

    def open(self) -> Source:
        """Resolves and lists the source.

        Raises:
            BadInput: it is not written as it should be, or is not a model.
            Failure: it cannot be reached or read.
        """
        self.check()
        match = _HUB.fullmatch(self.source)
        if match is None:
            return open_folder(Path(self.source), name=self.name or "", trust_remote_code=self.trust_remote_code)
        # The hub's client takes a third of the start-up; a folder does not need it.
        from scripts.staging.hub import open_hub  # noqa: PLC0415 - see above

        return open_hub(match["name"], match["revision"], endpoint=self.endpoint)


def bucket_of(destination: str) -> str:
    """The bucket of `s3://BUCKET` or `s3://BUCKET/models`.

    Raises:
        BadInput: anything else.
    """
    match = re.fullmatch(r"s3://([^/]*)(/.*)?", destination)
    if match is None or not _BUCKET.fullmatch(match[1]):
        raise bad_input("--to", f"{destination!r} is not a bucket", f"Write s3://BUCKET/{MODELS}.")
    if (match[2] or "").strip("/") not in {"", MODELS}:
        fix = f"Write s3://{match[1]}/{MODELS}: deployments look there, each model under its own name and revision."
        raise bad_input("--to", f"{destination!r} names a place of its own", fix)
    return match[1]
