"""A real S3 server on loopback for the length of a rehearsal: SeaweedFS."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from scripts.failure import Failure
from scripts.rehearsal.engine_env import EngineEnv
from scripts.rehearsal.ports import free_ports

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

REGION = "us-east-1"
PATIENCE_S = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectStore:
    """A server that is up; its keys live as long as it does.

    Attributes:
        access_key, secret_key: of the identity that may do everything.
        stranger: access and secret key of one that may do nothing here.
    """

    port: int
    access_key: str
    secret_key: str
    stranger: tuple[str, str]

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self, endpoint: str | None = None) -> Mapping[str, str]:
        """What points every client in a pod at it, or at a proxy before it."""
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0",
        }

    def client(self) -> S3Client:
        """A client of it, with nothing of the user's own configuration."""
        session = boto3.Session(
            aws_access_key_id=self.access_key, aws_secret_access_key=self.secret_key, region_name=REGION
        )
        return session.client(
            "s3",
            endpoint_url=self.endpoint,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 3}, connect_timeout=2),
        )


@contextmanager
def object_store(env: EngineEnv, folder: Path) -> Generator[ObjectStore]:
    """Starts a server whose data lie in `folder`.

    Raises:
        Failure: it doesn't come up.
    """
    data = folder / "s3"
    data.mkdir(parents=True, exist_ok=True)
    port, *others = free_ports(8)
    store = ObjectStore(
        port=port,
        access_key=secrets.token_hex(10),
        secret_key=secrets.token_hex(20),
        stranger=(secrets.token_hex(10), secrets.token_hex(20)),
    )
    identities = folder / "s3-identities.json"
    identities.touch(mode=0o600)
    identities.write_text(json.dumps({"identities": _identities(store)}))
    log = folder / "s3.log"
    with log.open("wb") as output:
        server = subprocess.Popen(  # noqa: S603 - the program of the engine environment
            _command(env, data, identities, port, others),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _await(store, server, log)
        yield store
    finally:
        server.kill()  # nothing in it outlives the rehearsal
        server.wait()


def _identities(store: ObjectStore) -> list[dict[str, object]]:
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    known = (
        ("rehearsal", (store.access_key, store.secret_key), actions),
        ("stranger", store.stranger, ["Read:no-such"]),
    )
    return [
        {"name": name, "credentials": [{"accessKey": access, "secretKey": secret}], "actions": may}
        for name, (access, secret), may in known
    ]


def _command(env: EngineEnv, data: Path, identities: Path, port: int, others: list[int]) -> list[str]:
    names = (
        "master.port",
        "master.port.grpc",
        "volume.port",
        "volume.port.grpc",
        "filer.port",
        "filer.port.grpc",
        "s3.port.grpc",
    )
    return [
        str(env.weed),
        "server",
        f"-dir={data}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=1024",
        "-volume.max=100",
        "-s3",
        f"-s3.port={port}",
        f"-s3.localSocket={data.parent / 's3.sock'}",
        "-s3.iam=false",
        "-s3.port.iceberg=0",  # its ports are fixed ones, which a second server on this machine would want too
        "-s3.port.lance=0",
        f"-s3.config={identities}",
        *(f"-{name}={number}" for name, number in zip(names, others, strict=True)),
    ]


def _await(store: ObjectStore, server: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until a bucket can be made: only then do all parts of the server know each other."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise Failure(f"the S3 server ended with {server.returncode}: {log.read_text(errors='replace')[-600:]}")
        try:
            store.client().create_bucket(Bucket="first-look")
        except (BotoCoreError, ClientError):
            time.sleep(0.2)
        else:
            return
    raise Failure(f"the S3 server was not up within {PATIENCE_S:.0f} s: {log.read_text(errors='replace')[-600:]}")
