"""Who may do what: nothing wider than needed, and never a pod with the node's rights."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from infra.identity import NODE_POLICIES, POD_TRUST, trust
from infra.offline import Evaluation, Recorded
from tests.unit.infra.order import waits_for

Declared = Callable[..., Evaluation]
LLAMA = "dev-llama-3-1-8b"
BUCKET = "arn:aws:s3:::coldstart-dev-111122223333-us-west-2"
PREFIX = "models/meta-llama/Llama-3.1-8B-Instruct/0e9e39f249a16976918f6564b8830bc894c89659/"
KEY = "arn:aws:kms:us-west-2:111122223333:key/0123"


def named(found: Evaluation, suffix: str, name: str) -> Recorded:
    (resource,) = [resource for resource in found.of_type(suffix) if resource.name == name]
    return resource


def statements(document: str) -> list[dict[str, Any]]:
    return json.loads(document)["Statement"]


def listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def policies(found: Evaluation) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for resource in found.of_type(":RolePolicy"):
        for statement in statements(resource.inputs["policy"]):
            yield resource.name, statement


# ---- trust ----------------------------------------------------------------------------------------------------------


def test_trust_names_one_service_and_its_actions() -> None:
    assert statements(trust("ec2.amazonaws.com")) == [
        {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": ["sts:AssumeRole"]}
    ]
    assert statements(POD_TRUST) == [
        {
            "Effect": "Allow",
            "Principal": {"Service": "pods.eks.amazonaws.com"},
            # The agent tags each session with cluster, namespace and service account.
            "Action": ["sts:AssumeRole", "sts:TagSession"],
        }
    ]


@pytest.mark.parametrize("stack", ["dev", LLAMA])
def test_every_role_is_assumed_by_one_aws_service(declared: Declared, stack: str) -> None:
    for role in declared(stack).of_type("iam/role:Role"):
        for statement in statements(role.inputs["assumeRolePolicy"]):
            assert list(statement["Principal"]) == ["Service"]
            assert statement["Principal"]["Service"].endswith(".amazonaws.com")
            assert "*" not in statement["Principal"]["Service"]


# ---- nodes and cluster ----------------------------------------------------------------------------------------------


def test_the_node_role_has_no_way_to_the_weights(declared: Declared) -> None:
    """A pod whose own identity fails would fall back to the node's and nobody would notice."""
    attached = {
        resource.inputs["policyArn"]
        for resource in declared("dev").of_type(":RolePolicyAttachment")
        if resource.name.startswith("dev-node-")
    }
    assert attached == {f"arn:aws:iam::aws:policy/{policy}" for policy in NODE_POLICIES}
    assert not [policy for policy in NODE_POLICIES if "S3" in policy or "FullAccess" in policy]
    assert "AmazonEC2ContainerRegistryPullOnly" in NODE_POLICIES
    assert not [resource for resource in declared("dev").of_type(":RolePolicy") if resource.name == "dev-node"]


@pytest.mark.parametrize(
    ("consumer", "kind", "role"),
    [("dev-system", "eks/nodeGroup:NodeGroup", "dev-node"), ("dev", "eks/cluster:Cluster", "dev-cluster")],
)
def test_whoever_uses_a_role_waits_for_its_policies(declared: Declared, consumer: str, kind: str, role: str) -> None:
    """A node that starts before its role may pull never joins, and says nothing."""
    found = declared("dev")
    attachments = {
        resource.urn
        for resource in found.of_type(":RolePolicyAttachment")
        if resource.name.startswith(f"{role}-Amazon")
    }
    assert attachments
    assert attachments <= waits_for(found, named(found, kind, consumer))


def test_the_partition_is_the_regions_own(declared: Declared) -> None:
    changes = {"environment.region": "us-gov-west-1"}
    for resource in declared("dev", changes).of_type(":RolePolicyAttachment"):
        assert resource.inputs["policyArn"].startswith("arn:aws-us-gov:iam::aws:policy/")


