"""What a stack declares as a whole: providers, tags, order, options, and nothing said twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime.proto import resource_pb2

from budget.problems import BadInput
from infra import offline
from infra.cluster import kubeconfig
from infra.offline import Evaluation, Recorded
from infra.reference import EnvironmentOutputs
from infra.rules import check
from infra.stack_file import read
from tests.unit.infra.changed_stacks import change
from tests.unit.infra.failing import failure_of
from tests.unit.infra.order import waits_for

Declared = Callable[..., Evaluation]
LLAMA, QWEN, LARGE = "dev-llama-3-1-8b", "dev-qwen2-5-0-5b", "dev-qwen3-32b"
STACKS = ("dev", LLAMA, QWEN, LARGE)
PRODUCTION = {"environment.production": True}
ADMINS = ["arn:aws:iam::111122223333:role/platform", "arn:aws:iam::111122223333:role/on-call"]


def one(found: Evaluation, suffix: str) -> Recorded:
    (resource,) = found.of_type(suffix)
    return resource


# ---- both ways ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", STACKS)
def test_preview_and_up_declare_the_same_resources(declared: Declared, stack: str) -> None:
    """A resource that exists only once something is known would surprise whoever read the preview."""
    up, preview = declared(stack), declared(stack, mode="preview")
    assert [resource.urn for resource in up.resources] == [resource.urn for resource in preview.resources]
    for one_up, one_preview in zip(up.resources, preview.resources, strict=True):
        options = ("parent", "ignore_changes", "protect", "retain_on_delete", "deleted_with", "import_id", "timeouts")
        assert [getattr(one_up, name) for name in options] == [getattr(one_preview, name) for name in options]
        assert one_up.inputs.keys() == one_preview.inputs.keys()


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("mode", ["up", "preview"])
def test_every_cloud_resource_has_the_stacks_own_provider(declared: Declared, stack: str, mode: str) -> None:
    found = declared(stack, mode=mode)
    for resource in found.resources:
        package = resource.type.partition(":")[0]
        if package in ("aws", "kubernetes"):
            (provider,) = found.of_type(f"pulumi:providers:{package}")
            assert provider.name == stack
            assert resource.provider.rpartition("::")[0] == provider.urn, resource.urn


@pytest.mark.parametrize("stack", STACKS)
def test_no_output_is_unknown_once_it_is_up(declared: Declared, stack: str) -> None:
    def unknown(value: object) -> bool:
        if isinstance(value, dict):
            return any(unknown(item) for item in value.values())
        if isinstance(value, list):
            return any(unknown(item) for item in value)
        return value == "unknown"

    for resource in declared(stack).resources:
        assert not unknown(dict(resource.inputs)), resource.urn


@pytest.mark.parametrize("stack", ["dev", LLAMA])
def test_every_component_says_when_it_is_whole(stacks: Path, stack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its outputs registered a component stays in creation for ever, in the engine's eyes."""
    whole: set[str] = set()
    register = offline._Recorder.RegisterResourceOutputs

    def note(self: Any, request: resource_pb2.RegisterResourceOutputsRequest) -> Any:
        whole.add(request.urn)
        return register(self, request)

    monkeypatch.setattr(offline._Recorder, "RegisterResourceOutputs", note)
    found = offline.evaluate(stack, directory=stacks)
    components = {resource.urn for resource in found.resources if resource.type.startswith("coldstart:")}
    assert components
    assert components <= whole


@pytest.mark.parametrize("stack", STACKS)
def test_children_belong_to_a_component_of_the_stack(declared: Declared, stack: str) -> None:
    found = declared(stack)
    urns = {resource.urn for resource in found.resources}
    for resource in found.resources:
        assert resource.parent in urns or resource.parent.endswith(f"::coldstart-{stack}"), resource.urn


