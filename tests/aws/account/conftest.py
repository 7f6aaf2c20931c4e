"""What the tests of this folder share: accounts in moto, behind a front that answers for what moto lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from scripts.account.session import Account, sign_in
from tests.aws.account.accounts import Accounts, accounts
from tests.aws.account.audited import REGION, session_in
from tests.aws.account.front import ACCOUNT, Front
from tests.aws.account.lacking import answer_for_moto
from tests.aws.account.ready import Ready, made_ready


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    """One server for all tests of a worker."""
    with accounts(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def credentials() -> boto3.Session:
    """One session for all tests of a worker: reading the models of the services takes longer than the tests."""
    return session_in(ACCOUNT)


@pytest.fixture
def front(moto: Accounts, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
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
def account(front: Front, credentials: boto3.Session) -> Account:
    """Signed in to the account of the shipped stack files."""
    del front
    return sign_in(account=ACCOUNT, region=REGION, session=credentials)


@pytest.fixture
def stack_files(stacks: Path) -> Path:
    """The shipped stack files, free to change."""
    return stacks


@pytest.fixture
def ready(front: Front, account: Account, stack_files: Path) -> Ready:
    """An account in which everything is right for the shipped model."""
    return made_ready(front, account, stack_files)
