"""The Job that stages inside the cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from budget.problems import BadInput
from scripts.shipped_code import code
from serving.stage_job import NAMESPACE, SERVICE_ACCOUNT, StageJobSpec, objects

VERSIONS = ("1.34", "1.35", "1.36")


def spec(**changes: Any) -> StageJobSpec:
    base = StageJobSpec(
        slug="llama-3-1-8b",
        image="vllm/vllm-openai:v0.33.0@sha256:" + "ab" * 32,
        source="hf:meta-llama/Llama-3.1-8B-Instruct@" + "0e" * 20,
        bucket="coldstart-dev-111122223333-us-west-2",
        region="us-west-2",
        trust_remote_code=False,
        code=code("scripts.staging"),
        hub_secret="hub-token",  # noqa: S106 - the name of a Secret
        labels={"coldstart/stack": "dev-llama-3-1-8b"},
    )
    return replace(base, **changes)


def pod(given: StageJobSpec) -> dict[str, Any]:
    return objects(given)[-1]["spec"]["template"]["spec"]


def container(given: StageJobSpec) -> dict[str, Any]:
    return pod(given)["containers"][0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("hub_secret", [None, "hub-token"])
def test_every_object_is_valid(version: str, hub_secret: str | None) -> None:
    for entry in objects(spec(hub_secret=hub_secret)):
        kubernetes_validate.validate(json.loads(json.dumps(entry)), version, strict=True)


def test_the_objects_come_in_the_order_they_need() -> None:
    assert [entry["kind"] for entry in objects(spec())] == ["Namespace", "ServiceAccount", "ConfigMap", "Job"]
    assert all(entry["metadata"].get("namespace", NAMESPACE) == NAMESPACE for entry in objects(spec()))


def test_the_pod_is_restricted() -> None:
    """Each line of the restricted Pod Security Standard."""
    given = pod(spec())
    assert given["securityContext"]["runAsNonRoot"] is True
    assert given["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(spec())["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert {next(iter(volume.keys() - {"name"})) for volume in given["volumes"]} == {"configMap", "emptyDir"}
    assert objects(spec())[0]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_pod_has_the_stagers_identity_and_no_token_for_the_cluster() -> None:
    given = pod(spec())
    assert given["serviceAccountName"] == SERVICE_ACCOUNT
    assert given["automountServiceAccountToken"] is False
    assert given["enableServiceLinks"] is False


def test_the_pod_lands_on_cpu_nodes() -> None:
    """GPU nodes are tainted; a pod without tolerations and without GPUs stays off them."""
    given = pod(spec())
    assert "tolerations" not in given
    assert "nvidia.com/gpu" not in json.dumps(given)


def test_what_is_run() -> None:
    assert container(spec())["command"] == ["python3", "-m", "scripts.staging"]
    assert container(spec(trust_remote_code=True))["args"] == [
        "--source=hf:meta-llama/Llama-3.1-8B-Instruct@" + "0e" * 20,
        "--to=s3://coldstart-dev-111122223333-us-west-2/models",
        "--region=us-west-2",
        "--trust-remote-code",
    ]


def test_the_token_comes_from_a_secret() -> None:
    def token(given: StageJobSpec) -> list[dict[str, Any]]:
        return [entry for entry in container(given)["env"] if entry["name"] == "HF_TOKEN"]

    assert token(spec()) == [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub-token", "key": "token"}}}]
    assert token(spec(hub_secret=None)) == []


def test_bad_input_is_not_tried_again_and_an_eviction_is() -> None:
    rules = objects(spec())[-1]["spec"]["podFailurePolicy"]["rules"]
    assert [rule["action"] for rule in rules] == ["FailJob", "Ignore"]
    assert rules[0]["onExitCodes"]["values"] == [2]


def test_the_same_work_is_the_same_job() -> None:
    assert spec().name == spec(image="other").name
    assert spec().name != spec(source="hf:org/name@" + "cd" * 20).name
    assert spec().name != spec(trust_remote_code=True).name
    assert len(spec(slug="x" * 40).name) <= 63


def test_the_code_that_changes_gets_a_map_of_its_own() -> None:
    assert spec().code_name != spec(code=code("scripts.staging") | {"scripts/staging/run.py": ""}).code_name


def test_code_that_a_map_cannot_hold_is_refused() -> None:
    with pytest.raises(BadInput, match="A ConfigMap holds"):
        objects(spec(code={"a.py": "x" * 1_000_001}))


def test_the_code_that_ships_is_what_staging_imports() -> None:
    shipped = set(code("scripts.staging"))
    assert {"scripts/staging/__main__.py", "scripts/failure.py", "budget/staged.py", "budget/models.py"} <= shipped
    assert not any(
        path.startswith(("infra/", "serving/", "scripts/stage")) and "/staging/" not in path for path in shipped
    )
    assert sum(map(len, code("scripts.staging").values())) < 300_000


def test_the_code_that_ships_runs_alone(tmp_path: Path) -> None:
    """Laid out as the volume does it, with nothing of this repository in reach."""
    given = spec()
    data = objects(given)[2]["data"]
    code_volume = next(volume for volume in pod(given)["volumes"] if volume["name"] == "code")
    for item in code_volume["configMap"]["items"]:
        file = tmp_path / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(data[item["key"]])
    blocked = "import sys; sys.modules.update(dict.fromkeys(['rich', 'click', 'pulumi', 'lightkube', 'pydantic']));"
    text = (
        f"{blocked} import os; sys.path[:] = [p for p in sys.path if p not in ('', os.environ['ROOT'])];"
        " import scripts.staging.__main__ as entry;"
        " assert entry.__file__.startswith(os.environ['HERE']), entry.__file__;"
        " sys.exit(entry.main(['--source', '/nowhere', '--name', 'org/x', '--to', 's3://weights/elsewhere']))"
    )
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HERE": str(tmp_path), "ROOT": root}
    ended = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2, ended.stderr
    assert "names a place of its own" in ended.stderr
