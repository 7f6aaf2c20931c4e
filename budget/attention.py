"""What a model's layers keep per token or per sequence: the KV cache, by kind of attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, cast

from budget.model_config import Json, number


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """Layers that keep the same thing per token or per sequence.

    Attributes:
        kind: `full` keeps every token, `sliding` the last `window` tokens, `mla` one compressed vector a token that
            tensor parallelism does not split, `linear` a state of fixed size per sequence.
        layers: how many layers are of this kind.
        elements_per_token: kept for one token in one layer, all heads (0 for `linear`).
        heads: key/value heads the elements are spread over; 1 for `mla`.
        window: tokens kept by `sliding` layers.
        state_elements: kept for one sequence in one layer by `linear` layers.
    """

    kind: Literal["full", "sliding", "mla", "linear"]
    layers: int
    elements_per_token: int = 0
    heads: int = 1
    window: int | None = None
    state_elements: int = 0


def attention_of(config: Json, layers: int, kv_heads: int, head_dim: int) -> tuple[Attention, ...]:
    """Groups the layers by what they keep. Sources: transformers' configuration classes of each family."""
    rank, rope = number(config, "kv_lora_rank"), number(config, "qk_rope_head_dim")
    if rank:
        return (Attention(kind="mla", layers=layers, elements_per_token=rank + (rope or 0)),)
    window = number(config, "sliding_window", "attention_chunk_size")
    kinds = Counter(_layer_kinds(config, layers, window))
    elements = 2 * kv_heads * head_dim
    groups = (
        Attention(kind="full", layers=kinds["full"], elements_per_token=elements, heads=kv_heads),
        Attention(kind="sliding", layers=kinds["sliding"], elements_per_token=elements, heads=kv_heads, window=window),
        Attention(kind="linear", layers=kinds["linear"], state_elements=_state_elements(config)),
    )
    return tuple(group for group in groups if group.layers)


_KIND_OF_TYPE: Mapping[str, str] = MappingProxyType(
    {
        "full_attention": "full", "attention": "full", "hybrid": "full", "*": "full",
        "sliding_attention": "sliding", "chunked_attention": "sliding",
        "linear_attention": "linear", "mamba": "linear", "recurrent": "linear", "conv": "linear", "M": "linear",
    }
)  # fmt: skip


def _layer_kinds(config: Json, layers: int, window: int | None) -> list[str]:
    """`full`, `sliding` or `linear` per layer that keeps anything."""
    for key in ("layer_types", "layers_block_type", "hybrid_override_pattern"):
        listed = config.get(key)
        if isinstance(listed, list | str) and listed:
            # A pattern letter or type that is not listed (`-` is a plain feed-forward) keeps nothing.
            return [_KIND_OF_TYPE[str(item)] for item in cast("list[object]", listed) if str(item) in _KIND_OF_TYPE]
    interval = number(config, "full_attention_interval", "attn_layer_period")
    if interval:
        return ["full" if (layer + 1) % interval == 0 else "linear" for layer in range(layers)]
    if window is None or config.get("use_sliding_window") is False:
        return ["full"] * layers
    pattern = number(config, "sliding_window_pattern") or (2 if config.get("model_type") == "gemma2" else 0)
    if pattern:
        return ["full" if (layer + 1) % pattern == 0 else "sliding" for layer in range(layers)]
    return ["sliding"] * layers


def _state_elements(config: Json) -> int:
    """Elements of the recurrent state of one linear layer."""
    heads = number(config, "linear_num_value_heads", "mamba_num_heads", "mamba_n_heads") or 0
    key = number(config, "linear_key_head_dim", "ssm_state_size", "mamba_d_state") or 128
    value = number(config, "linear_value_head_dim", "mamba_head_dim", "mamba_d_head") or 128
    return heads * key * value
