"""`coldstart stage` as a person runs it: exit codes, one document on standard output, words on the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from scripts import stage as verb
from scripts.cli import run
from scripts.staging import hub as hub_module
from tests.aws import seaweed
from tests.aws.hub_server import HubServer
from tests.aws.made_models import model_files, write

Stage = Callable[..., tuple[int, str, str]]
NAME = "org/tuned"


@pytest.fixture
def stage(
    s3: seaweed.S3Server, hub: HubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Stage:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    # The client reads HF_ENDPOINT when it is imported, which was long ago.
    api = hub_module.HfApi
    monkeypatch.setattr(hub_module, "HfApi", lambda **given: api(**{**given, "endpoint": hub.endpoint}))

    def command(*arguments: str) -> tuple[int, str, str]:
        code = run(["stage", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


@pytest.fixture
def model_stacks(tmp_path: Path, bucket_name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment and a model in stack files of their own."""
    folder = tmp_path / "stacks"
    folder.mkdir()
    environment = {"region": "us-east-1", "account": "111122223333", "owner": "tests", "bucket": {"name": bucket_name}}
    model = {
        "environment": "dev",
        "source": "org/name",
        "image": "vllm/vllm-openai:v0.33.0",
        "nodes": {"instance": "g6.xlarge"},
        "scaling": {"min_replicas": 0, "max_replicas": 1},
    }
    stack_file(folder / "Pulumi.dev.yaml", "environment", environment)
    stack_file(folder / "Pulumi.dev-name.yaml", "model", model)
    monkeypatch.setattr(verb, "STACKS", folder)
    return folder


def stack_file(path: Path, kind: str, tree: dict[str, object]) -> None:
    path.write_text(yaml.safe_dump({"config": {f"coldstart:{kind}": tree}}))


def pin(folder: Path, revision: str) -> None:
    path = folder / "Pulumi.dev-name.yaml"
    document = yaml.safe_load(path.read_text())
    document["config"]["coldstart:model"]["revision"] = revision
    path.write_text(yaml.safe_dump(document))


def test_a_folder_is_staged_and_said_so(stage: Stage, bucket_name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "model", model_files())
    code, out, err = stage("--source", str(folder), "--name", NAME, "--to", f"s3://{bucket_name}/models")
    assert code == 0, err
    assert out.startswith(f"staged: s3://{bucket_name}/models/{NAME}/")
    assert "0.00 B parameters (BF16), 2 layers" in out
    assert "left out: README.md (for people to read)" in out
    assert "100%" in err


def test_a_document_and_nothing_else_on_standard_output(stage: Stage, bucket_name: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "model", model_files())
    arguments = ("--source", str(folder), "--name", NAME, "--to", f"s3://{bucket_name}", "--json")
    first, second = (json.loads(stage(*arguments)[1]) for _ in range(2))
    assert (first["state"], second["state"]) == ("staged", "already staged")
    assert first["uri"] == second["uri"]


def test_the_model_of_a_stack(stage: Stage, hub: HubServer, bucket_name: str, model_stacks: Path) -> None:
    commit = hub.add("org/name", model_files())
    code, out, err = stage("dev-name")
    assert code == 0, err
    assert f"main is commit {commit}" in err
    assert "dev-name is not pinned: `coldstart pin dev-name` before `pulumi up`" in err
    assert f"staged: s3://{bucket_name}/models/org/name/{commit}/" in out
    pin(model_stacks, commit)
    code, out, err = stage("dev-name", "--json")
    assert json.loads(out)["state"] == "already staged"
    assert "not pinned" not in err


