"""The reader of staged weights, for real: the engine's streamer reads a staged prefix, tensor by tensor.

It runs in the rehearsal's own environment (`make rehearse` makes it), since the streamer needs torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.staging.bucket import Bucket, client_config
from scripts.staging.folder import open_folder
from scripts.staging.run import stage
from scripts.staging.safetensors import LENGTH_BYTES, header_bytes, parse_header
from serving.engine import STREAMER_RETRY_S
from tests.aws import seaweed
from tests.aws.made_models import model_files, safetensors, write

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("COLDSTART_REHEARSAL", ROOT / ".cache" / "rehearse")) / "bin" / "python"
BUCKET = "weights-to-stream"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[seaweed.S3Server]:
    with seaweed.running(tmp_path_factory.mktemp("seaweed")) as server:
        server.client().create_bucket(Bucket=BUCKET)
        yield server


def tensors_of(content: bytes) -> dict[str, dict[str, object]]:
    """What a safetensors file holds, read without the streamer."""
    length = header_bytes(content[:LENGTH_BYTES], file_bytes=len(content))
    header = parse_header(content[LENGTH_BYTES : LENGTH_BYTES + length], file_bytes=len(content))
    data = content[LENGTH_BYTES + length :]
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            digest = hashlib.sha256(data[begin:end]).hexdigest()
            found[name] = {"dtype": "torch.bfloat16", "shape": entry["shape"], "sha256": digest}
    return found


def test_every_tensor_comes_back_as_it_was(s3: seaweed.S3Server, tmp_path: Path) -> None:
    files = model_files(shards=3, shard_bytes=20_000_000)
    # A second copy of the weights, which the streamer would load on top if it were staged.
    files["consolidated.safetensors"] = safetensors({"layer.0.weight": 100}, seed=9)
    bucket = Bucket(BUCKET, s3.client(config=client_config()))
    source = open_folder(write(tmp_path, files), name="org/streamed")
    outcome = stage(source, bucket, trust_remote_code=False)
    environment = {
        **os.environ,
        **s3.environment(),
        "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0",
        "RUNAI_STREAMER_S3_TIMEOUT": str(STREAMER_RETRY_S),
    }
    read = subprocess.run(
        [str(PYTHON), str(Path(__file__).with_name("read_back.py")), outcome.model.uri(BUCKET)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert read.returncode == 0, read.stderr
    document = json.loads(read.stdout)
    shards = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    assert document["files"] == shards
    assert document["tensors"] == {name: entry for shard in shards for name, entry in tensors_of(files[shard]).items()}
