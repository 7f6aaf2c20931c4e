"""`coldstart render`: everything a stack would create, as files and for a person, and nothing besides."""

from __future__ import annotations

import json
import os
import re
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import render as render_module
from scripts.cli import run
from scripts.render import LIST, Rendering, rendering, write
from serving.manifests import launcher_source
from tests.unit.infra.changed_stacks import change

LLAMA, QWEN, LARGE = "dev-llama-3-1-8b", "dev-qwen2-5-0-5b", "dev-qwen3-32b"
STACKS = ("dev", LLAMA, QWEN, LARGE)
HUNTER = "hunter2-do-not-print"


@pytest.fixture(scope="module")
def rendered() -> dict[str, Rendering]:
    return {name: cached(name) for name in ("dev", LLAMA)}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command need not evaluate again what this file has evaluated."""
    monkeypatch.setattr(render_module, "rendering", cached)


@cache
def cached(name: str) -> Rendering:
    return rendering(name)


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# ---- files ----------------------------------------------------------------------------------------------------------


def test_a_model_is_user_data_manifests_policies_and_resources(rendered: dict[str, Rendering]) -> None:
    files = rendered[LLAMA].files
    folders = {path.partition("/")[0] for path in files}
    assert folders == {"user-data.toml", "kubernetes", "iam", "resources.json"}
    tomllib.loads(files["user-data.toml"])
    kinds = [yaml.safe_load(text)["kind"] for path, text in sorted(files.items()) if path.startswith("kubernetes/")]
    assert kinds == [
        "Namespace",
        "ServiceAccount",
        "ConfigMap",
        "Service",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Deployment",
        "ScaledObject",
    ]


def test_an_environment_has_no_node_of_its_own_to_configure(rendered: dict[str, Rendering]) -> None:
    files = rendered["dev"].files
    assert "user-data.toml" not in files
    assert not [path for path in files if path.startswith("kubernetes/")]
    assert "iam/dev-weights.BucketPolicy.json" in files
    assert "iam/dev-s3.VpcEndpoint.json" in files


@pytest.mark.parametrize("name", ["dev", LLAMA])
def test_every_document_can_be_read_again(rendered: dict[str, Rendering], name: str) -> None:
    for path, text in rendered[name].files.items():
        assert text.endswith("\n"), path
        if path.endswith(".json"):
            json.loads(text)
        elif path.endswith(".yaml"):
            assert yaml.safe_load(text)["apiVersion"]


def test_iam_documents_are_all_there(rendered: dict[str, Rendering]) -> None:
    for found in rendered.values():
        documents = sum(
            1
            for resource in found.evaluation.resources
            for key in ("policy", "assumeRolePolicy")
            if resource.inputs.get(key)
        )
        assert sum(path.startswith("iam/") for path in found.files) == documents


def test_the_launcher_can_be_read_in_its_config_map(rendered: dict[str, Rendering]) -> None:
    text = next(text for path, text in rendered[LLAMA].files.items() if path.endswith("configmap.yaml"))
    assert yaml.safe_load(text)["data"]["launch.py"] == launcher_source()
    assert "\n  launch.py: |" in text
    assert "\\n" not in text.splitlines()[5]


def test_resources_are_listed_without_the_options_nobody_set(rendered: dict[str, Rendering]) -> None:
    resources = json.loads(rendered["dev"].files["resources.json"])
    assert len(resources) == len(rendered["dev"].evaluation.resources)
    by_urn = {resource["urn"]: resource for resource in resources}
    (bucket,) = [resource for resource in resources if resource["type"] == "aws:s3/bucket:Bucket"]
    assert bucket["retain_on_delete"] is True
    for resource in by_urn.values():
        assert "" not in resource.values()
        assert [] not in resource.values()
        assert None not in resource.values()


def test_the_same_stack_gives_the_same_bytes(rendered: dict[str, Rendering]) -> None:
    assert rendering(LLAMA).files == rendered[LLAMA].files


def test_no_file_leaves_its_folder(rendered: dict[str, Rendering]) -> None:
    for found in rendered.values():
        for path in found.files:
            assert not path.startswith("/")
            assert ".." not in Path(path).parts


# ---- written --------------------------------------------------------------------------------------------------------


def test_the_files_are_written_and_nothing_else(rendered: dict[str, Rendering], tmp_path: Path) -> None:
    paths = write(rendered[LLAMA], tmp_path / "out")
    assert below(tmp_path) == {f"out/{LLAMA}/{relative}" for relative in [*rendered[LLAMA].files, LIST]}
    assert {str(path.relative_to(tmp_path / "out" / LLAMA)) for path in paths} == rendered[LLAMA].files.keys()
    for relative, text in rendered[LLAMA].files.items():
        assert (tmp_path / "out" / LLAMA / relative).read_text(encoding="utf-8") == text


@pytest.mark.usefixtures("known")
def test_the_command_writes_where_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "out"
    assert run(["render", "dev", QWEN, "-o", str(out)]) == 0
    shown, noted = capsys.readouterr()
    assert {path.partition("/")[0] for path in below(out)} == {"dev", QWEN}
    assert noted == f"{len(below(out)) - 2} files in {out}\n", "all but the two lists"
    assert QWEN in shown


@pytest.mark.usefixtures("known")
def test_without_a_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["render", "dev"]) == 0
    assert below(tmp_path) == set()
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("known")
def test_json_and_files_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", QWEN, "--json", "-o", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    (document,) = json.loads(out)
    assert {*document["files"], LIST} == {path.removeprefix(f"{QWEN}/") for path in below(tmp_path)}
    assert err == f"{len(document['files'])} files in {tmp_path}\n"


def test_a_file_that_is_no_longer_rendered_goes(rendered: dict[str, Rendering], tmp_path: Path) -> None:
    found, stale = rendered[LLAMA], "kubernetes/99-job.yaml"
    write(replace(found, files={**found.files, stale: "kind: Job\n"}), tmp_path)
    assert (tmp_path / LLAMA / stale).exists()
    write(found, tmp_path)
    assert below(tmp_path / LLAMA) == {*found.files, LIST}


def test_a_file_that_no_rendering_wrote_stays(rendered: dict[str, Rendering], tmp_path: Path) -> None:
    foreign = {"iam/old.json", "kubernetes/99-old.yaml", "notes.txt"}
    for path in foreign:
        (tmp_path / "dev" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev" / path).write_text("mine\n")
    for _ in range(2):
        write(rendered["dev"], tmp_path)
        assert below(tmp_path / "dev") == {*rendered["dev"].files, *foreign, LIST}
    assert {(tmp_path / "dev" / path).read_text() for path in foreign} == {"mine\n"}


@pytest.mark.parametrize("line", ["../mine", "/{0}/mine", "iam/../../mine"])
def test_the_list_leads_nowhere_else(rendered: dict[str, Rendering], tmp_path: Path, line: str) -> None:
    mine = tmp_path / "mine"
    mine.write_text("")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / LIST).write_text(line.format(tmp_path) + "\n")
    write(rendered["dev"], tmp_path)
    assert mine.exists()


@pytest.mark.parametrize("below_it", ["", "out", "deep/out"])
def test_a_file_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str], below_it: str) -> None:
    (tmp_path / "file").write_text("")
    assert run(["render", "dev", "-o", str(tmp_path / "file" / below_it)]) == 2
    words = (
        f"error: -o / --output: {tmp_path / 'file'} is not a folder. Name a folder; it is made where there is none.\n"
    )
    assert capsys.readouterr().err.endswith(words)


def test_a_device_is_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", "dev", "-o", os.devnull]) == 2
    assert f"error: -o / --output: {os.devnull} is not a folder. " in capsys.readouterr().err


# ---- for a person ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("known")
def test_a_person_sees_resources_reasons_deployment_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", LLAMA]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for words in (
        f"{LLAMA} (model on dev)",
        "resources",
        "Node configuration",
        "max-concurrent-unpacks-per-image",
        "Deployment",
        "start-up probe",
        "Cost per hour, at most",
        "g6e.2xlarge (on-demand)",
        "at least",
    ):
        assert words in out


@pytest.mark.usefixtures("known")
def test_warnings_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", QWEN]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"warning model.image: vllm/vllm-openai:v0.33.0 has no digest. Run: coldstart pin {QWEN}" in out


@pytest.mark.usefixtures("known")
def test_json_holds_what_a_person_sees(capsys: pytest.CaptureFixture[str], rendered: dict[str, Rendering]) -> None:
    assert run(["render", LLAMA, "--json"]) == 0
    (document,) = json.loads(capsys.readouterr().out)
    found = rendered[LLAMA]
    assert document["stack"] == LLAMA
    assert [resource["urn"] for resource in document["resources"]] == [
        resource.urn for resource in found.evaluation.resources
    ]
    assert document["warnings"] == list(found.evaluation.warnings)
    assert {reason["key"]: reason["value"] for reason in document["reasons"]} == {
        reason.key: reason.value for reason in found.reasons
    }
    assert document["usd_per_hour"] == {
        "least": found.bill.least_usd_per_hour,
        "most": found.bill.most_usd_per_hour,
    }
    assert document["files"] == dict(found.files)


# ---- which stacks ---------------------------------------------------------------------------------------------------


def test_without_a_stack_there_is_something_to_choose_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render"]) == 2
    assert f"name a stack, or --all. There are: {', '.join(sorted(STACKS))}." in capsys.readouterr().err


def test_an_unknown_stack_is_refused_before_any_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", "dev", "dev-lama-3-1-8b"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"error: dev-lama-3-1-8b: there is no stack file Pulumi.dev-lama-3-1-8b.yaml. Did you mean {LLAMA}?\n"
    )


@pytest.mark.parametrize("name", ["../dev", "dev/../dev", ".", "DEV", "dev\n"])
def test_a_stacks_name_is_no_path(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run(["render", name]) == 2
    assert re.match("error: .*: (is not a valid stack name|there is no stack file)", capsys.readouterr().err, re.DOTALL)


def from_folder(monkeypatch: pytest.MonkeyPatch, stacks: Path) -> None:
    """The command finds these stack files instead of the shipped ones."""
    monkeypatch.setattr(render_module, "rendering", lambda name: rendering(name, stacks))


def test_wrong_settings_are_bad_input_with_every_problem(
    stacks: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    change(stacks, LLAMA, {"model.engine.tensor_parallel": 4, "model.nodes.capacity": "reservation"})
    from_folder(monkeypatch, stacks)
    assert run(["render", LLAMA]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert len(err.splitlines()) >= 3
    assert all(line.startswith("error: model.") for line in err.splitlines())


def test_a_file_of_another_encoding(
    stacks: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stacks / "Pulumi.dev.yaml"
    path.write_bytes(path.read_bytes().replace(b"platform-team", b"plattf\xf6rm"))
    from_folder(monkeypatch, stacks)
    assert run(["render", "dev"]) == 2
    assert capsys.readouterr().err.startswith("error: Pulumi.dev.yaml")


def test_a_key_that_is_there_twice(
    stacks: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stacks / "Pulumi.dev.yaml"
    path.write_text(path.read_text(encoding="utf-8") + "    owner: somebody-else\n", encoding="utf-8")
    from_folder(monkeypatch, stacks)
    assert run(["render", "dev"]) == 2
    assert "owner" in capsys.readouterr().err


# ---- secrets --------------------------------------------------------------------------------------------------------


@pytest.fixture
def keyed(stacks: Path) -> Path:
    """A stack whose key stands in its file in the clear, as it never should."""
    change(stacks, LLAMA, {"model.engine.require_api_key": True})
    path = stacks / f"Pulumi.{LLAMA}.yaml"
    text = path.read_text(encoding="utf-8").replace("config:\n", f"config:\n  coldstart:apiKey: {HUNTER}\n", 1)
    path.write_text(text, encoding="utf-8")
    return stacks


def test_the_key_is_in_no_file(keyed: Path, tmp_path: Path) -> None:
    found = rendering(LLAMA, keyed)
    for path in write(found, tmp_path / "out"):
        assert HUNTER not in path.read_text(encoding="utf-8"), path
    resources = json.loads(found.files["resources.json"])
    (secret,) = [resource for resource in resources if resource["type"] == "kubernetes:core/v1:Secret"]
    assert secret["inputs"]["stringData"] == "[secret]"
    assert "stringData" in secret["secrets"]


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_the_key_is_on_no_screen(
    keyed: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    from_folder(monkeypatch, keyed)
    assert run(["render", LLAMA, *arguments]) == 0
    out, err = capfd.readouterr()
    assert HUNTER not in out + err
    assert "engine-api-key" in out or not arguments


def test_nothing_of_the_users_own_is_read(rendered: dict[str, Rendering], monkeypatch: pytest.MonkeyPatch) -> None:
    """A rendering is the same on every machine."""
    for name, value in {"AWS_REGION": "eu-north-1", "AWS_PROFILE": "x", "KUBECONFIG": os.devnull}.items():
        monkeypatch.setenv(name, value)
    assert dict(rendering("dev").files) == dict(rendered["dev"].files)


def test_yaml_is_written_in_the_order_of_the_objects(rendered: dict[str, Rendering]) -> None:
    text = next(text for path, text in rendered[LLAMA].files.items() if path.endswith("deployment.yaml"))
    document: dict[str, Any] = yaml.safe_load(text)
    assert list(document) == ["apiVersion", "kind", "metadata", "spec"]
