"""Answers shaped like AWS's: regions and IAM, from a moto server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import requests
from moto.server import ThreadedMotoServer

from budget.problems import BadInput
from budget.staged import StagedModel
from infra.weight_access import reader_policy, stager_policy
from scripts.failure import Failure
from scripts.staging.bucket import Bucket, connect
from scripts.staging.folder import FolderSource, open_folder
from scripts.staging.run import stage
from tests.aws.made_models import model_files, write

BUCKET = "weights-of-the-tests"
WEST = "eu-west-1"


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def endpoint(moto: str, monkeypatch: pytest.MonkeyPatch) -> str:
    requests.post(f"{moto}/moto-api/reset", timeout=10)
    requests.post(f"{moto}/moto-api/reset-auth", data=b"1000000", timeout=10)
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "root")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "root")
    return moto


@pytest.fixture
def source(tmp_path: Path) -> FolderSource:
    return open_folder(write(tmp_path, model_files(shard_bytes=20_000_000)), name="org/tuned")


def make_bucket(region: str) -> None:
    place = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    boto3.client("s3", region_name=region).create_bucket(Bucket=BUCKET, **place)


# ---- regions -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("endpoint")
@pytest.mark.parametrize("region", ["us-east-1", WEST])
def test_a_bucket_where_it_should_be(region: str, source: FolderSource) -> None:
    make_bucket(region)
    bucket = connect(BUCKET, region=region)
    assert stage(source, bucket, trust_remote_code=False).state == "staged"


@pytest.mark.usefixtures("endpoint")
def test_without_a_region_the_buckets_own_is_used() -> None:
    make_bucket(WEST)
    assert connect(BUCKET, region=None).client.meta.region_name == WEST


@pytest.mark.usefixtures("endpoint")
def test_a_bucket_in_another_region_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    make_bucket(WEST)
    with pytest.raises(Failure, match=f"is in {WEST}, not in us-west-2. Weights must lie in the region of the cluster"):
        connect(BUCKET, region="us-west-2")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with pytest.raises(Failure, match=f"is in {WEST}, not in us-east-1"):
        connect(BUCKET, region=None)


@pytest.mark.usefixtures("endpoint")
def test_a_bucket_that_does_not_exist() -> None:
    with pytest.raises(Failure, match=r"there is no such bucket: arn:aws:s3:::weights-of-the-tests"):
        connect(BUCKET, region="us-east-1")


def test_nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(
        BadInput, match=r"AWS credentials: none that work: Unable to locate credentials\. Sign in \(aws"
    ):
        connect(BUCKET, region="us-east-1")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(BadInput, match=r"AWS credentials: none that work: .* In a pod they come from its service acc"):
        connect(BUCKET, region="us-east-1")


# ---- IAM -----------------------------------------------------------------------------------------------------------


def as_user(endpoint: str, policy: dict[str, object]) -> Bucket:
    """A bucket in the hands of a user who may do exactly what a policy says, checked from now on."""
    make_bucket("us-east-1")
    iam = boto3.client("iam", region_name="us-east-1")
    iam.create_user(UserName="stager")
    iam.put_user_policy(UserName="stager", PolicyName="only", PolicyDocument=json.dumps(policy))
    key = iam.create_access_key(UserName="stager")["AccessKey"]
    requests.post(f"{endpoint}/moto-api/reset-auth", data=b"0", timeout=10)
    session = boto3.Session(
        aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"], region_name="us-east-1"
    )
    return connect(BUCKET, region="us-east-1", session=session)


def test_the_stagers_policy_is_enough_to_stage(endpoint: str, source: FolderSource) -> None:
    policy = stager_policy(partition="aws", bucket=BUCKET, model="org/tuned", kms_key_arn=None)
    bucket = as_user(endpoint, policy)
    assert stage(source, bucket, trust_remote_code=False).state == "staged"
    assert stage(source, bucket, trust_remote_code=False).state == "already staged"


def test_the_stagers_policy_of_another_model_is_not(endpoint: str, source: FolderSource) -> None:
    policy = stager_policy(partition="aws", bucket=BUCKET, model="org/other", kms_key_arn=None)
    with pytest.raises(Failure, match=r"access denied: s3:\w+ on arn:aws:s3:::weights-of-the-tests/"):
        stage(source, as_user(endpoint, policy), trust_remote_code=False)


def test_a_reader_cannot_even_look_where_the_bucket_is(endpoint: str, source: FolderSource) -> None:
    model = StagedModel(name=source.name, revision=source.revision)
    policy = reader_policy(partition="aws", bucket=BUCKET, staged=model, kms_key_arn=None)
    with pytest.raises(Failure, match=r"access denied: s3:GetBucketLocation on arn:aws:s3:::weights-of-the-tests"):
        as_user(endpoint, policy)


@pytest.mark.parametrize("action", ["s3:ListBucket", "s3:ListBucketMultipartUploads", "s3:PutObject", "s3:GetObject"])
def test_every_action_of_the_policy_is_needed_and_named_when_missing(
    endpoint: str, source: FolderSource, action: str
) -> None:
    policy = stager_policy(partition="aws", bucket=BUCKET, model="org/tuned", kms_key_arn=None)
    for statement in policy["Statement"]:
        statement["Action"] = [allowed for allowed in statement["Action"] if allowed != action]
    policy["Statement"] = [statement for statement in policy["Statement"] if statement["Action"]]
    with pytest.raises(Failure, match=f"access denied: {action} on arn:aws:s3:::weights-of-the-tests"):
        stage(source, as_user(endpoint, policy), trust_remote_code=False)
