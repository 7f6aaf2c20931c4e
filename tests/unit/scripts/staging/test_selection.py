"""Which files are staged, and why."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scripts.staging.selection import INDEX, Selection, select
from scripts.staging.source import SourceFile

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
NOTHING_ENGINES_READ = (".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack", ".png", ".jpg", ".md")


def files(*paths: str) -> list[SourceFile]:
    return [SourceFile(path=path, bytes=1) for path in paths]


def kept(*paths: str, index: frozenset[str] | None = None, trust: bool = False) -> list[str]:
    return [file.path for file in select(files(*paths), index_names=index, trust_remote_code=trust).kept]


def reason(path: str, *others: str, index: frozenset[str] | None = None) -> str:
    selection = select(files(path, *others), index_names=index)
    return next(choice.reason for choice in selection.choices if choice.file.path == path)


def test_a_llama_repository() -> None:
    listed = (
        ".gitattributes",
        "LICENSE",
        "README.md",
        "USE_POLICY.md",
        "config.json",
        "generation_config.json",
        *SHARDS,
        INDEX,
        "original/consolidated.00.pth",
        "original/params.json",
        "original/tokenizer.model",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    )
    assert kept(*listed, index=frozenset(SHARDS)) == [
        "config.json",
        "generation_config.json",
        *SHARDS,
        INDEX,
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_a_mistral_repository_with_both_layouts_keeps_the_shards() -> None:
    listed = ("config.json", "params.json", "consolidated.safetensors", *SHARDS, "tekken.json", "tokenizer.model.v3")
    assert kept(*listed) == ["config.json", "params.json", *SHARDS, "tekken.json", "tokenizer.model.v3"]
    assert "second copy" in reason("consolidated.safetensors", *SHARDS)


def test_consolidated_weights_that_are_the_only_ones_are_kept() -> None:
    listed = ("params.json", "consolidated.safetensors", "tekken.json")
    assert kept(*listed) == list(listed)


def test_the_index_of_a_dropped_copy_is_dropped_with_it() -> None:
    assert kept("consolidated.safetensors.index.json", "consolidated-00001.safetensors", *SHARDS) == list(SHARDS)


def test_weights_that_the_index_does_not_name_would_be_loaded_on_top() -> None:
    listed = (*SHARDS, "model.safetensors", INDEX)
    assert kept(*listed, index=frozenset(SHARDS)) == [*SHARDS, INDEX]
    assert "on top of" in reason("model.safetensors", *SHARDS, index=frozenset(SHARDS))


def test_adapters_stay_out() -> None:
    assert kept("adapter_model.safetensors", "model.safetensors") == ["model.safetensors"]
    assert "LoRA" in reason("adapter_model.safetensors")


def test_code_needs_trust() -> None:
    listed = ("modeling_own.py", "deep/inside.py", "config.json")
    assert kept(*listed) == ["config.json"]
    assert kept(*listed, trust=True) == list(listed)


def test_folders_that_engines_read() -> None:
    listed = ("1_Pooling/config.json", "additional_chat_templates/tool.jinja", "onnx/config.json", "openvino/x.json")
    assert kept(*listed) == ["1_Pooling/config.json", "additional_chat_templates/tool.jinja"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("model.gguf", "another format"),
        ("pytorch_model.bin", "another format"),
        ("onnx/model.onnx_data", "another format"),
        ("original/params.json", "before conversion"),
        ("figures/loss.png", "look at"),
        (".cache/x.json", "hidden"),
        ("LICENSE.txt", "read"),
        ("train.log", "nothing an engine reads"),
    ],
)
def test_each_file_that_is_left_out_has_its_reason(path: str, said: str) -> None:
    assert said in reason(path)


def test_words_for_people_do_not_hide_configuration() -> None:
    assert kept("notice_config.json", "vocab.txt", "merges.txt") == ["notice_config.json", "vocab.txt", "merges.txt"]


# ---- for any set of files ------------------------------------------------------------------------------------------

stems = st.text("abXY01_-", min_size=1, max_size=6)
suffixes = st.sampled_from([".json", ".safetensors", ".model", ".txt", ".py", ".jinja", *NOTHING_ENGINES_READ, ""])
names = st.one_of(
    st.builds(lambda stem, suffix: stem + suffix, stems, suffixes),
    st.sampled_from(["consolidated.safetensors", "consolidated.00.safetensors", "adapter_model.safetensors", *SHARDS]),
)
folders = st.sampled_from(["", "original/", "onnx/", "1_Pooling/", ".git/", "a/b/"])
paths = st.lists(st.builds(lambda folder, name: folder + name, folders, names), unique=True, max_size=30)


UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""


def selected(listed: list[str], *, trust: bool, index: bool) -> Selection:
    named = frozenset(path for path in listed if path.startswith("model-")) if index else None
    return select(files(*listed), index_names=named, trust_remote_code=trust)


@UNHURRIED
@given(paths, st.booleans(), st.booleans())
def test_every_file_gets_one_verdict_with_a_reason(listed: list[str], trust: bool, index: bool) -> None:  # noqa: FBT001 - hypothesis
    selection = selected(listed, trust=trust, index=index)
    assert [choice.file.path for choice in selection.choices] == listed
    assert all(choice.reason for choice in selection.choices)


@UNHURRIED
@given(paths, st.booleans(), st.booleans())
def test_nothing_an_engine_would_read_wrongly_is_kept(listed: list[str], trust: bool, index: bool) -> None:  # noqa: FBT001 - hypothesis
    for file in selected(listed, trust=trust, index=index).kept:
        path = PurePosixPath(file.path)
        assert path.suffix not in NOTHING_ENGINES_READ
        assert path.parts[0] not in {"original", ".git"}
        assert trust or path.suffix != ".py"
        assert not path.name.startswith("adapter_") or path.suffix != ".safetensors"


@UNHURRIED
@given(paths, st.booleans())
def test_weights_are_never_kept_twice(listed: list[str], trust: bool) -> None:  # noqa: FBT001 - hypothesis
    weights = [PurePosixPath(file.path) for file in selected(listed, trust=trust, index=False).kept]
    root = [path.name for path in weights if path.suffix == ".safetensors" and len(path.parts) == 1]
    consolidated = [name for name in root if name.startswith("consolidated")]
    assert not consolidated or consolidated == root


@UNHURRIED
@given(paths, st.booleans())
def test_weights_are_not_lost(listed: list[str], trust: bool) -> None:  # noqa: FBT001 - hypothesis
    """A model that has safetensors at its root keeps some, unless they are adapters."""
    root = [path for path in listed if path.endswith(".safetensors") and "/" not in path]
    models = [path for path in root if not path.startswith(("adapter_", "."))]
    chosen = [file.path for file in selected(listed, trust=trust, index=False).kept]
    assert not models or any(path in chosen for path in models)


@UNHURRIED
@given(paths, st.randoms())
def test_the_order_of_the_files_does_not_matter(listed: list[str], random: object) -> None:
    shuffled = list(listed)
    random.shuffle(shuffled)
    before = {choice.file.path: choice.kept for choice in selected(listed, trust=False, index=True).choices}
    after = {choice.file.path: choice.kept for choice in selected(shuffled, trust=False, index=True).choices}
    assert before == after


@UNHURRIED
@given(paths)
def test_trust_only_adds_code(listed: list[str]) -> None:
    without = {file.path for file in selected(listed, trust=False, index=False).kept}
    with_trust = {file.path for file in selected(listed, trust=True, index=False).kept}
    assert without <= with_trust
    assert all(path.endswith(".py") for path in with_trust - without)
