"""A real S3 server on loopback: SeaweedFS, from its PyPI wheel."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.toolchain.engines import Server, free_port
from tests.toolchain.waiting import wait_until

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ACCESS_KEY = "AKIDOFTHETESTS"
SECRET_KEY = "secret-of-the-tests"  # noqa: S105 - of a server that lives as long as the tests
REGION = "us-east-1"


@dataclass(frozen=True)
class S3Server:
    """A server that is up."""

    endpoint: str
    port: int

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """What points any AWS client at it, or at a proxy before it."""
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
        }

    def session(self) -> boto3.Session:
        """A session with its credentials."""
        return boto3.Session(aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY, region_name=REGION)

    def client(self, endpoint: str | None = None, config: Config | None = None) -> S3Client:
        """A client of it, or of a proxy before it."""
        return self.session().client("s3", endpoint_url=endpoint or self.endpoint, config=config)


@contextmanager
def running(folder: Path, *, volume_mb: int = 256, patience_s: float = 90) -> Generator[S3Server]:
    """Starts a server whose data lie in `folder`, which goes when it ends."""
    data = folder / "data"
    data.mkdir(parents=True)
    identities = folder / "identities.json"
    identities.write_text(
        json.dumps(
            {
                "identities": [
                    {
                        "name": "tests",
                        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
                        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
                    }
                ]
            }
        )
    )
    port = free_port()
    argv = [
        str(Path(sys.executable).with_name("weed")),
        "server",
        f"-dir={data}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-master.port={free_port()}",
        f"-master.port.grpc={free_port()}",
        "-master.telemetry=false",
        f"-master.volumeSizeLimitMB={volume_mb}",
        f"-volume.port={free_port()}",
        f"-volume.port.grpc={free_port()}",
        "-volume.max=2000",
        f"-filer.port={free_port()}",
        f"-filer.port.grpc={free_port()}",
        "-s3",
        f"-s3.port={port}",
        f"-s3.port.grpc={free_port()}",
        f"-s3.localSocket={folder / 's3.sock'}",
        "-s3.iam=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.config={identities}",
    ]
    server = Server("seaweedfs", argv, folder=folder)
    up = S3Server(endpoint=f"http://127.0.0.1:{port}", port=port)

    def ready() -> bool:
        server.check()
        try:
            # A bucket can be made only once filer, volume server and master know each other.
            up.client(config=Config(retries={"total_max_attempts": 1}, connect_timeout=2)).create_bucket(
                Bucket="first-bucket"
            )
        except (BotoCoreError, ClientError):
            return False
        return True

    try:
        wait_until(ready, what=server.tail, patience_s=patience_s)
        yield up
    finally:
        server.stop(patience_s=0.5)
        shutil.rmtree(data, ignore_errors=True)