# ---- a model's identity ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["up", "preview"])
def test_a_model_reads_its_own_revision_and_nothing_else(declared: Declared, mode: str) -> None:
    policy = named(declared(LLAMA, mode=mode), ":RolePolicy", LLAMA).inputs["policy"]
    by_sid = {statement["Sid"]: statement for statement in statements(policy)}
    assert set(by_sid) == {"ListOwnPrefix", "ReadOwnWeights", "KeepCompileCache"}
    assert listed(by_sid["ListOwnPrefix"]["Action"]) == ["s3:ListBucket"]
    assert by_sid["ListOwnPrefix"]["Resource"] == BUCKET
    assert by_sid["ListOwnPrefix"]["Condition"] == {"StringLike": {"s3:prefix": [PREFIX, f"{PREFIX}*"]}}
    assert listed(by_sid["ReadOwnWeights"]["Action"]) == ["s3:GetObject"]
    for resource in by_sid["ReadOwnWeights"]["Resource"]:
        assert "meta-llama/Llama-3.1-8B-Instruct/0e9e39f249a16976918f6564b8830bc894c89659" in resource
        assert resource.startswith(f"{BUCKET}/")
    assert f"{BUCKET}/{PREFIX}*" in by_sid["ReadOwnWeights"]["Resource"]
    # What is written is code that another pod of this model will run: nobody else's prefix, and never the weights'.
    assert by_sid["KeepCompileCache"]["Resource"] == [f"{BUCKET}/cache/meta-llama/Llama-3.1-8B-Instruct/*"]
    assert set(by_sid["KeepCompileCache"]["Action"]) == {"s3:GetObject", "s3:PutObject"}


def test_two_revisions_do_not_read_each_other(declared: Declared) -> None:
    other = declared(LLAMA, {"model.revision": "f" * 40})
    text = named(other, ":RolePolicy", LLAMA).inputs["policy"]
    assert "f" * 40 in text
    assert "0e9e39f249a16976918f6564b8830bc894c89659" not in text


def test_the_policy_reads_where_the_engine_reads(declared: Declared) -> None:
    found = declared(LLAMA)
    config = json.loads(named(found, ":ConfigMap", f"{LLAMA}-configmap").inputs["data"]["launcher.json"])
    (path,) = config["weights"]["paths"]
    bucket, _, prefix = path["source"].removeprefix("s3://").partition("/")
    assert f"arn:aws:s3:::{bucket}" == BUCKET
    assert prefix == PREFIX


def test_the_key_may_be_used_for_reading_where_there_is_one(declared: Declared) -> None:
    found = declared(LLAMA, environment={"environment.bucket.kms_key_arn": KEY})
    keys = {
        action: statement["Resource"]
        for statement in statements(named(found, ":RolePolicy", LLAMA).inputs["policy"])
        for action in listed(statement["Action"])
        if action.startswith("kms:")
    }
    assert keys == {"kms:Decrypt": KEY, "kms:GenerateDataKey": KEY}
    assert "kms:" not in named(declared(LLAMA), ":RolePolicy", LLAMA).inputs["policy"]


def test_exactly_one_service_account_gets_it(declared: Declared) -> None:
    found = declared(LLAMA)
    association = named(found, ":PodIdentityAssociation", LLAMA)
    account = named(found, ":ServiceAccount", f"{LLAMA}-serviceaccount").inputs["metadata"]
    assert association.inputs["namespace"] == account["namespace"] == "llama-3-1-8b"
    assert association.inputs["serviceAccount"] == account["name"] == "llama-3-1-8b"
    assert association.inputs["clusterName"] == "coldstart-dev"
    assert association.inputs["roleArn"] == f"arn:aws:iam::000000000000:role/{LLAMA}-offline"


def test_an_association_frees_its_place_before_another_takes_it(declared: Declared) -> None:
    """A cluster allows one for a service account."""
    association = named(declared(LLAMA), ":PodIdentityAssociation", LLAMA)
    assert association.delete_before_replace is True
    assert named(declared(LLAMA), ":RolePolicy", LLAMA).urn in association.depends_on


def test_the_pod_waits_for_its_identity_and_its_nodes(declared: Declared) -> None:
    found = declared(LLAMA)
    namespace = named(found, "core/v1:Namespace", f"{LLAMA}-namespace")
    deployment = named(found, ":Deployment", f"{LLAMA}-deployment")
    assert namespace.urn in deployment.depends_on
    waited = waits_for(found, deployment)
    assert named(found, ":PodIdentityAssociation", LLAMA).urn in waited
    assert named(found, "eks/nodeGroup:NodeGroup", LLAMA).urn in waited


# ---- all policies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", ["dev", LLAMA])
def test_no_statement_allows_everything(declared: Declared, stack: str) -> None:
    for name, statement in policies(declared(stack)):
        for action in listed(statement["Action"]):
            assert "*" not in action, name
            changes = not action.partition(":")[2].startswith(("Describe", "Get", "List"))
            assert not (changes and listed(statement["Resource"]) == ["*"]), (name, action)


def test_documents_fit_what_iam_takes(declared: Declared) -> None:
    """An inline policy of a role has 10,240 characters, white space not counted."""
    for stack in ("dev", LLAMA):
        for resource in declared(stack).of_type(":RolePolicy"):
            assert len("".join(resource.inputs["policy"].split())) < 10_240
