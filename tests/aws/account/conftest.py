"""What the tests of this folder share: accounts in moto, behind a front that answers for what moto lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest

from scripts.account.session import Account, sign_in
from tests.aws.account.front import Front
from tests.aws.account.lacking import answer_for_moto
from tests.standin.processes import ACCOUNT, Moto

REGION = "us-west-2"


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    """One server for all tests of a worker."""
    with Moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def front(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    """An empty world, and credentials of the usual account in it."""
    moto.reset()
    with Front.before(moto.endpoint) as front:
        answer_for_moto(front)
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield front


@pytest.fixture
def account(front: Front) -> Account:
    """Signed in to the account of the shipped stack files."""
    del front
    return sign_in(account=ACCOUNT, region=REGION)


@pytest.fixture
def session_in(front: Front) -> Callable[[str], boto3.Session]:
    """A session with credentials of another account, as AWS gives them out for a role there."""

    def session(account_id: str) -> boto3.Session:
        sts = boto3.client("sts", region_name=REGION, endpoint_url=front.endpoint)
        given = sts.assume_role(RoleArn=f"arn:aws:iam::{account_id}:role/visitor", RoleSessionName="tests")[
            "Credentials"
        ]
        return boto3.Session(
            aws_access_key_id=given["AccessKeyId"],
            aws_secret_access_key=given["SecretAccessKey"],
            aws_session_token=given["SessionToken"],
        )

    return session


@pytest.fixture
def stack_files(stacks: Path) -> Path:
    """The shipped stack files, free to change."""
    return stacks
