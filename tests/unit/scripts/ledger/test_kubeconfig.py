"""The kubeconfig of a person: whatever is wrong with it is theirs to mend, in every verb."""

from __future__ import annotations

from pathlib import Path

import pytest

from budget.problems import BadInput
from infra.environment_settings import Environment
from infra.model_settings import Model
from infra.stack_file import Stack
from scripts import stage_in_cluster
from scripts.ledger.kubeconfig import Kubeconfig
from scripts.staging.destination import Origin

NO_CONTEXT = "clusters: []\ncontexts: []\nusers: []\n"
NO_CLUSTER = "clusters: []\ncontexts: [{name: here, context: {cluster: gone}}]\ncurrent-context: here\n"
ENVIRONMENT = {"region": "us-east-1", "account": "111122223333", "owner": "tests"}
MODEL = {
    "environment": "dev",
    "source": "org/name",
    "image": "vllm/vllm-openai:v0.33.0",
    "nodes": {"instance": "g6.xlarge"},
    "scaling": {"min_replicas": 0, "max_replicas": 1},
}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (None, "there is no kubeconfig"),
        (b"\xff\xfe\x00", "not a kubeconfig"),
        (b"a: [", "not a kubeconfig"),
        (b"", "not a kubeconfig"),
        (b"[1, 2]", "not a kubeconfig"),
        (b"clusters: null\ncontexts: null\n", "not a kubeconfig"),
        (NO_CONTEXT.encode(), "No current context"),
        (NO_CLUSTER.encode(), "gone"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_bad_input_in_every_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bytes | None, words: str
) -> None:
    file = tmp_path / "kubeconfig"
    if written is not None:
        file.write_bytes(written)
    monkeypatch.setenv("KUBECONFIG", str(file))
    with pytest.raises(BadInput, match=words):
        Kubeconfig.of(None)
    stack = Stack(
        name="dev-name", environment=Environment.model_validate(ENVIRONMENT), model=Model.model_validate(MODEL)
    )
    with pytest.raises(BadInput, match=words):
        stage_in_cluster.run(stack, Origin(source="hf:org/name@main"), "weights", context=None, hub_secret=None)
