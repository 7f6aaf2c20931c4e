"""`coldstart pin`: names become pins in the stack file, or the file stays as it was."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import httpx2 as httpx
import pytest
import yaml
from huggingface_hub import HfApi

from budget.models import ModelFacts, known_models
from budget.problems import BadInput
from infra.rules import check
from infra.specs import model_specs
from infra.stack_file import facts_path, read
from scripts import pin as pin_module
from scripts.cli import run
from scripts.failure import Failure
from scripts.images.prediction import Sizes
from scripts.images.stack_facts import write_image_facts
from scripts.pin import HuggingFaceHub, pin
from scripts.registry import HttpRegistry
from tests.unit.infra.changed_stacks import change
from tests.unit.scripts.loopback import Answer, Images, Served

LLAMA, QWEN = "dev-llama-3-1-8b", "dev-qwen2-5-0-5b"
COMMIT, OTHER = "c" * 40, "d" * 40
LAYERS = {"amd64": [4_000_000_000, 60_000_000], "arm64": [3_900_000_000, 50_000_000, 7]}
SOURCE = "Qwen/Qwen2.5-0.5B-Instruct"


@pytest.fixture
def hub(served: Served) -> HuggingFaceHub:
    """A hub that knows one commit under `main` and `v1`."""
    for name, sha in (("main", COMMIT), ("v1", OTHER)):
        served.routes[f"/api/models/{SOURCE}/revision/{name}"] = Answer(
            content={"id": SOURCE, "sha": sha}, headers={"Content-Type": "application/json"}
        )
    return HuggingFaceHub(HfApi(endpoint=served.url))


@pytest.fixture
def registry() -> Generator[HttpRegistry]:
    with httpx.Client(timeout=5, follow_redirects=True) as client:
        yield HttpRegistry(client)


@pytest.fixture
def unpinned(stacks: Path, images: Images) -> Path:
    """The small model's stack file, with its image in the registry on loopback, and nothing pinned."""
    path = stacks / f"Pulumi.{QWEN}.yaml"
    text = path.read_text(encoding="utf-8")
    text = text.replace("vllm/vllm-openai:v0.33.0", images.image("v0.33.0"))
    path.write_text(
        "".join(line for line in text.splitlines(keepends=True) if "revision:" not in line), encoding="utf-8"
    )
    return path


def model_of(path: Path) -> dict[str, object]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))["config"]["coldstart:model"]


def changed_lines(before: str, after: str) -> list[str]:
    return [
        line
        for line in difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]


