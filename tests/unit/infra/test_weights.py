"""The weight bucket: private, encrypted, kept when everything else goes, and found again."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from infra.offline import Evaluation, Recorded
from infra.weights import tls_only

Declared = Callable[..., Evaluation]
BUCKET = "coldstart-dev-111122223333-us-west-2"
GUARDS = (
    "bucketPublicAccessBlock:BucketPublicAccessBlock",
    "bucketOwnershipControls:BucketOwnershipControls",
    "bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    "bucketLifecycleConfiguration:BucketLifecycleConfiguration",
    "bucketPolicy:BucketPolicy",
)
KEY = "arn:aws:kms:us-west-2:111122223333:key/0123"


def one(found: Evaluation, suffix: str) -> Recorded:
    (resource,) = found.of_type(suffix)
    return resource


def test_the_name_is_the_same_on_every_up(declared: Declared) -> None:
    """A name with a random part would be another bucket, and the kept one would bill unseen."""
    bucket = one(declared("dev"), "s3/bucket:Bucket")
    assert bucket.inputs["bucket"] == BUCKET
    assert bucket.inputs["tags"] == {"bucket": BUCKET}
    named = declared("dev", {"environment.bucket.name": "our-weights"})
    assert one(named, "s3/bucket:Bucket").inputs["bucket"] == "our-weights"


@pytest.mark.parametrize("keep", [True, False])
def test_bucket_and_guards_are_kept_or_destroyed_together(declared: Declared, *, keep: bool) -> None:
    """A kept bucket without its guards would be open to everything that they refuse."""
    found = declared("dev", {"environment.bucket.keep": keep})
    assert one(found, "s3/bucket:Bucket").retain_on_delete is keep
    for suffix in GUARDS:
        assert one(found, suffix).retain_on_delete is keep


def test_nothing_else_outlives_the_environment(declared: Declared) -> None:
    kept = {resource.type for resource in declared("dev").resources if resource.retain_on_delete}
    assert kept == {f"aws:s3/{suffix}" for suffix in ("bucket:Bucket", *GUARDS)}


@pytest.mark.parametrize("mode", ["up", "preview"])
def test_a_bucket_that_is_there_is_adopted(declared: Declared, mode: str) -> None:
    assert one(declared("dev", mode=mode), "s3/bucket:Bucket").import_id == ""
    adopted = declared("dev", mode=mode, adopted=True)
    assert one(adopted, "s3/bucket:Bucket").import_id == BUCKET
    assert [resource.name for resource in adopted.resources if resource.import_id] == ["dev-weights"]


def test_adopting_depends_on_nothing_that_may_have_changed(declared: Declared) -> None:
    """The engine refuses an import whose inputs differ from what it finds."""
    bucket = one(declared("dev", adopted=True), "s3/bucket:Bucket")
    assert {"tags", "tagsAll", "forceDestroy"} <= set(bucket.ignore_changes)
    assert set(bucket.inputs) == {"bucket", "tags"}


def test_whether_it_is_there_is_asked_by_tags_never_by_name(declared: Declared) -> None:
    """Asking for a bucket that is not there is an error, and the first `up` would end with it."""
    invokes = declared("dev").invokes
    assert "aws:resourcegroupstaggingapi/getResources:getResources" in invokes
    assert not [token for token in invokes if "s3/getBucket" in token]


def test_it_can_not_be_made_public(declared: Declared) -> None:
    inputs = one(declared("dev"), GUARDS[0]).inputs
    assert inputs == {
        "bucket": BUCKET,
        "blockPublicAcls": True,
        "blockPublicPolicy": True,
        "ignorePublicAcls": True,
        "restrictPublicBuckets": True,
    }
    assert one(declared("dev"), GUARDS[1]).inputs["rule"] == {"objectOwnership": "BucketOwnerEnforced"}


def test_the_policy_comes_after_the_block_of_public_ones(declared: Declared) -> None:
    """AWS refuses two changes of one bucket's access at the same time."""
    found = declared("dev")
    assert one(found, GUARDS[0]).urn in one(found, GUARDS[4]).depends_on


def test_requests_without_tls_are_refused(declared: Declared) -> None:
    policy = json.loads(one(declared("dev"), GUARDS[4]).inputs["policy"])
    assert policy["Statement"] == [
        {
            "Sid": "TlsOnly",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:*",
            "Resource": [f"arn:aws:s3:::{BUCKET}", f"arn:aws:s3:::{BUCKET}/*"],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }
    ]


@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov"])
def test_the_policy_speaks_of_its_own_partition(partition: str) -> None:
    assert tls_only(partition, "b")["Statement"][0]["Resource"] == [  # type: ignore[index]
        f"arn:{partition}:s3:::b",
        f"arn:{partition}:s3:::b/*",
    ]


def test_encryption_is_s3s_own_unless_a_key_is_named(declared: Declared) -> None:
    (rule,) = one(declared("dev"), GUARDS[2]).inputs["rules"]
    assert rule == {"applyServerSideEncryptionByDefault": {"sseAlgorithm": "AES256"}}
    (rule,) = one(declared("dev", {"environment.bucket.kms_key_arn": KEY}), GUARDS[2]).inputs["rules"]
    assert rule == {
        "applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": KEY},
        # One call to the key a bucket instead of one an object.
        "bucketKeyEnabled": True,
    }


def test_unfinished_uploads_stop_billing(declared: Declared) -> None:
    rules = one(declared("dev"), GUARDS[3]).inputs["rules"]
    assert rules[0]["abortIncompleteMultipartUpload"] == {"daysAfterInitiation": 2}
    assert rules[0]["status"] == "Enabled"
    assert rules[0]["filter"] == {"prefix": ""}


def test_only_compile_caches_expire_and_weights_never_do(declared: Declared) -> None:
    rules = one(declared("dev"), GUARDS[3]).inputs["rules"]
    assert [rule["filter"] for rule in rules if "expiration" in rule] == [{"prefix": "cache/"}]


def test_a_model_neither_makes_nor_changes_a_bucket(declared: Declared) -> None:
    assert not [resource for resource in declared("dev-llama-3-1-8b").resources if ":s3/" in resource.type]
