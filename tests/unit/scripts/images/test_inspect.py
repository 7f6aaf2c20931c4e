"""`coldstart image inspect`, from the command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from budget.coefficients import coefficients
from budget.image import unpacked_bytes
from budget.plan import plan_of
from budget.scenario import Scenario
from infra.forecast import scenario
from infra.specs import model_specs
from infra.stack_file import read
from scripts.cli import run
from scripts.images.inspection import sizes_of
from scripts.images.layer import Layer
from scripts.images.prediction import Sizes
from scripts.images.stack_facts import write_image_facts
from tests.images.loopback_registry import LoopbackRegistry
from tests.images.synthetic import MadeImage, Tar, image
from tests.images.traps import noise

STACK = "dev-qwen2-5-0-5b"


def scenario_of(name: str, stacks: Path) -> Scenario:
    stack = read(name, stacks)
    assert stack.model is not None
    return scenario(stack, stack.model, model_specs(stack, stack.model).node)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def fat() -> MadeImage:
    layer = Tar()
    for index in range(40):
        layer.file(f"lib/f{index}", bytes(2_000_000) + noise(60_000))
    return image(Tar().file("bin/sh", noise(40_000)), layer, Tar().file("app/main.py", b"print()"))


def test_everything_a_person_asks_of_an_image(
    fat: MadeImage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fat.write_layout(tmp_path / "image")
    assert run(["image", "inspect", f"oci:{tmp_path}/image:v1", "--instance", "g6e.4xlarge", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)

    stored = json.loads(fat.manifest)["layers"]
    assert (found["digest"], found["platform"], found["instance"]) == (fat.digest, "linux/amd64", "g6e.4xlarge")
    assert [(layer["digest"], layer["bytes"]) for layer in found["layers"]] == [
        (layer["digest"], layer["size"]) for layer in stored
    ]
    assert [layer["unpacked_bytes"] for layer in found["layers"]] == [len(tar) for tar, _ in fat.layers]
    assert [layer["command"] for layer in found["layers"]] == ["step 0", "step 1", "step 2"]
    assert found["binding_layer"] == 1
    assert found["pull"]["containerd"]["expected_s"] >= found["pull"]["soci"]["expected_s"] > 0
    assert found["actions"][0]["name"] == "repack"
    assert found["actions"][0]["saves_s"] == pytest.approx(
        found["pull"]["soci"]["expected_s"] - found["actions"][0]["soci_s"]
    )


def test_a_person_reads_the_same(fat: MadeImage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fat.write_layout(tmp_path / "image")
    page = tmp_path / "page.html"
    assert run(["image", "inspect", f"oci:{tmp_path}/image:v1", "--html", str(page)]) == 0
    out, text = capsys.readouterr().out, page.read_text()
    for words in ("in 3 layers", "First: `coldstart image repack`", "Default containerd:", "step 1"):
        assert words in out
    assert "What to do first" in text
    assert "<script" not in text


def test_names_from_an_image_are_no_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = image(
        Tar().file("root/.ssh/id_rsa"), config={"history": [{"created_by": "<script>[bold]x[/bold]</script>"}]}
    )
    made.write_layout(tmp_path / "image")
    page = tmp_path / "page.html"
    assert run(["image", "inspect", f"oci:{tmp_path}/image:v1", "--html", str(page)]) == 0
    assert "[bold]" in capsys.readouterr().out
    assert "<script>" not in page.read_text()


def test_layers_read_once_are_known(fat: MadeImage, capsys: pytest.CaptureFixture[str]) -> None:
    with LoopbackRegistry() as registry:
        reference = registry.add("team/engine", "v1", fat)
        assert run(["image", "inspect", reference, "--json"]) == 0
        first, asked = json.loads(capsys.readouterr().out), registry.asked.total()
        assert run(["image", "inspect", reference, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == first
        blobs = [name for name, count in registry.asked.items() if "/blobs/" in name and count > 1]
    config = json.loads(fat.manifest)["config"]["digest"]
    assert blobs == [f"GET /v2/team/engine/blobs/{config}"]
    assert asked > 4


def test_an_interrupted_inspection_goes_on_where_it_was(fat: MadeImage) -> None:
    stored = json.loads(fat.manifest)["layers"]
    with LoopbackRegistry() as registry:
        reference = registry.add("team/engine", "v1", fat)
        lost = registry.blobs.pop(("team/engine", stored[2]["digest"]))
        assert run(["image", "inspect", reference]) == 1
        registry.blobs["team/engine", stored[2]["digest"]] = lost
        registry.asked.clear()
        assert run(["image", "inspect", reference]) == 0
        fetched = {name.rpartition("/")[2] for name in registry.asked if "/blobs/" in name}
    assert stored[2]["digest"] in fetched
    assert stored[0]["digest"] not in fetched


def test_a_broken_connection_is_taken_up(fat: MadeImage) -> None:
    with LoopbackRegistry() as registry:
        reference = registry.add("team/engine", "v1", fat)
        registry.faults.drop_after, registry.faults.drops = 30_000, 4
        assert run(["image", "inspect", reference]) == 0
        assert registry.faults.drops == 0


def test_a_spoilt_cache_is_no_cache(fat: MadeImage, tmp_path: Path) -> None:
    fat.write_layout(tmp_path / "image")
    assert run(["image", "inspect", f"oci:{tmp_path}/image:v1"]) == 0
    for file in (tmp_path / "cache" / "coldstart" / "layers").iterdir():
        file.write_bytes(file.read_bytes()[:-20])
    assert run(["image", "inspect", f"oci:{tmp_path}/image:v1"]) == 0


def test_layers_written_into_the_stack_file_are_what_plans_use(
    fat: MadeImage, stacks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.images.subject.STACKS", stacks)
    monkeypatch.setattr("scripts.images.subject.subject_of.__defaults__", (stacks,))
    with LoopbackRegistry() as registry:
        reference = registry.add("team/engine", "v0.33.0", fat)
        path = stacks / f"Pulumi.{STACK}.yaml"
        before = path.read_text()
        path.write_text(before.replace("vllm/vllm-openai:v0.33.0", reference))
        assert run(["image", "inspect", STACK, "--write"]) == 0

    sizes = [layer["size"] for layer in json.loads(fat.manifest)["layers"]]
    written = path.read_text()
    assert "# No digest is known for this tag here" in written
    assert yaml.safe_load(written)["config"]["coldstart:model"]["image_facts"] == {
        "compressed_bytes": sum(sizes),
        "layers": sizes,
        "unpacked_layers": [len(tar) for tar, _ in fat.layers],
        "waste_layers": [0] * len(sizes),
        "codec": "gzip",
    }
    planned = scenario_of(STACK, stacks)
    assert [layer.bytes for layer in planned.image.layers] == sizes
    assert unpacked_bytes(planned.image, coefficients()) == pytest.approx(sum(len(tar) for tar, _ in fat.layers))


def test_a_plan_says_what_a_repack_and_a_slim_image_would_save(stacks: Path) -> None:
    path = stacks / "Pulumi.dev-llama-3-1-8b.yaml"
    sizes = [Sizes(bytes=size, unpacked_bytes=2 * size) for size in (2e8, 5e9, 1e8)]

    def saved(waste: Sequence[int]) -> dict[str, float]:
        write_image_facts(path, sizes, waste, "gzip")
        plan = plan_of(scenario_of("dev-llama-3-1-8b", stacks))
        return {effect.lever: effect.saves_s for effect in plan.levers}

    found = saved([0, 2_500_000_000, 0])
    assert found["rebalance-layers"] > 10
    assert found["slim-image"] == pytest.approx(2 * saved([0, 1_250_000_000, 0])["slim-image"], rel=0.1)
    assert "slim-image" not in saved([0, 0, 0])
    assert saved([])["slim-image"] > 5


def test_zstd_layers_are_planned_as_such(stacks: Path) -> None:
    path = stacks / "Pulumi.dev-llama-3-1-8b.yaml"
    write_image_facts(path, [Sizes(bytes=5e9, unpacked_bytes=1e10)], [0], "zstd")
    assert scenario_of("dev-llama-3-1-8b", stacks).pull.decompressor == "zstd"
    assert "zstd" not in {effect.lever for effect in plan_of(scenario_of("dev-llama-3-1-8b", stacks)).levers}


def test_the_command_line_plans_from_the_layers_and_shows_both_levers(
    stacks: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scripts.plan_stack.read", lambda name: read(name, stacks))
    name = "dev-llama-3-1-8b"

    def planned() -> dict[str, Any]:
        assert run(["plan", name, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    def pull_of(plan: dict[str, Any]) -> dict[str, Any]:
        return next(phase["detail"] for phase in plan["phases"] if phase["phase"] == "pull")

    assert pull_of(planned())["layers_known"] is False
    write_image_facts(
        stacks / f"Pulumi.{name}.yaml",
        [Sizes(bytes=size, unpacked_bytes=2.2 * size) for size in (2e8, 5e9, 1e8)],
        [0, 2_500_000_000, 0],
        "gzip",
    )
    found = planned()
    detail = pull_of(found)
    assert (detail["layers_known"], detail["layers"], detail["largest_layer_bytes"]) == (True, 3, 5_000_000_000)
    assert detail["unpacked_bytes"] == pytest.approx(2.2 * 5.3e9)
    levers = {lever["lever"]: lever["saves_s"] for lever in found["levers"]}
    assert levers["rebalance-layers"] > 10
    assert levers["slim-image"] > 5


def test_only_plain_layers_of_an_archive_are_assumed_to_shrink() -> None:
    plain, packed = (
        Layer(digest="", diff_id="", codec=codec, bytes=size, unpacked_bytes=1_950, entries=())
        for codec, size in (("none", 1_950), ("gzip", 700))
    )
    assert [each.bytes for each in sizes_of([plain, packed], stored_compressed=False)] == [1_000, 700]
    assert [each.bytes for each in sizes_of([plain, packed], stored_compressed=True)] == [1_950, 700]


def test_a_list_of_another_length_is_for_the_rules_to_refuse(stacks: Path) -> None:
    """A verb that goes by no rules must not end in a traceback."""
    sizes = [Sizes(bytes=5e9, unpacked_bytes=1e10), Sizes(bytes=1e9, unpacked_bytes=2e9)]
    write_image_facts(stacks / "Pulumi.dev-llama-3-1-8b.yaml", sizes, [1, 2, 3], "gzip")
    layers = scenario_of("dev-llama-3-1-8b", stacks).image.layers
    assert [(layer.unpacked_bytes, layer.waste_bytes) for layer in layers or ()] == [(1e10, None), (2e9, None)]
