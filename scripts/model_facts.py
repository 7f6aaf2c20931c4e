"""Facts of a model from wherever a person points: a known name, a folder, a facts or manifest file, the hub."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2 as httpx
from huggingface_hub import HfApi
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    NotASafetensorsRepoError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    SafetensorsParsingError,
)

from budget.models import Json, ModelFacts, Storage, facts_of, known_models, storage_of_headers, storage_of_index
from budget.problems import bad_input, did_you_mean
from budget.staged import parse_manifest
from scripts.failure import Failure

MAX_HEADER_BYTES = 100_000_000
"""The safetensors format allows no longer header."""
HUB_ERRORS = (HfHubHTTPError, httpx.HTTPError, httpx.InvalidURL, OSError)
"""What a question to the hub raises when the hub refuses or can't be reached.

Its client lets the errors of the HTTP library below it through, timeouts among them; HF_HUB_OFFLINE is an OSError.
"""
HUB_NAME = re.compile(r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w./-]+)?$")


def facts_at(reference: str, *, api: HfApi | None = None) -> ModelFacts:
    """The facts of a model.

    Args:
        reference: a known `ORG/NAME`, a folder with config.json and safetensors, a JSON file of facts, or
            `ORG/NAME[@REVISION]` on the hub.
        api: hub client; None makes one.

    Raises:
        BadInput: nothing of the kind, or files that are no model.
        Failure: the hub refuses or cannot be reached.
    """
    path = Path(reference)
    if path.is_dir():
        return _of_folder(path)
    if path.suffix == ".json":
        return _of_file(path)
    known = known_models()
    if reference in known:
        return known[reference]
    if not HUB_NAME.match(reference):
        raise bad_input(
            "--model", f"{reference!r} is not a model", "Give ORG/NAME[@REVISION], a folder or a facts file."
        )
    name, _, revision = reference.partition("@")
    return _of_hub(name, revision or None, api or HfApi())


# --- files ------------------------------------------------------------------------------------------------------------


def _json(path: Path) -> dict[str, Any]:
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise bad_input(str(path), f"cannot be read: {error.strerror}", "Give an existing JSON file.") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise bad_input(str(path), f"is no JSON: {error}", "Mend the file.") from error
    if not isinstance(value, dict):
        raise bad_input(str(path), "is no JSON object", "Give config and storage of one model.")
    return cast("dict[str, Any]", value)


def _of_folder(folder: Path) -> ModelFacts:
    config_path = folder / "config.json"
    if not config_path.is_file():
        raise bad_input(str(folder), "has no config.json", "Give the folder of a model as the hub stores it.")
    files = sorted(folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    if files:
        storage = storage_of_headers(_header(path) for path in files)
    elif index.is_file():
        storage = storage_of_index(_json(index))
    else:
        raise bad_input(str(folder), "has neither *.safetensors nor their index", "Only safetensors can be streamed.")
    return facts_of(_json(config_path), storage, name=folder.resolve().name, source=str(folder))


def _header(path: Path) -> Json:
    """The JSON header of a safetensors file: eight bytes of little-endian length, then so much JSON."""
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0  # noqa: PLR2004 - the format's length field
        if not 0 < length <= min(MAX_HEADER_BYTES, path.stat().st_size - 8):
            raise bad_input(str(path), "is not a safetensors file, or is cut off", "Copy it again.")
        raw = file.read(length)
    try:
        return cast("Json", json.loads(raw))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise bad_input(str(path), "its header is no JSON", "Copy it again.") from error


def _of_manifest(path: Path) -> ModelFacts:
    facts = parse_manifest(path.read_bytes(), where=str(path)).facts
    if facts is None:
        raise bad_input(str(path), "was staged without a config.json that says what the model is", "Name the model.")
    return facts


def _of_file(path: Path) -> ModelFacts:
    """A staged manifest, or `name`, `config` (of config.json), `bytes_by_dtype` and the other fields of Storage."""
    entry = _json(path)
    if "revision" in entry and "facts" in entry:
        return _of_manifest(path)
    needed = ("name", "config", "bytes_by_dtype")
    missing = [key for key in needed if key not in entry]
    if missing:
        raise bad_input(str(path), f"lacks {', '.join(missing)}", f"A facts file has {', '.join(needed)}.")
    sizes = entry["bytes_by_dtype"]
    if not isinstance(sizes, Mapping) or not all(
        isinstance(size, int) and size > 0 for size in cast("Mapping[str, object]", sizes).values()
    ):
        raise bad_input(f"{path}: bytes_by_dtype", f"found {sizes!r}", 'Give e.g. {"BF16": 16060522496}.')
    storage = Storage(
        bytes_by_dtype=cast("Mapping[str, int]", sizes),
        parameters=entry.get("parameters"),
        largest_tensor_bytes=int(entry.get("largest_tensor_bytes", 0)),
        files=int(entry.get("files", 1)),
    )
    return facts_of(entry["config"], storage, name=str(entry["name"]), revision=entry.get("revision"), source=str(path))


# --- the hub ----------------------------------------------------------------------------------------------------------


def unanswered(error: Exception, name: str, api: HfApi, fix: str) -> Failure:
    """The failure for one of HUB_ERRORS, on one line: which hub, asked for what, and what helps."""
    host = urlsplit(api.endpoint).netloc or api.endpoint
    does = f"answers {error.response.status_code}" if isinstance(error, HfHubHTTPError) else "does not answer"
    return Failure(f"{host} {does} for {name} ({' '.join(str(error).split()) or type(error).__name__}); {fix}")


def _of_hub(name: str, revision: str | None, api: HfApi) -> ModelFacts:
    there = f"{name}{f'@{revision}' if revision else ''}"
    try:
        info = api.model_info(name, revision=revision)
        metadata = api.get_safetensors_metadata(name, revision=info.sha)
        config = _json(Path(str(api.hf_hub_download(name, "config.json", revision=info.sha))))
    except GatedRepoError as error:
        raise Failure(f"{name} is gated: accept its licence on the hub and set HF_TOKEN") from error
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise bad_input("--model", f"the hub has no {there}", did_you_mean(name, known_models())) from error
    except HFValidationError as error:
        raise bad_input("--model", f"{there!r} is not a name on the hub", "Give ORG/NAME[@REVISION].") from error
    except (RemoteEntryNotFoundError, NotASafetensorsRepoError, SafetensorsParsingError) as error:
        fix = "Name a repository with config.json and *.safetensors, or give a facts file."
        raise bad_input("--model", f"{there} is not a model that can be streamed: {error}", fix) from error
    except HUB_ERRORS as error:
        raise unanswered(error, name, api, "give a folder or a facts file") from error
    headers = [
        {tensor: {"dtype": fields.dtype, "shape": list(fields.shape)} for tensor, fields in file.tensors.items()}
        for file in metadata.files_metadata.values()
    ]
    storage = storage_of_headers(cast("list[Json]", headers))
    return facts_of(
        config, storage, name=name, revision=info.sha, source=f"https://huggingface.co/{name}/tree/{info.sha}"
    )