class HubWithFacts:
    """A hub that has one model more than the shipped facts."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def commit(self, source: str, revision: str) -> str:
        self.asked.append(f"{source}@{revision}")
        return COMMIT

    def facts(self, source: str, commit: str) -> ModelFacts:
        self.asked.append(f"{source}@{commit}")
        return replace(known_models()[SOURCE], name=source, revision=commit, weights_bytes=1_234_567_890)


# ---- facts of a model that does not ship ----------------------------------------------------------------------------


@pytest.fixture
def strange(unpinned: Path, images: Images) -> Path:
    """A stack file of a model whose facts do not ship."""
    images.add_image("v0.33.0", layers=LAYERS)
    unpinned.write_text(unpinned.read_text(encoding="utf-8").replace(SOURCE, "acme/own-model"), encoding="utf-8")
    return unpinned


def test_facts_that_do_not_ship_are_kept_beside_the_stack_file(strange: Path, registry: HttpRegistry) -> None:
    hub, stacks = HubWithFacts(), strange.parent
    with pytest.raises(BadInput, match=rf"acme/own-model.*coldstart pin {QWEN}"):
        check(read(QWEN, stacks))
    found = pin(QWEN, stacks, hub, registry)
    assert found["facts"] == str(facts_path(QWEN, stacks))
    stack = read(QWEN, stacks)
    assert stack.model is not None
    check(stack)
    assert model_specs(stack, stack.model).weights_bytes == 1_234_567_890
    pin(QWEN, stacks, hub, registry)
    assert hub.asked == ["acme/own-model@main", f"acme/own-model@{COMMIT}"], (
        "facts that are there already are not asked for again"
    )


def test_facts_of_another_revision_are_not_believed(strange: Path, registry: HttpRegistry) -> None:
    stacks = strange.parent
    pin(QWEN, stacks, HubWithFacts(), registry)
    change(stacks, QWEN, {"model.revision": OTHER})
    with pytest.raises(BadInput, match=rf"holds facts of acme/own-model at {COMMIT}.*coldstart pin {QWEN}"):
        check(read(QWEN, stacks))
    assert pin(QWEN, stacks, HubWithFacts(), registry)["facts"] is not None
    check(read(QWEN, stacks))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "acme/own-model"}', "nonsense"])
def test_a_facts_file_that_is_none_says_so(strange: Path, text: str) -> None:
    facts_path(QWEN, strange.parent).write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=rf"facts.{QWEN}.json: holds no facts of a model. Delete it"):
        read(QWEN, strange.parent)


# ---- pins -----------------------------------------------------------------------------------------------------------


def test_names_become_pins(unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images) -> None:
    digest = images.add_image("v0.33.0", layers=LAYERS)
    found = pin(QWEN, unpinned.parent, hub, registry)
    image = f"{images.image('v0.33.0')}@{digest}"
    assert found == {
        "stack": QWEN,
        "revision": COMMIT,
        "image": image,
        "image_bytes": 4_060_000_000,
        "layers": 2,
        "facts": None,
    }
    model = model_of(unpinned)
    assert (model["revision"], model["image"]) == (COMMIT, image)
    assert model["image_facts"] == {
        "digest": digest,
        "compressed_bytes": 4_060_000_000,
        "layers": LAYERS["amd64"],
    }


def test_what_an_inspection_found_stays_while_the_layers_do(
    unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images
) -> None:
    images.add_image("v0.33.0", layers=LAYERS)
    pin(QWEN, unpinned.parent, hub, registry)
    sizes = [Sizes(bytes=size, unpacked_bytes=2.0 * size) for size in LAYERS["amd64"]]
    write_image_facts(unpinned, sizes, [1, 2], "zstd")
    inspected = model_of(unpinned)["image_facts"]
    pin(QWEN, unpinned.parent, hub, registry)
    assert model_of(unpinned)["image_facts"] == inspected
    assert inspected["codec"] == "zstd"


def test_what_is_written_is_a_stack_that_can_be_read(
    unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images
) -> None:
    images.add_image("v0.33.0", layers=LAYERS)
    before = read(QWEN, unpinned.parent).model
    pin(QWEN, unpinned.parent, hub, registry)
    after = read(QWEN, unpinned.parent).model
    assert before is not None
    assert after is not None
    pins = {"revision", "image", "image_facts"}
    assert after.model_dump(exclude=pins) == before.model_dump(exclude=pins)
    assert after.image_facts is not None
    assert after.image_facts.layers == tuple(LAYERS["amd64"])


def test_the_layers_are_those_of_the_instances_architecture(
    unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images
) -> None:
    images.add_image("v0.33.0", layers=LAYERS)
    change(unpinned.parent, QWEN, {"model.nodes.instance": "g5g.xlarge"})
    assert pin(QWEN, unpinned.parent, hub, registry)["layers"] == 3


def test_comments_and_order_stay(unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images) -> None:
    images.add_image("v0.33.0", layers=LAYERS)
    text = unpinned.read_text(encoding="utf-8").replace(
        "    profile: dev\n", "    profile: dev # eager\n    # the nodes\n"
    )
    unpinned.write_text(text, encoding="utf-8")
    pin(QWEN, unpinned.parent, hub, registry)
    after = unpinned.read_text(encoding="utf-8")
    assert "profile: dev # eager" in after
    assert "# the nodes" in after
    kept = [key for key in model_of(unpinned) if key not in ("revision", "image_facts")]
    assert kept == ["environment", "source", "image", "profile", "nodes", "scaling"]


def test_no_other_line_is_touched(unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images) -> None:
    images.add_image("v0.33.0", layers=LAYERS)
    before = unpinned.read_text(encoding="utf-8")
    pin(QWEN, unpinned.parent, hub, registry)
    lines = changed_lines(before, unpinned.read_text(encoding="utf-8"))
    assert {line[1:].split(":")[0].strip() for line in lines if line[0] == "-"} == {
        "image",
        "# No digest is known for this tag here",
    }


def test_the_file_stays_short(unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images) -> None:
    images.add_image("v0.33.0", layers={"amd64": [10**8] * 30})
    before = len(unpinned.read_text(encoding="utf-8").splitlines())
    pin(QWEN, unpinned.parent, hub, registry)
    assert len(unpinned.read_text(encoding="utf-8").splitlines()) <= before + 5


def test_a_comment_that_is_no_longer_true_goes(
    unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images
) -> None:
    images.add_image("v0.33.0", layers=LAYERS)
    pin(QWEN, unpinned.parent, hub, registry)
    assert "No digest is known" not in unpinned.read_text(encoding="utf-8")


# ---- pins that are there already ------------------------------------------------------------------------------------


def test_pins_stay_where_the_names_have_moved_on(
    unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images, served: Served
) -> None:
    first = images.add_image("v0.33.0", layers=LAYERS)
    pin(QWEN, unpinned.parent, hub, registry)
    before = unpinned.read_text(encoding="utf-8")
    images.add_image("v0.33.0", layers={"amd64": [1, 2, 3]})
    served.routes[f"/api/models/{SOURCE}/revision/main"] = Answer(content={"id": SOURCE, "sha": OTHER})
    found = pin(QWEN, unpinned.parent, hub, registry)
    assert found["revision"] == COMMIT
    assert str(found["image"]).endswith(first)
    assert unpinned.read_text(encoding="utf-8") == before


def test_pinning_twice_changes_nothing(
    unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images
) -> None:
    images.add_image("v0.33.0", layers=LAYERS)
    pin(QWEN, unpinned.parent, hub, registry)
    before = unpinned.read_text(encoding="utf-8")
    pin(QWEN, unpinned.parent, hub, registry)
    assert unpinned.read_text(encoding="utf-8") == before


@pytest.mark.parametrize(("asked", "commit"), [("v1", OTHER), ("e" * 40, "e" * 40)])
def test_another_revision_where_asked(
    unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images, asked: str, commit: str
) -> None:
    images.add_image("v0.33.0", layers=LAYERS)
    pin(QWEN, unpinned.parent, hub, registry)
    assert pin(QWEN, unpinned.parent, hub, registry, revision=asked)["revision"] == commit
    assert model_of(unpinned)["revision"] == commit


def test_a_commit_is_not_asked_for(
    unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images, served: Served
) -> None:
    images.add_image("v0.33.0", layers=LAYERS)
    pin(QWEN, unpinned.parent, hub, registry, revision=COMMIT)
    assert served.asked == []


def test_a_pinned_image_needs_no_tag(
    unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images
) -> None:
    digest = images.add_image("v0.33.0", layers=LAYERS)
    change(unpinned.parent, QWEN, {"model.image": f"{images.image('v0.33.0')}@{digest}"})
    del images.routes["/v2/vllm/manifests/v0.33.0"]
    assert pin(QWEN, unpinned.parent, hub, registry)["layers"] == 2


# ---- failures -------------------------------------------------------------------------------------------------------


def failing(path: Path, call: Callable[[], object]) -> str:
    """What a call fails with; the stack file is as it was."""
    before, touched = path.read_bytes(), path.stat().st_mtime_ns
    with pytest.raises(Failure) as caught:
        call()
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, touched)
    return str(caught.value)


HUB_REFUSALS = {
    "gated": (403, "GatedRepo", f"{SOURCE} is gated: accept its licence on the hub and set HF_TOKEN"),
    "no such revision": (404, "RevisionNotFound", f"{SOURCE} has no revision 'main'"),
    "no such repository": (404, "RepoNotFound", f"{SOURCE} is not on the hub, or private: set HF_TOKEN"),
    "private": (401, "RepoNotFound", f"{SOURCE} is not on the hub, or private: set HF_TOKEN"),
    "broken": (500, None, f"127.0.0.1 answers 500 for {SOURCE} ("),
}


@pytest.mark.parametrize("case", HUB_REFUSALS)
def test_a_hub_that_refuses(
    unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images, served: Served, case: str
) -> None:
    status, code, words = HUB_REFUSALS[case]
    images.add_image("v0.33.0", layers=LAYERS)
    served.routes[f"/api/models/{SOURCE}/revision/main"] = Answer(
        status=status, headers={"X-Error-Code": code} if code else {}
    )
    found = failing(unpinned, lambda: pin(QWEN, unpinned.parent, hub, registry))
    assert re.sub(r"^(127\.0\.0\.1):\d+", r"\1", found).startswith(words)
    assert "\n" not in found


def test_a_hub_that_is_down(
    unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images, served: Served
) -> None:
    images.add_image("v0.33.0", layers=LAYERS)
    served.close()
    words = failing(unpinned, lambda: pin(QWEN, unpinned.parent, hub, registry))
    assert re.match(rf"127\.0\.0\.1:\d+ does not answer for {SOURCE} \(.*\); run it again later", words)


@pytest.mark.parametrize("sha", [None, "main", "C" * 40, "c" * 39])
def test_a_hub_that_answers_no_commit(
    unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images, served: Served, sha: str | None
) -> None:
    images.add_image("v0.33.0", layers=LAYERS)
    served.routes[f"/api/models/{SOURCE}/revision/main"] = Answer(content={"id": SOURCE, "sha": sha})
    words = failing(unpinned, lambda: pin(QWEN, unpinned.parent, hub, registry))
    assert words == f"the hub answered {sha!r} for {SOURCE}@main, which is not a commit"


def test_a_hub_that_answers_something_else(
    unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images, served: Served
) -> None:
    images.add_image("v0.33.0", layers=LAYERS)
    served.routes[f"/api/models/{SOURCE}/revision/main"] = Answer(content=b"<html>login</html>")
    failing(unpinned, lambda: pin(QWEN, unpinned.parent, hub, registry))


def test_a_registry_that_fails_leaves_the_file(
    unpinned: Path, hub: HuggingFaceHub, registry: HttpRegistry, images: Images
) -> None:
    assert "has no vllm:v0.33.0" in failing(unpinned, lambda: pin(QWEN, unpinned.parent, hub, registry))
    images.close()
    assert "does not answer" in failing(unpinned, lambda: pin(QWEN, unpinned.parent, hub, registry))


def test_an_environment_has_nothing_to_pin(stacks: Path, hub: HuggingFaceHub, registry: HttpRegistry) -> None:
    with pytest.raises(BadInput) as caught:
        pin("dev", stacks, hub, registry)
    assert str(caught.value) == ("dev: is an environment. Pin a model stack: an environment has nothing to pin.")


def test_an_unknown_stack_names_the_close_ones(stacks: Path, hub: HuggingFaceHub, registry: HttpRegistry) -> None:
    with pytest.raises(BadInput, match=r"there is no stack file Pulumi\.dev-llama\.yaml\. Did you mean"):
        pin("dev-llama", stacks, hub, registry)


# ---- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def at_home(monkeypatch: pytest.MonkeyPatch, unpinned: Path, hub: HuggingFaceHub) -> None:
    """The command finds these stack files and this hub."""
    monkeypatch.setattr(pin_module, "STACKS", unpinned.parent)
    monkeypatch.setattr(pin_module, "HuggingFaceHub", lambda: hub)


@pytest.mark.usefixtures("at_home")
def test_the_command_shows_what_it_wrote(images: Images, capsys: pytest.CaptureFixture[str]) -> None:
    digest = images.add_image("v0.33.0", layers=LAYERS)
    assert run(["pin", QWEN]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"stack        {QWEN}",
        f"revision     {COMMIT}",
        f"image        {images.image('v0.33.0')}@{digest}",
        "image_bytes  4060000000",
        "layers       2",
    ]
    assert err == ""


@pytest.mark.usefixtures("at_home")
def test_the_command_as_json(images: Images, capsys: pytest.CaptureFixture[str]) -> None:
    images.add_image("v0.33.0", layers=LAYERS)
    assert run(["pin", QWEN, "--json", "--revision", "v1"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["revision"] == OTHER
    assert document["layers"] == 2
    assert err == ""


@pytest.mark.usefixtures("at_home")
def test_the_command_fails_with_one_line(images: Images, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pin", QWEN]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"failed: {images.image('v0.33.0')}: {images.address} has no vllm:v0.33.0",
    ]


@pytest.mark.usefixtures("at_home")
def test_the_command_refuses_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pin", "dev"]) == 2
    assert capsys.readouterr().err.startswith("error: dev: is an environment.")