@pytest.mark.parametrize("stack", STACKS)
def test_names_are_unique_and_stable(declared: Declared, stack: str) -> None:
    urns = [resource.urn for resource in declared(stack).resources]
    assert len(set(urns)) == len(urns)
    for resource in declared(stack).resources:
        assert resource.name == stack or resource.name.startswith(f"{stack}-"), resource.urn


# ---- providers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", STACKS)
def test_aws_is_one_region_one_account_and_one_set_of_tags(declared: Declared, stack: str) -> None:
    provider = one(declared(stack), "pulumi:providers:aws")
    # A provider's members that are not text go over the wire as JSON.
    assert provider.inputs["region"] == "us-west-2"
    assert json.loads(provider.inputs["allowedAccountIds"]) == ["111122223333"]
    tags = json.loads(provider.inputs["defaultTags"])["tags"]
    assert (tags["application"], tags["environment"], tags["stack"]) == ("coldstart", "dev", stack)
    assert tags["owner"] == "platform-team"


def test_a_persons_tags_are_added_and_ours_stay(declared: Declared) -> None:
    provider = one(declared("dev", {"environment.tags": {"cost-centre": "42"}}), "pulumi:providers:aws")
    tags = json.loads(provider.inputs["defaultTags"])["tags"]
    assert tags["cost-centre"] == "42"
    assert tags["application"] == "coldstart"


def test_kubernetes_asks_for_a_token_and_holds_none(declared: Declared) -> None:
    for stack in ("dev", LLAMA):
        provider = one(declared(stack), "pulumi:providers:kubernetes")
        config = json.loads(provider.inputs["kubeconfig"])
        (user,) = config["users"]
        assert set(user["user"]) == {"exec"}
        assert user["user"]["exec"]["command"] == "aws"
        assert user["user"]["exec"]["args"] == [
            *("eks", "get-token", "--cluster-name", "coldstart-dev", "--region", "us-west-2")
        ]
        assert "deleteUnreachable" not in provider.inputs  # whoever is merely out of reach must not forget objects


def test_a_kubeconfig_is_whole() -> None:
    config = json.loads(kubeconfig(cluster="c", endpoint="https://e", certificate_authority="Y2E=", region="r"))
    assert config["apiVersion"] == "v1"
    assert config["kind"] == "Config"
    assert config["current-context"] == config["contexts"][0]["name"]
    assert config["contexts"][0]["context"] == {"cluster": "c", "user": config["users"][0]["name"]}
    assert config["clusters"] == [
        {"name": "c", "cluster": {"server": "https://e", "certificate-authority-data": "Y2E="}}
    ]
    assert config["users"][0]["user"]["exec"]["interactiveMode"] == "Never"


# ---- cluster --------------------------------------------------------------------------------------------------------


def test_the_cluster(declared: Declared) -> None:
    cluster = one(declared("dev"), "eks/cluster:Cluster")
    assert cluster.inputs["name"] == "coldstart-dev"
    assert cluster.inputs["version"] == "1.35"
    assert cluster.inputs["upgradePolicy"] == {"supportType": "STANDARD"}  # extended support costs six times as much
    assert cluster.inputs["accessConfig"] == {
        "authenticationMode": "API",
        "bootstrapClusterCreatorAdminPermissions": True,
    }
    assert cluster.inputs["bootstrapSelfManagedAddons"] is False
    assert cluster.inputs["enabledClusterLogTypes"] == ["api", "audit", "authenticator"]
    assert cluster.timeouts == {"create": "45m", "update": "60m", "delete": "30m"}


def test_the_log_group_is_there_before_the_cluster_writes_to_it(declared: Declared) -> None:
    """EKS would make it itself, keep everything for ever, and leave it behind."""
    found = declared("dev")
    logs = one(found, ":LogGroup")
    assert logs.inputs == {"name": "/aws/eks/coldstart-dev/cluster", "retentionInDays": 30}
    assert logs.urn in one(found, "eks/cluster:Cluster").depends_on
    longer = declared("dev", {"environment.log_retention_days": 365})
    assert one(longer, ":LogGroup").inputs["retentionInDays"] == 365


