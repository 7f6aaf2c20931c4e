"""The JSON documents of an image, checked where they are read: what comes after relies on their shapes.

Sources: OCI image specification 1.1 (index, manifest, configuration), and what `docker save` writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from scripts.failure import Failure

What = Literal["index", "manifest", "configuration"]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class _Platform(_Part):
    os: str | None = None
    architecture: str | None = None


class _Blob(_Part):
    digest: str
    size: Annotated[int, Field(ge=0)]
    mediaType: str | None = None  # noqa: N815 - the specification's own spelling


class _Listed(_Part):
    """An entry of an index."""

    digest: str
    mediaType: str | None = None  # noqa: N815 - the specification's own spelling
    platform: _Platform | None = None
    annotations: dict[str, str] | None = None


class _Manifest(_Part):
    """A manifest, or an index of some: a tag leads to either."""

    config: _Blob | None = None
    layers: list[_Blob] | None = None
    manifests: list[_Listed] | None = None
    annotations: dict[str, str] | None = None


class _Step(_Part):
    created_by: str | None = None
    empty_layer: bool | None = None


class _RootFiles(_Part):
    diff_ids: list[str]


class _Configuration(_Part):
    os: str = "linux"
    architecture: str | None = None
    rootfs: _RootFiles
    history: list[_Step] | None = None
    config: dict[str, Any] | None = None


class _Saved(_Part):
    Config: str
    Layers: list[str] | None = None
    RepoTags: list[str] | None = None


class _Index(_Part):
    manifests: list[_Listed] = []


SHAPES: Mapping[What, type[_Part]] = {"index": _Index, "manifest": _Manifest, "configuration": _Configuration}
SAVED = TypeAdapter(list[_Saved])


def document(name: str, what: What, content: bytes) -> Mapping[str, Any]:
    """A document of an image, as it stands.

    Args:
        name: of the image, for messages.
        what: which document.
        content: its bytes.

    Raises:
        Failure: no JSON, or not of the shape that it must have.
    """
    found = _json(name, what, content)
    _check(name, what, SHAPES[what].model_validate, found)
    return cast("Mapping[str, Any]", found)


def saved_images(name: str, content: bytes) -> Sequence[Mapping[str, Any]]:
    """The images that manifest.json of a `docker save` lists.

    Raises:
        Failure: no JSON, or not of the shape that it must have.
    """
    found = _json(name, "manifest.json", content)
    _check(name, "manifest.json", SAVED.validate_python, found)
    return cast("Sequence[Mapping[str, Any]]", found)


def _json(name: str, what: str, content: bytes) -> object:
    try:
        return json.loads(content)
    except ValueError as error:
        raise Failure(f"{name}: the {what} is not JSON: {error}") from error


def _check(name: str, what: str, validate: Any, found: object) -> None:  # noqa: ANN401 - a model's or an adapter's
    try:
        validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        message = f"{first['msg'][:1].lower()}{first['msg'][1:]}"
        raise Failure(f"{name}: the {what}{place and f', {place}'}: {message}: is it a container image?") from error
