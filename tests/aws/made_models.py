"""Small models with everything an engine asks for, made on the spot: random tensors in real safetensors files."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
}


def header(tensors: Mapping[str, int]) -> bytes:
    """The start of a safetensors file with one-dimensional BF16 tensors of so many elements each."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, elements in tensors.items():
        entries[name] = {"dtype": "BF16", "shape": [elements], "data_offsets": [end, end + 2 * elements]}
        end += 2 * elements
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def safetensors(tensors: Mapping[str, int], *, seed: int = 0) -> bytes:
    """A whole file."""
    generator = random.Random(seed)  # noqa: S311 - the same model every time
    return header(tensors) + generator.randbytes(2 * sum(tensors.values()))


def model_files(*, shards: int = 2, shard_bytes: int = 200_000, seed: int = 0) -> dict[str, bytes]:
    """The files of a model: path → content."""
    names = [f"model-{index + 1:05}-of-{shards:05}.safetensors" for index in range(shards)]
    tensors = {name: {f"layer.{index}.weight": shard_bytes // 2} for index, name in enumerate(names)}
    weight_map = {tensor: name for name in names for tensor in tensors[name]}
    index = {"metadata": {"total_size": shards * shard_bytes}, "weight_map": weight_map}
    return {
        "config.json": json.dumps(CONFIG).encode(),
        "generation_config.json": b'{"do_sample": true}',
        "tokenizer.json": json.dumps({"version": "1.0", "model": {"vocab": {"a": 0}}}).encode(),
        "tokenizer_config.json": b"{}",
        "model.safetensors.index.json": json.dumps(index).encode(),
        **{name: safetensors(tensors[name], seed=seed + number) for number, name in enumerate(names)},
        "README.md": b"# A model",
        ".gitattributes": b"*.safetensors filter=lfs",
    }


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Writes files into a folder; returns it."""
    for path, content in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return folder


def staged_paths(files: Mapping[str, bytes]) -> Sequence[str]:
    """Which of `model_files` are staged."""
    return sorted(path for path in files if path not in {"README.md", ".gitattributes"})