def test_verify_says_intact_or_what_is_not(
    stage: Stage, s3: seaweed.S3Server, bucket_name: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "model", model_files())
    to = ("--to", f"s3://{bucket_name}")
    document = json.loads(stage("--source", str(folder), "--name", NAME, *to, "--json")[1])
    reference = f"{NAME}@{document['revision']}"
    assert stage("--verify", reference, *to)[:2] == (0, f"intact (full): {reference}, 7 files, 0.00 GB\n")
    key = f"models/{NAME}/{document['revision']}/config.json"
    s3.client().put_object(Bucket=bucket_name, Key=key, Body=b"{}")
    code, out, err = stage("--verify", "--quick", reference, *to)
    assert code == 1
    assert f"{key} has 2 bytes where the manifest says" in out
    assert "stage it again" in err
    assert json.loads(stage("--verify", reference, *to, "--json")[1])["intact"] is False


def test_verify_of_what_is_not_staged(stage: Stage, bucket_name: str) -> None:
    code, _, err = stage("--verify", f"{NAME}@{'ab' * 20}", "--to", f"s3://{bucket_name}")
    assert code == 1
    assert "is not staged" in err


def test_list_and_prune(stage: Stage, hub: HubServer, bucket_name: str, model_stacks: Path, tmp_path: Path) -> None:
    commit = hub.add("org/name", model_files())
    pin(model_stacks, commit)
    stage("dev-name")
    folder = write(tmp_path / "model", model_files(seed=5))
    other = json.loads(stage("--source", str(folder), "--name", NAME, "--to", f"s3://{bucket_name}", "--json")[1])
    listed = stage("--list", "dev")[1]
    assert f"org/name@{commit}  7 objects" in listed
    assert f"{NAME}@{other['revision']}" in listed
    code, out, err = stage("--prune", "dev")
    assert (code, "nothing was removed: say --yes" in err) == (0, True)
    assert out.startswith(f"{NAME}@{other['revision']}  7 objects")
    assert "org/name@" not in out
    document = json.loads(stage("--prune", "dev", "--yes", "--json")[1])
    assert [entry["revision"] for entry in document["models"]] == [other["revision"]]
    left = json.loads(stage("--list", "dev", "--json")[1])["models"]
    assert [entry["revision"] for entry in left] == [commit]
    assert stage("--prune", f"org/name@{commit}", "--to", f"s3://{bucket_name}", "--yes")[0] == 0
    assert stage("--list", "dev")[1] == "nothing\n"


def test_prune_does_not_guess_what_an_unpinned_stack_uses(stage: Stage, model_stacks: Path) -> None:
    assert model_stacks.is_dir()
    code, _, err = stage("--prune", "dev")
    assert code == 2
    assert "dev-name: model.revision: is not pinned. Run `coldstart pin dev-name`" in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "--to: no bucket is named"),
        (("dev-nam",), 2, "Did you mean dev-name"),
        (("dev",), 2, "Name a model stack"),
        (("dev-name", "--source", "hf:a/b@main"), 2, "which says it"),
        (("dev-name", "--to", "s3://weights"), 2, "which says it"),
        (("--source", "hf:a/b", "--to", "s3://weights"), 2, "names no revision"),
        (("--source", "hf:a/b@main", "--to", "weights"), 2, "is not a bucket"),
        (("--to", "s3://weights"), 2, "no source is named"),
        (("--prune", "--to", "s3://weights"), 1, "no such bucket"),
        (("--verify", "org/name@main", "--to", "s3://weights"), 2, "is not a commit"),
        (("--in-cluster", "--source", "hf:a/b@main", "--to", "s3://weights"), 2, "no model stack is named"),
        (("--nonsense",), 2, "No such option"),
    ],
)
@pytest.mark.usefixtures("model_stacks")
def test_bad_input_is_told_and_ends_with_its_code(
    stage: Stage, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended, out, err = stage(*arguments)
    assert (ended, out) == (code, "")
    assert said in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("model_stacks")
def test_the_policy_that_staging_needs(stage: Stage, bucket_name: str) -> None:
    policy = json.loads(stage("dev-name", "--print-policy")[1])
    resources = json.dumps(policy)
    assert f"arn:aws:s3:::{bucket_name}/models/org/name/*" in resources
    assert f"arn:aws:s3:::{bucket_name}/models/*" not in resources
