"""A staged model: where it lies in the bucket, and what its manifest says. Names and facts; no cloud."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import cast

from budget.models import Json, ModelFacts, facts_document, facts_from
from budget.problems import BadInput, Problem, bad_input

MODELS = "models"
"""Objects an engine lists lie under this prefix."""
MANIFESTS = "manifests"
"""Manifests lie outside of what an engine lists: it would pull any JSON file it finds beside the weights."""
FORMAT = 1
"""Format of the manifest; raised when an older reader would misread a newer one."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_REVISION = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CRC32 = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedModel:
    """One revision of one model, as the bucket names it. Make it with `staged_model`.

    Attributes:
        name: `ORG/NAME`.
        revision: 40 hex digits.
    """

    name: str
    revision: str

    @property
    def prefix(self) -> str:
        """What the engine lists, with its closing slash: without it a prefix also matches longer names."""
        return f"{MODELS}/{self.name}/{self.revision}/"

    @property
    def manifest_key(self) -> str:
        """The object that makes the model staged."""
        return f"{MANIFESTS}/{self.name}/{self.revision}.json"

    def key(self, path: str) -> str:
        """Key of one file of the model."""
        return f"{self.prefix}{path}"

    def uri(self, bucket: str) -> str:
        """What an engine is started with."""
        return f"s3://{bucket}/{self.prefix}"

    def manifest_uri(self, bucket: str) -> str:
        """Where the manifest lies."""
        return f"s3://{bucket}/{self.manifest_key}"

    def __str__(self) -> str:
        """`ORG/NAME@REVISION`."""
        return f"{self.name}@{self.revision}"


def staged_model(name: str, revision: str, *, where: str = "model") -> StagedModel:
    """Names a staged model after checking both parts.

    Raises:
        BadInput: a name that is not `ORG/NAME`, a revision that is not a commit; both at once.
    """
    problems = [*_name_problems(name, where), *_revision_problems(revision, where)]
    if problems:
        raise BadInput(problems)
    return StagedModel(name=name, revision=revision)


def parse_reference(text: str, *, where: str) -> StagedModel:
    """`ORG/NAME@REVISION`, the way a person names what is staged.

    Raises:
        BadInput: not of that form.
    """
    name, at, revision = text.partition("@")
    if not at:
        raise bad_input(
            where, f"{text!r} names no revision", "Write ORG/NAME@REVISION; `coldstart stage --list` shows them."
        )
    return staged_model(name, revision, where=where)


def model_of_manifest_key(key: str) -> StagedModel | None:
    """The model whose manifest an object is; None for anything else under the prefix."""
    match = re.fullmatch(rf"{MANIFESTS}/({_NAME.pattern})/({_REVISION.pattern})\.json", key)
    return StagedModel(name=match[1], revision=match[2]) if match else None


def stage_command(stack: str) -> str:
    """What a person runs to stage the model of a stack."""
    return f"coldstart stage {stack}"


def _name_problems(name: str, where: str) -> Sequence[Problem]:
    if _NAME.fullmatch(name) and ".." not in name:
        return ()
    return (
        Problem(
            where,
            f"{name!r} is no ORG/NAME",
            "Two parts of letters, digits, dots, dashes and underscores, as the hub names models.",
        ),
    )


def _revision_problems(revision: str, where: str) -> Sequence[Problem]:
    if _REVISION.fullmatch(revision):
        return ()
    return (Problem(where, f"revision {revision!r} is not a commit", "40 hex digits, lower case."),)


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedFile:
    """One file of a staged model.

    Attributes:
        path: relative to the model's prefix.
        sha256: of the whole file, hex; for large files the hub knows the same one.
        crc32: of the whole file, hex; S3 holds the same one and can be asked for it without reading the object.
    """

    path: str
    bytes: int
    sha256: str
    crc32: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What was staged. Equal sources give equal manifests: it holds no clock and no run.

    Attributes:
        source: `hf:ORG/NAME@REVISION`, or `folder:FINGERPRINT`.
        requested_revision: what the person asked for: a branch, a tag, or the commit itself.
        files: sorted by path.
        facts: of the model; None when it came without a `config.json` that says them.
    """

    model: StagedModel
    source: str
    requested_revision: str
    files: tuple[StagedFile, ...]
    facts: ModelFacts | None

    @property
    def total_bytes(self) -> int:
        """All files."""
        return sum(file.bytes for file in self.files)

    @property
    def weights_bytes(self) -> int:
        """The safetensors files: what an engine streams."""
        return sum(file.bytes for file in self.files if file.path.endswith(".safetensors"))

    def text(self) -> str:
        """The manifest as it lies in the bucket: JSON, keys sorted, one line per member."""
        document = {
            "format": FORMAT,
            "name": self.model.name,
            "revision": self.model.revision,
            "source": self.source,
            "requested_revision": self.requested_revision,
            "files": [asdict(file) for file in self.files],
            "total_bytes": self.total_bytes,
            "weights_bytes": self.weights_bytes,
            "facts": None if self.facts is None else facts_document(self.facts),
        }
        return json.dumps(document, indent=1, sort_keys=True) + "\n"


def parse_manifest(text: str | bytes, *, where: str) -> Manifest:
    """Reads a manifest.

    Args:
        text: what `Manifest.text` wrote.
        where: named in the error.

    Raises:
        BadInput: not a manifest, of a format this version does not know, or with members missing.
    """
    try:
        document: object = json.loads(text)
    except ValueError as error:
        raise bad_input(where, f"not JSON ({error})", "Stage the model again.") from error
    if not isinstance(document, dict):
        raise bad_input(where, "not a manifest", "Stage the model again.")
    members = cast("Json", document)
    if members.get("format") != FORMAT:
        fix = f"This version reads format {FORMAT}; use the version that staged the model, or stage it again."
        raise bad_input(where, f"manifest format {members.get('format')!r} is unknown", fix)
    try:
        return _manifest(members, where)
    except (KeyError, TypeError) as error:
        raise bad_input(where, f"no complete manifest ({error!r})", "Stage the model again.") from error


def _manifest(members: Json, where: str) -> Manifest:
    facts = members["facts"]
    manifest = Manifest(
        model=staged_model(str(members["name"]), str(members["revision"]), where=where),
        source=str(members["source"]),
        requested_revision=str(members["requested_revision"]),
        files=tuple(_file(entry) for entry in cast("Sequence[Json]", members["files"])),
        facts=None if facts is None else facts_from(cast("Json", facts)),
    )
    if not manifest.files or manifest.total_bytes != members["total_bytes"]:
        raise bad_input(where, "its files do not add up to its total", "Stage the model again.")
    return manifest


def _file(entry: Json) -> StagedFile:
    file = StagedFile(
        path=_text(entry["path"]),
        bytes=int(cast("int", entry["bytes"])),
        sha256=_text(entry["sha256"]),
        crc32=_text(entry["crc32"]),
    )
    if not (_SHA256.fullmatch(file.sha256) and _CRC32.fullmatch(file.crc32)):
        raise TypeError(f"{file.path}: a hash is not hex")
    return file


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
