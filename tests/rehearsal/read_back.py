"""Runs in the rehearsal environment: streams every tensor of a prefix and prints what it is, as JSON.

python read_back.py s3://BUCKET/PREFIX/
"""

from __future__ import annotations

import hashlib
import json
import sys

import torch
from runai_model_streamer import SafetensorsStreamer, list_safetensors


def main(prefix: str) -> None:
    """Prints file names, and dtype, shape and SHA-256 of each tensor's bytes."""
    files = list_safetensors(prefix)
    tensors = {}
    with SafetensorsStreamer() as streamer:
        streamer.stream_files(files)
        for name, tensor in streamer.get_tensors():
            content = tensor.contiguous().view(torch.uint8).numpy().tobytes()
            digest = hashlib.sha256(content).hexdigest()
            tensors[name] = {"dtype": str(tensor.dtype), "shape": list(tensor.shape), "sha256": digest}
    json.dump({"files": sorted(file.rsplit("/", 1)[1] for file in files), "tensors": tensors}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