def test_the_api_is_private_and_open_to_listed_ranges_alone(declared: Declared) -> None:
    config = one(declared("dev"), "eks/cluster:Cluster").inputs["vpcConfig"]
    assert config["endpointPrivateAccess"] is True
    assert config["endpointPublicAccess"] is True
    assert config["publicAccessCidrs"] == ["203.0.113.0/24"]
    closed = one(declared("dev", {"environment.access.public_cidrs": []}), "eks/cluster:Cluster").inputs["vpcConfig"]
    assert closed["endpointPrivateAccess"] is True
    assert closed["endpointPublicAccess"] is False
    # An empty list is everybody, to EKS.
    assert "publicAccessCidrs" not in closed


def test_administrators_get_an_access_entry_each(declared: Declared) -> None:
    found = declared("dev", {"environment.access.admin_roles": ADMINS})
    entries = {entry.inputs["principalArn"]: entry for entry in found.of_type(":AccessEntry")}
    assert set(entries) == set(ADMINS)
    policies = found.of_type(":AccessPolicyAssociation")
    assert {policy.inputs["principalArn"] for policy in policies} == set(ADMINS)
    for policy in policies:
        assert policy.inputs["policyArn"] == "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
        assert policy.inputs["accessScope"] == {"type": "cluster"}
        assert entries[policy.inputs["principalArn"]].urn in policy.depends_on
    assert not declared("dev").of_type(":AccessEntry")


def test_two_administrators_of_one_name_in_two_paths(declared: Declared) -> None:
    admins = [f"arn:aws:iam::111122223333:role/{path}/admin" for path in ("a", "b")]
    entries: list[Recorded] = []

    def declare() -> None:
        entries.extend(declared("dev", {"environment.access.admin_roles": admins}).of_type(":AccessEntry"))

    assert failure_of(declare) == (None, "")
    assert len(entries) == 2


# ---- production -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["up", "preview"])
def test_production_protects_the_cluster(declared: Declared, mode: str) -> None:
    protected = [resource.type for resource in declared("dev", PRODUCTION, mode=mode).resources if resource.protect]
    assert protected == ["aws:eks/cluster:Cluster"]
    assert not [resource for resource in declared("dev", mode=mode).resources if resource.protect]


# ---- what an environment tells its models ---------------------------------------------------------------------------


def test_an_environment_exports_what_its_models_ask_for(declared: Declared) -> None:
    outputs = declared("dev").outputs
    assert EnvironmentOutputs.__dataclass_fields__.keys() <= outputs.keys()
    assert outputs["region"] == "us-west-2"
    assert outputs["cluster"] == "coldstart-dev"
    assert outputs["bucket"] == "coldstart-dev-111122223333-us-west-2"
    assert outputs["private_subnets"] == {
        f"us-west-2{zone}": f"subnet-offline-dev-private-us-west-2{zone}" for zone in "abc"
    }


def test_a_model_says_where_it_answers(declared: Declared) -> None:
    outputs = declared(LLAMA).outputs
    assert outputs["namespace"] == "llama-3-1-8b"
    assert outputs["service"] == "http://llama-3-1-8b.llama-3-1-8b.svc:8000"
    assert outputs["nodeGroups"] == [f"{LLAMA}-offline"]


# ---- a model's objects ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["up", "preview"])
@pytest.mark.parametrize("stack", [LLAMA, QWEN, LARGE])
def test_keda_owns_the_replicas(declared: Declared, stack: str, mode: str) -> None:
    deployment = one(declared(stack, mode=mode), ":Deployment")
    assert "spec.replicas" in deployment.ignore_changes
    assert deployment.inputs["spec"]["replicas"] == 0


