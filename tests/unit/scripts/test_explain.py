"""`coldstart explain`: every setting, what it means, and why its default is what it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from infra.settings import KINDS
from infra.stack_file import subtree
from scripts import cli
from scripts.cli import run
from scripts.explain import Explanation, explanations, markdown

DOCUMENT = Path(cli.__file__).parents[1] / "docs" / "settings.md"
ROWS = {row.key: row for row in explanations()}


def explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["explain", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def fields(path: str, tree: type[BaseModel]) -> list[str]:
    """Keys of everything in a tree that holds a value of its own."""
    found: list[str] = []
    for name, field in tree.model_fields.items():
        below = subtree(field.annotation)
        if below is None:
            found.append(f"{path}.{name}")
        else:
            listed = "tuple" in str(field.annotation)
            found += fields(f"{path}.{name}[]" if listed else f"{path}.{name}", below)
    return found


LEAVES = [key for kind, tree in KINDS.items() for key in fields(kind, tree)]


# ---- every setting --------------------------------------------------------------------------------------------------


def test_no_setting_is_left_out_and_none_is_there_twice() -> None:
    assert set(LEAVES) <= set(ROWS)
    assert len(ROWS) == len(explanations())


def test_every_setting_has_a_meaning_in_a_sentence() -> None:
    for key, row in ROWS.items():
        assert row.meaning, key
        assert row.meaning.endswith((".", "…")), key
        assert row.allowed, key


def test_every_default_has_its_reason() -> None:
    """No default without a reason; what is required needs none."""
    without = [key for key, row in ROWS.items() if row.default != "required" and not row.why]
    # An empty list and nothing asked for are the absence of a decision.
    assert [key for key in without if ROWS[key].default not in ("unset", "[]", "{}")] == []


WITHOUT_UNIT = {key for key in ROWS if key.startswith("model.nodes.soci.max_concurrent")}


@pytest.mark.parametrize("key", sorted(WITHOUT_UNIT))
def test_counts_of_the_tuning_name_their_unit(key: str) -> None:
    assert ROWS[key].unit


def test_numbers_name_their_unit() -> None:
    for key in ROWS.keys() - WITHOUT_UNIT:
        row = ROWS[key]
        whole = row.allowed.startswith(("whole number", "number"))
        named = row.unit or any(
            part in key for part in ("_gib", "_s", "_mib", "_bytes", "usd", "utilization", "replicas")
        )
        assert not whole or named, key


@pytest.mark.parametrize(
    ("key", "row"),
    [
        (
            "model.nodes.disk",
            {
                "meaning": "Where images live: instance NVMe, the EBS volume, or whichever writes faster.",
                "allowed": "auto, nvme, ebs",
                "unit": "",
                "default": "auto",
            },
        ),
        ("model.nodes.volume.size_gib", {"allowed": "whole number ≥ 20 ≤ 65536", "unit": "GiB", "default": "unset"}),
        ("model.engine.gpu_memory_utilization", {"allowed": "number > 0.1 ≤ 0.98", "default": "0.9"}),
        ("environment.network.zones", {"default": "[a, b, c]"}),
        ("environment.production", {"allowed": "true, false", "default": "false"}),
        ("environment.tags", {"allowed": "mapping of text to text", "default": "{}"}),
        ("model.image", {"default": "required"}),
        ("model.scaling.schedule[].timezone", {"default": "UTC"}),
    ],
)
def test_known_settings(key: str, row: dict[str, str]) -> None:
    assert {name: getattr(ROWS[key], name) for name in row} == row


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("environment.account", "text such as 111122223333"),
        ("environment.network.zones", "list of text such as a"),
        ("model.image_facts.layers", "list of whole number ≥ 1"),
    ],
)
def test_what_may_be_written_is_said_by_example(key: str, allowed: str) -> None:
    assert ROWS[key].allowed == allowed


def test_no_one_is_shown_a_regular_expression() -> None:
    assert [key for key, row in ROWS.items() if "^" in row.allowed or row.allowed.endswith(" ")] == []


# ---- the command ----------------------------------------------------------------------------------------------------


def test_one_setting_is_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(capsys, "model.nodes.disk").splitlines() == [
        "model.nodes.disk",
        "  Where images live: instance NVMe, the EBS volume, or whichever writes faster.",
        "  allowed  auto, nvme, ebs",
        "  default  auto",
        "  why      Small NVMe disks are slower than a tuned gp3 on some types, so numbers decide.",
    ]


@pytest.mark.parametrize("key", [key for key in LEAVES if "[" not in key])
def test_every_key_can_be_explained(capsys: pytest.CaptureFixture[str], key: str) -> None:
    assert explain(capsys, key).splitlines()[0].startswith(key)
    assert explain(capsys, f"coldstart:{key}").splitlines()[0].startswith(key)


@pytest.mark.parametrize("tree", ["environment", "model", "model.nodes", "model.nodes.volume", "environment.access"])
def test_a_tree_lists_what_is_below_it(capsys: pytest.CaptureFixture[str], tree: str) -> None:
    lines = explain(capsys, tree).splitlines()
    assert [line.split()[0] for line in lines] == [key for key in ROWS if key.startswith(f"{tree}.")]


@pytest.mark.parametrize("tree", ["model.nodes.warm_pool", "model.scaling.schedule", "model.image_facts"])
def test_a_tree_that_may_be_left_out_lists_what_is_below_it_too(capsys: pytest.CaptureFixture[str], tree: str) -> None:
    assert next(key for key in ROWS if key.startswith((f"{tree}.", f"{tree}["))) in explain(capsys, tree)


def test_without_a_key_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(explain(capsys).splitlines()) == len(ROWS)


@pytest.mark.parametrize(
    ("typed", "close"),
    [
        ("model.nodes.instnace", "model.nodes.instance"),
        ("model.node.instance", "model.nodes.instance"),
        ("environment.acount", "environment.account"),
    ],
)
def test_an_unknown_key_names_the_close_ones(capsys: pytest.CaptureFixture[str], typed: str, close: str) -> None:
    assert run(["explain", typed]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {typed}: no such setting. Did you mean {close}")


@pytest.mark.parametrize("half", ["model.nodes.inst", "mode", "nodes.instance"])
def test_half_a_key_is_no_key(capsys: pytest.CaptureFixture[str], half: str) -> None:
    assert run(["explain", half]) == 2
    assert "no such setting" in capsys.readouterr().err


def test_json_is_the_rows_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    found = [Explanation(**row) for row in json.loads(explain(capsys, "--json"))]
    assert found == list(explanations())
    (one,) = json.loads(explain(capsys, "model.nodes.disk", "--json"))
    assert one["key"] == "model.nodes.disk"


# ---- the document ---------------------------------------------------------------------------------------------------


def test_the_reference_is_the_one_that_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(capsys, "--markdown") == markdown() == DOCUMENT.read_text(encoding="utf-8"), (
        "coldstart explain --markdown > docs/settings.md"
    )


def test_every_line_of_a_table_has_five_cells() -> None:
    """A bar in a text would make another column."""
    for line in markdown().splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") == 6, line


def test_the_reference_opens_each_part_with_a_sentence() -> None:
    lines = markdown().splitlines()
    for kind in KINDS:
        sentence = lines[lines.index(f"## {kind}") + 2]
        assert sentence[0].isupper()
        assert "`" not in sentence
        assert sentence.endswith(".")
