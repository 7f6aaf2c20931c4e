"""What a model is, as far as a cold start cares: bytes, layers, heads, and what it keeps per token."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from types import MappingProxyType
from typing import cast

from budget.attention import Attention, attention_of
from budget.model_config import Json, architecture, json_object, number, required, text_config
from budget.problems import bad_input, did_you_mean
from budget.tables import document

DTYPE_BYTES: Mapping[str, float] = MappingProxyType(
    {
        "F64": 8, "I64": 8, "U64": 8,
        "F32": 4, "I32": 4, "U32": 4,
        "BF16": 2, "F16": 2, "I16": 2, "U16": 2,
        "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "BOOL": 1,
        "F4": 0.5,
    }
)  # fmt: skip
"""Bytes of one element by its name in a safetensors header (safetensors format specification)."""

_SCALES = re.compile(r"(scales?|scale_inv|scale_2|zeros|zero_point|g_idx|weight_shape|input_scale)$")
"""Tensors that describe quantized ones; they weigh bytes but are no parameters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFacts:
    """The facts of one model revision.

    Attributes:
        name: `ORG/NAME` on the hub, or a folder's name.
        revision: 40-hex commit; None when nobody has resolved it yet.
        parameters: all of them; a mixture of experts counts every expert.
        active_parameters: used per token; None for dense models.
        weights_bytes: the safetensors files' tensors, all of them.
        bytes_by_dtype: the same by safetensors dtype name.
        quantization: `fp8`, `awq`, `gptq`, `mxfp4`, `nvfp4`, `int8`, or None.
        layers: decoder layers; CUDA graphs and compile time grow with them.
        intermediate_size: widest feed-forward of one layer.
        context: longest sequence the checkpoint was made for, tokens.
        attention: what the layers keep.
        largest_tensor_bytes: floor of the streamer's ring buffer.
        files: safetensors files.
        source: where the numbers come from.
    """

    name: str
    revision: str | None
    architecture: str
    parameters: int
    active_parameters: int | None
    weights_bytes: int
    bytes_by_dtype: Mapping[str, int]
    quantization: str | None
    layers: int
    hidden_size: int
    intermediate_size: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int
    attention: tuple[Attention, ...]
    experts: int
    experts_per_token: int
    largest_tensor_bytes: int
    files: int
    source: str

    @property
    def mixture_of_experts(self) -> bool:
        """Only some experts run per token, but all of them are loaded."""
        return self.experts > 1

    @property
    def odd_architecture(self) -> bool:
        """Engine time of such a model is not described by its layers: linear attention, or four-bit floats."""
        return self.quantization in {"mxfp4", "nvfp4"} or any(group.kind == "linear" for group in self.attention)

    def kv_bytes_per_token(self, *, tensor_parallel: int = 1, element_bytes: float = 2) -> int:
        """KV cache bytes that one more token of a short sequence costs on one rank.

        Key/value heads are split over ranks and repeated once there are more ranks than heads; a compressed vector
        (MLA) is held by every rank.
        """
        elements = sum(
            group.layers * group.elements_per_token / group.heads * math.ceil(group.heads / tensor_parallel)
            for group in self.attention
        )
        return math.ceil(elements * element_bytes)

    def kv_bytes(self, tokens: int, *, sequences: int = 1, tensor_parallel: int = 1, element_bytes: float = 2) -> int:
        """KV cache bytes on one rank for `sequences` sequences of `tokens` tokens each."""
        elements = 0.0
        for group in self.attention:
            kept = tokens if group.window is None else min(tokens, group.window)
            per_rank = group.elements_per_token / group.heads * math.ceil(group.heads / tensor_parallel)
            elements += group.layers * (kept * per_rank + group.state_elements / tensor_parallel)
        return math.ceil(sequences * elements * element_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Storage:
    """What the safetensors files of a model hold together.

    Attributes:
        parameters: counted from the tensors, unpacked; None when only the files' total size is known.
    """

    bytes_by_dtype: Mapping[str, int]
    parameters: int | None
    largest_tensor_bytes: int
    files: int

    @property
    def total_bytes(self) -> int:
        """All tensors."""
        return sum(self.bytes_by_dtype.values())


def storage_of_headers(headers: Iterable[Json]) -> Storage:
    """Adds up parsed safetensors headers, one per file.

    Args:
        headers: each maps tensor name → `{"dtype", "shape", "data_offsets"}`; `__metadata__` is skipped.

    Raises:
        BadInput: an entry that is no tensor, or an unknown dtype.
    """
    sizes: Counter[str] = Counter()
    parameters = largest = files = 0
    for header in headers:
        files += 1
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            dtype, shape = _tensor(name, tensor)
            elements = math.prod(shape)
            bytes_ = int(elements * DTYPE_BYTES[dtype])
            sizes[dtype] += bytes_
            largest = max(largest, bytes_)
            parameters += _parameters_of(name, dtype, elements)
    return Storage(bytes_by_dtype=dict(sizes), parameters=parameters, largest_tensor_bytes=largest, files=files)


def _tensor(name: str, entry: object) -> tuple[str, list[int]]:
    fields = json_object(entry)
    dtype, shape = fields.get("dtype"), fields.get("shape")
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise bad_input(name, f"dtype {dtype!r} is unknown", f"Known: {', '.join(DTYPE_BYTES)}.")
    if not isinstance(shape, list) or not all(isinstance(side, int) for side in cast("list[object]", shape)):
        raise bad_input(name, f"shape {shape!r} is not a list of integers", "Read the header of a safetensors file.")
    return dtype, cast("list[int]", shape)


def _parameters_of(name: str, dtype: str, elements: int) -> int:
    """Parameters that a stored tensor holds: packed four-bit tensors hold more than their elements."""
    if _SCALES.search(name):
        return 0
    if dtype == "I32" and ("qweight" in name or "packed" in name):
        return elements * 8
    if dtype == "U8" and ("blocks" in name or "weight" in name):
        return elements * 2
    return elements if dtype.startswith(("F", "BF")) or dtype in {"I8", "U8"} else 0


def storage_of_index(index: Json, *, dtype: str = "BF16") -> Storage:
    """What `model.safetensors.index.json` alone says: the total, not how it is stored.

    The largest tensor stays unknown and is left 0.

    Raises:
        BadInput: no `metadata.total_size`.
    """
    metadata = cast("Json", index.get("metadata") or {})
    total, weight_map = metadata.get("total_size"), cast("Mapping[str, str]", index.get("weight_map") or {})
    if not isinstance(total, int | float):
        raise bad_input(
            "metadata.total_size", f"{total!r} is not a number of bytes", "Use the index beside the weights."
        )
    return Storage(
        bytes_by_dtype={dtype: int(total)},
        parameters=None,
        largest_tensor_bytes=0,
        files=len(set(weight_map.values())) or 1,
    )


def facts_of(
    config: Json, storage: Storage, *, name: str, revision: str | None = None, source: str = "config.json"
) -> ModelFacts:
    """The facts of a model from its parsed `config.json` and what its weight files hold.

    Raises:
        BadInput: a config without layers, hidden size or heads, every missing key named.
    """
    text = text_config(config)
    layers = required(text, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    hidden = required(text, "hidden_size", "n_embd", "d_model")
    heads = required(text, "num_attention_heads", "n_head", "n_heads")
    kv_heads = _kv_heads(text, heads)
    head_dim = number(text, "head_dim", "kv_channels") or hidden // heads
    experts = number(text, "num_experts", "num_local_experts", "n_routed_experts") or 1
    quantization = _quantization(config, storage)
    parameters = storage.parameters or int(storage.total_bytes / _bytes_per_parameter(quantization, storage))
    per_token = number(text, "num_experts_per_tok", "experts_per_token", "top_k_experts") or 0
    return ModelFacts(
        name=name,
        revision=revision,
        architecture=architecture(config),
        parameters=parameters,
        active_parameters=_active(text, parameters, layers, hidden, experts, per_token) if experts > 1 else None,
        weights_bytes=storage.total_bytes,
        bytes_by_dtype=MappingProxyType(dict(storage.bytes_by_dtype)),
        quantization=quantization,
        layers=layers,
        hidden_size=hidden,
        intermediate_size=number(text, "intermediate_size", "ffn_dim", "n_inner") or 4 * hidden,
        attention_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=number(text, "vocab_size", "padded_vocab_size") or 0,
        context=number(text, "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length") or 0,
        attention=attention_of(text, layers, kv_heads, head_dim),
        experts=experts,
        experts_per_token=per_token,
        largest_tensor_bytes=storage.largest_tensor_bytes,
        files=storage.files,
        source=source,
    )


def _kv_heads(config: Json, heads: int) -> int:
    if config.get("multi_query") is True and not config.get("new_decoder_architecture"):
        return 1
    return number(config, "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num") or heads


def _quantization(config: Json, storage: Storage) -> str | None:
    """The scheme the checkpoint is stored in, from `quantization_config` or from the stored dtypes."""
    nested = config.get("quantization_config") or config.get("compression_config")
    settings = json_object(nested)
    said = " ".join(str(settings.get(key, "")) for key in ("quant_method", "quant_algo", "format", "fmt")).lower()
    for scheme in ("nvfp4", "mxfp4", "awq", "gptq", "fp8"):
        if scheme in said:
            return scheme
    if "float-quantized" in said or "e4m3" in said:
        return "fp8"
    if "pack-quantized" in said:
        return "gptq"
    if "int-quantized" in said:
        return "int8"
    stored = storage.bytes_by_dtype
    return "fp8" if any(stored.get(dtype) for dtype in ("F8_E4M3", "F8_E5M2")) else None


def _bytes_per_parameter(quantization: str | None, storage: Storage) -> float:
    """Used only when the tensors were not read: four-bit schemes store scales beside the weights."""
    if quantization in {"awq", "gptq", "mxfp4", "nvfp4"}:
        return 0.5625
    if quantization in {"fp8", "int8"}:
        return 1.0
    dtype = max(storage.bytes_by_dtype, key=lambda name: storage.bytes_by_dtype[name])
    return DTYPE_BYTES[dtype]


def _active(config: Json, parameters: int, layers: int, hidden: int, experts: int, per_token: int) -> int:
    """Parameters used per token: all but the experts that are not chosen. An expert has three matrices."""
    width = number(config, "moe_intermediate_size", "intermediate_size") or 0
    # Dense first layers have no experts; multi-token prediction adds layers that have them.
    sparse = layers - (number(config, "first_k_dense_replace") or 0) + (number(config, "num_nextn_predict_layers") or 0)
    idle = (experts - per_token) * 3 * hidden * width * sparse
    return max(0, parameters - idle)


@cache
def known_models() -> Mapping[str, ModelFacts]:
    """Well-known models whose facts ship with this room, so that a plan needs no network."""
    return MappingProxyType(
        {
            model.name: model
            for model in (_known(entry) for entry in cast("list[Json]", document("models.json")["models"]))
        }
    )


def _known(entry: Json) -> ModelFacts:
    storage = Storage(
        bytes_by_dtype=cast("Mapping[str, int]", entry["bytes_by_dtype"]),
        parameters=cast("int", entry["parameters"]),
        largest_tensor_bytes=cast("int", entry["largest_tensor_bytes"]),
        files=cast("int", entry["files"]),
    )
    return facts_of(
        cast("Json", entry["config"]),
        storage,
        name=cast("str", entry["name"]),
        revision=cast("str | None", entry["revision"]),
        source=cast("str", entry["source"]),
    )


def model(name: str, *, where: str = "model") -> ModelFacts:
    """The shipped facts of the model called `name`.

    Raises:
        BadInput: a model whose facts do not ship, with the close names.
    """
    known = known_models()
    if name not in known:
        raise bad_input(where, f"the facts of {name!r} do not ship with this version", did_you_mean(name, known))
    return known[name]


def facts_document(facts: ModelFacts) -> Json:
    """Facts as JSON members: in a staged manifest, and beside a stack file."""
    document = {name: getattr(facts, name) for name in ModelFacts.__slots__}
    return {
        **document,
        "bytes_by_dtype": dict(facts.bytes_by_dtype),
        "attention": [asdict(group) for group in facts.attention],
    }


def facts_from(document: Json) -> ModelFacts:
    """Facts from what `facts_document` made.

    Raises:
        KeyError: a member is missing.
        TypeError: a member is of the wrong kind, or unknown.
    """
    members = {**document}
    groups = cast("Sequence[Mapping[str, object]]", members["attention"])
    members["attention"] = tuple(Attention(**group) for group in groups)  # pyright: ignore[reportArgumentType] - a wrong member is a TypeError, and told as such
    members["bytes_by_dtype"] = MappingProxyType(dict(cast("Mapping[str, int]", members["bytes_by_dtype"])))
    return ModelFacts(**members)  # pyright: ignore[reportArgumentType] - as above