@pytest.mark.parametrize("stack", [LLAMA, QWEN, LARGE])
def test_a_rollout_is_waited_for_as_long_as_the_budget_may_take(declared: Declared, stack: str) -> None:
    """One replica after another, each a whole start."""
    deployment = one(declared(stack), ":Deployment")
    replicas = one(declared(stack), ":ScaledObject").inputs["spec"]["maxReplicaCount"]
    assert set(deployment.timeouts) == {"create", "update"}
    config = json.loads(one(declared(stack), ":ConfigMap").inputs["data"]["launcher.json"])
    slowest = sum(phase["high_s"] for phase in config["budget"].values())
    for text in deployment.timeouts.values():
        assert 1.5 * slowest - 1 <= float(text.removesuffix("s")) / replicas <= 1.5 * slowest + 2


@pytest.mark.parametrize("stack", [LLAMA, QWEN, LARGE])
def test_everything_in_a_namespace_comes_after_it(declared: Declared, stack: str) -> None:
    found = declared(stack)
    namespace = one(found, "core/v1:Namespace")
    for resource in found.resources:
        if resource.type.startswith("kubernetes:") and resource.inputs["metadata"].get("namespace"):
            assert resource.inputs["metadata"]["namespace"] == namespace.inputs["metadata"]["name"]
            assert namespace.urn in waits_for(found, resource)


def test_no_object_names_its_kind_twice(declared: Declared) -> None:
    """Typed resources bring their own apiVersion and kind."""
    for resource in declared(LLAMA).resources:
        if resource.type.startswith("kubernetes:"):
            kind = resource.type.rpartition(":")[2]
            assert resource.inputs["kind"] == kind
            assert resource.inputs["apiVersion"] in (resource.type.split(":")[1], "v1")


# ---- the key --------------------------------------------------------------------------------------------------------


KEYED = {"model.engine": {"require_api_key": True}}
HUNTER = "hunter2-do-not-print"


@pytest.mark.parametrize("mode", ["up", "preview"])
def test_the_key_is_a_secret_wherever_it_is_recorded(declared: Declared, mode: str) -> None:
    found = declared(LLAMA, KEYED, secret=HUNTER, mode=mode)
    secret = one(found, "core/v1:Secret")
    assert "stringData" in secret.secrets
    assert secret.inputs["stringData"] == {"apiKey": HUNTER}
    assert secret.inputs["metadata"] == {"name": "engine-api-key", "namespace": "llama-3-1-8b"}
    for resource in found.resources:
        if resource is not secret:
            assert HUNTER not in json.dumps(dict(resource.inputs)), resource.urn
    assert HUNTER not in json.dumps(dict(found.outputs))


def test_the_pod_reads_the_secret_that_is_made(declared: Declared) -> None:
    found = declared(LLAMA, KEYED, secret=HUNTER)
    container = one(found, ":Deployment").inputs["spec"]["template"]["spec"]["containers"][0]
    (variable,) = [variable for variable in container["env"] if variable["name"] == "VLLM_API_KEY"]
    reference = variable["valueFrom"]["secretKeyRef"]
    secret = one(found, "core/v1:Secret")
    assert reference["name"] == secret.inputs["metadata"]["name"]
    assert reference["key"] in secret.inputs["stringData"]


def test_another_key_restarts_the_pods(declared: Declared) -> None:
    """They read it once, when they start; replicas of two keys behind one Service would refuse each other's callers."""
    annotations = {"coldstart/api-key-version": "offline"}
    template = one(declared(LLAMA, KEYED, secret=HUNTER), ":Deployment").inputs["spec"]["template"]
    assert template["metadata"]["annotations"] == annotations
    template = one(declared(LLAMA), ":Deployment").inputs["spec"]["template"]
    assert "annotations" not in template["metadata"]


def test_a_key_nobody_set_is_asked_for(declared: Declared) -> None:
    with pytest.raises(BadInput) as caught:
        declared(LLAMA, KEYED)
    assert str(caught.value) == (
        "coldstart:apiKey: not set, but model.engine.require_api_key is true. "
        f"Set it: pulumi config set --secret coldstart:apiKey --stack {LLAMA}"
    )


