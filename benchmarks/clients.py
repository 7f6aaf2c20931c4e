"""The two ways to S3 that were not taken, for `python benchmarks/stage.py clients`: bytes hashed while they are read.

python benchmarks/clients.py s3transfer|crt FOLDER BUCKET
"""

from __future__ import annotations

import hashlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import boto3
import s3transfer.crt
from s3transfer.manager import TransferConfig, TransferManager

from scripts.staging.bucket import client_config, connect
from scripts.staging.folder import open_folder
from scripts.staging.run import stage

MIB = 2**20


class Hashing:
    """A file that hashes what is read of it and cannot be rewound: s3transfer then reads it once, in order."""

    def __init__(self, path: Path) -> None:
        self._stream = path.open("rb", buffering=0)
        self.sha256 = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """As a file's."""
        data = self._stream.read(size)
        self.sha256.update(data)
        return data

    def readable(self) -> bool:
        """As a file's."""
        return True

    def seekable(self) -> bool:
        """As a file's."""
        return False

    def close(self) -> None:
        """As a file's."""
        self._stream.close()


def manager(kind: str) -> Any:  # noqa: ANN401 - two classes with the same methods
    """The transfer manager, set up as staging is: parts of 8 MiB, 24 at a time."""
    session = boto3.Session()
    if kind == "s3transfer":
        config = TransferConfig(multipart_chunksize=8 * MIB, max_request_concurrency=24, max_in_memory_upload_chunks=24)
        return TransferManager(session.client("s3", config=client_config()), config)
    crt = cast("Any", s3transfer.crt)  # its stubs stand on awscrt's types, and awscrt is installed for this alone
    botocore_session = session._session  # noqa: SLF001 - what boto3 itself hands over
    client = session.client("s3", config=client_config())
    return crt.CRTTransferManager(
        crt.create_s3_crt_client(
            region=session.region_name,
            crt_credentials_provider=crt.BotocoreCRTCredentialsWrapper(
                session.get_credentials()
            ).to_crt_credentials_provider(),
            part_size=8 * MIB,
            use_ssl=client.meta.endpoint_url.startswith("https"),
            target_throughput=1.25e9,
        ),
        crt.BotocoreCRTRequestSerializer(
            botocore_session, {"region_name": session.region_name, "endpoint_url": client.meta.endpoint_url}
        ),
    )


def send_all(kind: str, folder: Path, bucket: str) -> None:
    """Sends every file with a transfer manager, four at a time."""
    with manager(kind) as transfer, ThreadPoolExecutor(4) as pool:

        def send(path: Path) -> str:
            body = Hashing(path)
            transfer.upload(body, bucket, f"models/{path.name}", extra_args={"ChecksumAlgorithm": "CRC32"}).result()
            return body.sha256.hexdigest()

        list(pool.map(send, sorted(folder.iterdir())))


def main(kind: str, folder: Path, bucket: str) -> None:
    """Sends a folder one way and prints how long it took."""
    started = time.monotonic()
    if kind == "own":
        stage(open_folder(folder, name="bench/model"), connect(bucket, region=None), trust_remote_code=False)
    else:
        send_all(kind, folder, bucket)
    print(time.monotonic() - started)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
