"""Reads safetensors from S3 into memory, one way or the other, and prints the seconds.

    python read_weights.py streamed|downloaded BUCKET PREFIX FOLDER

`streamed`: the streamer alone, as vLLM uses it. `downloaded`: one connection per file and one file after another to
FOLDER, then every tensor is loaded from there. Run by the engine environment's Python.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import boto3
from runai_model_streamer import SafetensorsStreamer
from safetensors import safe_open


def names_of(bucket: str, prefix: str) -> list[str]:
    """Keys of the weights."""
    listed = boto3.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix)
    keys = [item.get("Key", "") for item in listed.get("Contents", [])]
    return [key for key in keys if key.endswith(".safetensors")]


def streamed(bucket: str, keys: list[str]) -> int:
    """Bytes that came."""
    total = 0
    with SafetensorsStreamer() as streamer:
        streamer.stream_files([f"s3://{bucket}/{key}" for key in keys])
        for _, tensor in streamer.get_tensors():
            total += tensor.numel() * tensor.element_size()
    return total


def downloaded(bucket: str, keys: list[str], folder: Path) -> int:
    """Bytes that were loaded."""
    client, total = boto3.client("s3"), 0
    for key in keys:
        target = folder / Path(key).name
        body = client.get_object(Bucket=bucket, Key=key)["Body"]
        with target.open("wb") as file:
            while block := body.read(1 << 20):
                file.write(block)
        with safe_open(target, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - no mapping
                tensor = tensors.get_tensor(name).clone()
                total += tensor.numel() * tensor.element_size()
        target.unlink()
    return total


def main(way: str, bucket: str, prefix: str, folder: Path) -> None:
    """Reads, and prints bytes and seconds as JSON."""
    keys = names_of(bucket, prefix)
    began = time.perf_counter()
    total = streamed(bucket, keys) if way == "streamed" else downloaded(bucket, keys, folder)
    print(json.dumps({"bytes": total, "s": time.perf_counter() - began}), flush=True)  # noqa: T201 - its result
    os._exit(0)  # the streamer's threads have nothing left to do


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
