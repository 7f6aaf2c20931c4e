"""Whether the selected files make a model that an engine can stream, found out before the first byte moves."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import cast

from budget.models import Json, ModelFacts, facts_of, storage_of_headers
from budget.problems import BadInput, Problem
from scripts.staging.safetensors import LENGTH_BYTES, MalformedError, header_bytes, parse_header
from scripts.staging.selection import INDEX, Selection, select
from scripts.staging.source import Source, SourceFile, read

MOST_PRESHARDED_OBJECTS = 1_000
"""The loader of pre-sharded checkpoints lists one page of S3's listing and no more."""
MOST_JSON_BYTES = 64 * 2**20
"""No configuration, index or tokenizer is larger; a larger file is not read into memory to look."""

_PRESHARDED = re.compile(r"model-(pp-\d+-tp-\d+|rank-\d+)-part-\d+\.safetensors")
_ODD = re.compile(r"[^A-Za-z0-9._+=@,()!' /-]")
"""What S3's guide to key names advises against, and what has no place in a file name an engine opens."""
_TOKENIZER = re.compile(r"(tokenizer\.json|tekken\.json|vocab\.(json|txt)|.*\.(tiktoken|spm|bpe)|.*\.model(\.v\d+)?)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A source that passed.

    Attributes:
        selection: what becomes of each file.
        facts: of the model; None when it has no `config.json` (Mistral's own format).
    """

    selection: Selection
    facts: ModelFacts | None


def check(source: Source, *, trust_remote_code: bool) -> Checked:
    """Selects a source's files and reads its small ones and the headers of the large ones.

    Raises:
        BadInput: everything that makes the model unfit, at once.
        Failure: the source cannot be read.
    """
    by_path = {file.path: file for file in source.files}
    weight_map = _weight_map(source, by_path.get(INDEX))
    names = None if weight_map is None else frozenset(weight_map.values())
    selection = select(source.files, index_names=names, trust_remote_code=trust_remote_code)
    problems = [*name_problems(selection.kept), *set_problems(selection), *_index_problems(weight_map, by_path)]
    if problems:
        raise BadInput(problems)
    headers = _Headers(source, selection.kept, weight_map or {})
    storage = storage_of_headers(headers.each())
    if headers.problems:
        raise BadInput(headers.problems)
    config = by_path.get("config.json")
    if config is None:
        return Checked(selection=selection, facts=None)
    return Checked(
        selection=selection,
        facts=facts_of(
            _json(source, config), storage, name=source.name, revision=source.revision, source=source.identity
        ),
    )


def name_problems(files: Iterable[SourceFile]) -> Iterator[Problem]:
    """Names that cannot be keys, or that two files share but for their case."""
    spellings: defaultdict[str, list[str]] = defaultdict(list)
    for file in files:
        spellings[file.path.lower()].append(file.path)
        if _ODD.search(file.path) or file.path != file.path.strip() or ".." in PurePosixPath(file.path).parts:
            yield Problem(
                ascii(file.path),
                "the name holds characters that object keys should not",
                "Rename it: letters, digits, and . _ - + = @ , ( ) ! ' or a space inside.",
            )
    for paths in spellings.values():
        if len(paths) > 1:
            yield Problem(" and ".join(paths), "differ only in case", "Keep one of them.")


def set_problems(selection: Selection) -> Iterator[Problem]:
    """What is missing, empty or out of place among the files that are kept."""
    kept = selection.kept
    names = {file.path for file in kept}
    weights = [file for file in kept if file.path.endswith(".safetensors")]
    if not weights:
        yield _no_weights(selection)
    if not names & {"config.json", "params.json"}:
        yield Problem("config.json", "is missing", "An engine cannot load a model without it.")
    if not any(_TOKENIZER.fullmatch(name) for name in names):
        yield Problem("tokenizer", "no tokenizer file", "Add the one the model was trained with (tokenizer.json).")
    for file in weights:
        if "/" in file.path:
            fix = "Engines stream the root of a prefix only: a model in folders (diffusers) cannot be streamed."
            yield Problem(file.path, "weights in a folder", fix)
        if file.bytes == 0:
            yield Problem(file.path, "is empty", "Fetch or save it again.")
    presharded = [file for file in weights if _PRESHARDED.fullmatch(file.path)]
    if presharded and len(kept) > MOST_PRESHARDED_OBJECTS:
        fix = f"The loader of pre-sharded checkpoints sees {MOST_PRESHARDED_OBJECTS:,}: save larger parts."
        yield Problem("files", f"{len(kept):,} objects of a pre-sharded checkpoint", fix)


def _no_weights(selection: Selection) -> Problem:
    adapters = [choice.file.path for choice in selection.dropped if choice.file.path.startswith("adapter_")]
    others = [choice.file.path for choice in selection.dropped if "another format" in choice.reason]
    if adapters:
        return Problem(adapters[0], "is an adapter without its model", "Merge it into the model and stage the result.")
    if others:
        fix = "Convert the checkpoint: engines stream safetensors only."
        return Problem(others[0], "weights are in another format only", fix)
    return Problem("*.safetensors", "no weights", "Name a folder or repository that holds a model.")


def _weight_map(source: Source, index: SourceFile | None) -> Mapping[str, str] | None:
    if index is None:
        return None
    entries = _json(source, index).get("weight_map")
    if not isinstance(entries, dict) or not entries:
        raise BadInput([Problem(INDEX, "has no `weight_map`", "Save the checkpoint again, or remove the file.")])
    return {str(tensor): str(shard) for tensor, shard in cast("Mapping[object, object]", entries).items()}


def _index_problems(weight_map: Mapping[str, str] | None, files: Mapping[str, SourceFile]) -> Iterator[Problem]:
    for shard in sorted(set((weight_map or {}).values())):
        if shard not in files:
            yield Problem(INDEX, f"names {shard}, which is not there", "Fetch or save the missing shard.")


def _json(source: Source, file: SourceFile) -> Json:
    if file.bytes > MOST_JSON_BYTES:
        raise BadInput([Problem(file.path, f"{file.bytes:,} bytes", "No such file is that large.")])
    try:
        document: object = json.loads(read(source, file, 0, file.bytes))
    except ValueError as error:
        raise BadInput([Problem(file.path, f"not JSON ({error})", "Fetch or save it again.")]) from error
    if not isinstance(document, dict):
        raise BadInput([Problem(file.path, "no JSON object", "Fetch or save it again.")])
    return cast("Json", document)


class _Headers:
    """Reads the header of each safetensors file, one at a time: those of a large model add up."""

    def __init__(self, source: Source, files: Sequence[SourceFile], weight_map: Mapping[str, str]) -> None:
        self.problems: list[Problem] = []
        self._source = source
        self._files = [file for file in files if file.path.endswith(".safetensors")]
        self._indexed: defaultdict[str, list[str]] = defaultdict(list)
        for tensor, shard in weight_map.items():
            self._indexed[shard].append(tensor)

    def each(self) -> Iterator[Json]:
        """The headers that are sound; the others become problems."""
        for file in self._files:
            try:
                header = self._header(file)
            except MalformedError as error:
                self.problems.append(Problem(file.path, str(error), "Fetch or save it again."))
                continue
            missing = [tensor for tensor in self._indexed[file.path] if tensor not in header]
            if missing:
                found = f"lacks {len(missing)} tensors that {INDEX} looks for in it ({missing[0]}, ...)"
                self.problems.append(Problem(file.path, found, "Index and shards are of different checkpoints."))
            yield header

    def _header(self, file: SourceFile) -> Json:
        start = read(self._source, file, 0, min(LENGTH_BYTES, file.bytes))
        length = header_bytes(start, file_bytes=file.bytes)
        return parse_header(read(self._source, file, LENGTH_BYTES, length), file_bytes=file.bytes)
