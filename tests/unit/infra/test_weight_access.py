"""IAM policies of reading and staging: exactly the actions that are used, on exactly one model's keys."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from policy_sentry.querying.actions import get_action_data

from budget.staged import StagedModel
from infra.weight_access import EVERY_MODEL, reader_policy, stager_policy

MODEL = StagedModel(name="org/name", revision="ab" * 20)
OTHER = StagedModel(name="org/name-2", revision="ab" * 20)
NEXT = StagedModel(name="org/name", revision="cd" * 20)
KEY = "arn:aws:kms:us-west-2:111122223333:key/1234"
BUCKET = "arn:aws:s3:::weights"


def reader(kms: str | None = None, partition: str = "aws") -> dict[str, Any]:
    return reader_policy(partition=partition, bucket="weights", staged=MODEL, kms_key_arn=kms)


def stager(kms: str | None = None, partition: str = "aws", model: str = "org/name") -> dict[str, Any]:
    return stager_policy(partition=partition, bucket="weights", model=model, kms_key_arn=kms)


POLICIES = {
    "reader": reader(),
    "reader with a key": reader(KEY),
    "reader in China": reader(None, "aws-cn"),
    "stager": stager(),
    "stager with a key": stager(KEY),
    "stager of an environment": stager(model=EVERY_MODEL),
}


def statements(policy: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(action, resource, condition), one by one."""
    for statement in policy["Statement"]:
        resources = statement["Resource"]
        for action in statement["Action"]:
            for resource in [resources] if isinstance(resources, str) else resources:
                yield action, resource, statement.get("Condition", {})


def allows(policy: dict[str, Any], action: str, resource: str, prefix: str | None = None) -> bool:
    """What IAM would say: some statement allows the action on the resource, its condition being met."""
    for allowed, pattern, condition in statements(policy):
        wanted = condition.get("StringLike", {}).get("s3:prefix")
        met = wanted is None or (prefix is not None and any(fnmatch.fnmatchcase(prefix, like) for like in wanted))
        if allowed == action and fnmatch.fnmatchcase(resource, pattern) and met:
            return True
    return False


@cache
def known(action: str) -> list[dict[str, Any]]:
    """What the service authorization reference says of an action, one entry per kind of resource."""
    service, name = action.split(":")
    found = get_action_data(service, name)
    return found[service] if found else []


# ---- lint: for every policy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_it_is_a_policy_document(name: str) -> None:
    policy = json.loads(json.dumps(POLICIES[name]))
    assert policy["Version"] == "2012-10-17"
    sids = [statement["Sid"] for statement in policy["Statement"]]
    assert len(set(sids)) == len(sids)
    assert all(sid.isalnum() for sid in sids)
    assert all(statement["Effect"] == "Allow" for statement in policy["Statement"])
    assert len(json.dumps(policy)) < 6_144  # of a managed policy


@pytest.mark.parametrize("name", POLICIES)
def test_no_action_and_no_bucket_is_a_wildcard(name: str) -> None:
    for action, resource, _ in statements(POLICIES[name]):
        assert "*" not in action
        assert resource.startswith(("arn:aws:s3:::weights", "arn:aws-cn:s3:::weights", KEY))


@pytest.mark.parametrize("name", POLICIES)
def test_every_action_exists_and_fits_its_resource_and_condition(name: str) -> None:
    for action, resource, condition in statements(POLICIES[name]):
        kind = "object" if resource.count("/") and ":s3:" in resource else "bucket" if ":s3:" in resource else "key"
        formats = {
            "object": "arn:${Partition}:s3:::${BucketName}/${ObjectName}",
            "bucket": "arn:${Partition}:s3:::${BucketName}",
            "key": "arn:${Partition}:kms:${Region}:${Account}:key/${KeyId}",
        }
        entry = next((entry for entry in known(action) if entry["resource_arn_format"] == formats[kind]), None)
        assert entry is not None, f"{action} does not act on a {kind}"
        for keys in condition.values():
            assert set(keys) <= set(entry["condition_keys"]), f"{action} knows no condition {keys}"


# ---- what they allow -----------------------------------------------------------------------------------------------


def test_a_reader_reaches_its_revision_alone() -> None:
    policy = reader()
    for key in (MODEL.key("config.json"), MODEL.key("1_Pooling/config.json"), MODEL.manifest_key):
        assert allows(policy, "s3:GetObject", f"{BUCKET}/{key}")
    for model in (OTHER, NEXT):
        assert not allows(policy, "s3:GetObject", f"{BUCKET}/{model.key('config.json')}")
        assert not allows(policy, "s3:GetObject", f"{BUCKET}/{model.manifest_key}")
        assert not allows(policy, "s3:ListBucket", BUCKET, prefix=model.prefix)
    assert allows(policy, "s3:ListBucket", BUCKET, prefix=MODEL.prefix)
    assert not allows(policy, "s3:ListBucket", BUCKET)
    assert not allows(policy, "s3:ListBucket", BUCKET, prefix="models/")


def test_a_reader_writes_nothing() -> None:
    actions = {action for action, _, _ in statements(reader(KEY))}
    assert actions == {"s3:ListBucket", "s3:GetObject", "kms:Decrypt"}


def test_a_stager_does_what_staging_does_and_deletes_nothing() -> None:
    policy = stager(KEY)
    for action in ("PutObject", "GetObject", "AbortMultipartUpload", "ListMultipartUploadParts"):
        assert allows(policy, f"s3:{action}", f"{BUCKET}/{MODEL.key('model.safetensors')}")
        assert allows(policy, f"s3:{action}", f"{BUCKET}/{NEXT.key('model.safetensors')}")
        assert not allows(policy, f"s3:{action}", f"{BUCKET}/{OTHER.key('model.safetensors')}")
    assert allows(policy, "s3:PutObject", f"{BUCKET}/{MODEL.manifest_key}")
    assert not allows(policy, "s3:PutObject", f"{BUCKET}/{OTHER.manifest_key}")
    assert allows(policy, "s3:ListBucket", BUCKET, prefix=MODEL.prefix)
    assert not allows(policy, "s3:ListBucket", BUCKET, prefix=OTHER.prefix)
    assert not any("Delete" in action for action, _, _ in statements(policy))
    assert {action for action, _, _ in statements(policy) if action.startswith("kms")} == {
        "kms:Decrypt",
        "kms:GenerateDataKey",
    }


def test_a_stager_of_an_environment_stages_any_model() -> None:
    policy = stager(model=EVERY_MODEL)
    for model in (MODEL, OTHER):
        assert allows(policy, "s3:PutObject", f"{BUCKET}/{model.key('config.json')}")
        assert allows(policy, "s3:ListBucket", BUCKET, prefix=model.prefix)
    assert not allows(policy, "s3:PutObject", f"{BUCKET}/cache/x")


@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov"])
def test_arns_are_of_the_partition(partition: str) -> None:
    for policy in (reader(None, partition), stager(None, partition)):
        assert all(resource.startswith(f"arn:{partition}:s3:::weights") for _, resource, _ in statements(policy))


parts = st.text("abc09.-", min_size=1, max_size=8)
names = st.builds("{}/{}".format, parts, parts)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names, names)
def test_no_models_policy_reaches_another_model(own: str, other: str) -> None:
    policy = stager(model=own)
    key = StagedModel(name=other, revision="ab" * 20).key("config.json")
    assert allows(policy, "s3:PutObject", f"{BUCKET}/{key}") == (own == other)
