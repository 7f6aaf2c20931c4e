"""What the tests of this folder share: a real S3 server, a bucket of one's own in it, and a hub."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from botocore.retries.standard import ExponentialBackoff

from scripts.staging import hub as hub_source
from scripts.staging.bucket import Bucket, client_config
from tests.aws import seaweed
from tests.aws.faulty_proxy import FaultyProxy
from tests.aws.hub_server import HubServer


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[seaweed.S3Server]:
    """One server for all tests of a worker."""
    with seaweed.running(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture
def bucket_name(s3: seaweed.S3Server) -> str:
    """An empty bucket of this test's own."""
    name = f"weights-{uuid.uuid4().hex[:12]}"
    s3.client().create_bucket(Bucket=name)
    return name


@pytest.fixture
def bucket(s3: seaweed.S3Server, bucket_name: str) -> Bucket:
    """The same as staging sees it."""
    return Bucket(bucket_name, s3.client(config=client_config()))


@pytest.fixture
def proxied(s3: seaweed.S3Server, bucket_name: str) -> Iterator[tuple[FaultyProxy, Bucket]]:
    """The same behind a proxy that injects faults."""
    with FaultyProxy.running(("127.0.0.1", s3.port)) as proxy:
        yield proxy, Bucket(bucket_name, s3.client(endpoint=proxy.endpoint, config=client_config()))


@pytest.fixture
def hub() -> Iterator[HubServer]:
    """A hub without models."""
    with HubServer.running() as server:
        yield server


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other a hundred times faster: botocore and the reader of the hub take no patience from outside.

    Nothing else is hurried: what waits for a server here waits as long as it says.
    """
    delay = ExponentialBackoff.delay_amount
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda self, context: delay(self, context) / 100)
    monkeypatch.setattr(hub_source, "_WAIT_S", hub_source._WAIT_S / 100)
    monkeypatch.setattr(hub_source, "_LONGEST_WAIT_S", hub_source._LONGEST_WAIT_S / 100)