def test_a_key_that_is_not_required_makes_no_secret(declared: Declared) -> None:
    assert not declared(LLAMA, secret=HUNTER).of_type("core/v1:Secret")


# ---- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", STACKS)
def test_names_in_kubernetes_are_dns_labels(declared: Declared, stack: str) -> None:
    for resource in declared(stack).resources:
        if resource.type.startswith("kubernetes:") and "metadata" in resource.inputs:
            assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", resource.inputs["metadata"]["name"])


IMPOSSIBLE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a Service that begins with a digit": (LLAMA, "dev-7b", {}),
    "a namespace that is the cluster's own": (LLAMA, "dev-kube-system", {}),
    "a namespace that is there already": (LLAMA, "dev-default", {}),
    "the namespace of the environment's controllers": (LLAMA, "dev-keda", {}),
    "a name that leaves no room for the engine's suffix": (LLAMA, f"dev-{'x' * 58}", {}),
    "a bucket of more than 63 characters": ("dev", f"dev-{'x' * 40}", {}),
    "a tag without a name": ("dev", "dev", {"environment.tags": {"": "x"}}),
    "a tag of more than 128 characters": ("dev", "dev", {"environment.tags": {"k" * 129: "x"}}),
    "a zone that is named twice": (LLAMA, LLAMA, {"model.nodes.zones": ["a", "a"]}),
    "a role that administers twice": ("dev", "dev", {"environment.access.admin_roles": [ADMINS[0], ADMINS[0]]}),
    "the world in two halves": ("dev", "dev", {"environment.access.public_cidrs": ["0.0.0.0/1", "128.0.0.0/1"]}),
    "a window that ends when it begins": (
        LLAMA,
        LLAMA,
        {"model.scaling.schedule": [{"start": "0 8 * * *", "end": "0 8 * * *", "replicas": 2}]},
    ),
    "a window at no hour": (
        LLAMA,
        LLAMA,
        {"model.scaling.schedule": [{"start": "99 8 * * *", "end": "x y z a b", "replicas": 2}]},
    ),
    "a tag with a line break in it": ("dev", "dev", {"environment.owner": "platform\nteam"}),
    "a tag value that AWS takes no letter of": ("dev", "dev", {"environment.tags": {"team": "a|b;<c>"}}),
    "a bucket name that S3 keeps to itself": ("dev", "dev", {"environment.bucket.name": "xn--weights"}),
    "a key of another region": (
        "dev",
        "dev",
        {"environment.bucket.kms_key_arn": "arn:aws:kms:eu-west-1:111122223333:key/0123"},
    ),
    "80,000 IOPS on the 20 GiB that follow from NVMe": (LLAMA, LLAMA, {"model.nodes.volume": {"iops": 80_000}}),
    "more nodes than the guardrails let through": (LLAMA, LLAMA, {"model.scaling.max_replicas": 1_000}),
    "16 GB of weights on a tenth of a GPU": (
        LLAMA,
        LLAMA,
        {"model.nodes.instance": "p5.4xlarge", "model.nodes.gpu_sharing": {"mig_profile": "1g.10gb"}},
    ),
}
"""What AWS, Kubernetes or KEDA refuse only after `pulumi up` has begun to create things."""


@pytest.mark.parametrize(("stack", "name", "changes"), IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_what_can_not_be_created_is_refused_before_anything_is(
    stacks: Path, stack: str, name: str, changes: dict[str, Any]
) -> None:
    change(stacks, stack, changes, rename=name)
    with pytest.raises(BadInput):
        check(read(name, stacks))


def test_a_change_of_spare_replicas_reaches_the_cluster(declared: Declared) -> None:
    found = declared(LLAMA, {"model.scaling.spare_replicas": 2})
    (spare,) = [resource for resource in found.of_type(":Deployment") if resource.name.endswith("-spare")]
    assert "spec.replicas" not in spare.ignore_changes
