"""Model facts: from config.json and safetensors headers, and the ones that ship."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budget.models import Storage, facts_of, known_models, model, storage_of_headers, storage_of_index
from budget.problems import BadInput

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
BF16 = Storage(bytes_by_dtype={"BF16": 16_060_522_496}, parameters=8_030_261_248, largest_tensor_bytes=1, files=4)


def facts(config: dict[str, Any], storage: Storage = BF16):  # noqa: ANN201 - what facts_of gives
    return facts_of(config, storage, name="m")


@pytest.mark.parametrize(
    ("name", "parameters", "weights_bytes"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248, 16_060_522_496),
        ("meta-llama/Llama-3.3-70B-Instruct", 70_553_706_496, 141_107_412_992),
        ("mistralai/Mistral-7B-Instruct-v0.3", 7_248_023_552, 14_496_047_104),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46_702_792_704, 93_405_585_408),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512, 15_231_233_024),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", 30_532_122_624, 61_064_245_248),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", 235_093_634_560, 470_187_269_120),
        ("openai/gpt-oss-20b", 20_914_757_184, 13_761_264_768),
        ("openai/gpt-oss-120b", 116_829_156_672, 65_248_815_744),
    ],
)
def test_shipped_facts_match_the_published_totals(name: str, parameters: int, weights_bytes: int) -> None:
    """Totals as each repository's safetensors index gives them."""
    assert model(name).parameters == parameters
    assert model(name).weights_bytes == weights_bytes


def test_at_least_fifteen_models_ship_and_each_says_where_from() -> None:
    assert len(known_models()) >= 15
    assert all(known.source.startswith("https://huggingface.co/") for known in known_models().values())


@pytest.mark.parametrize(
    ("name", "per_token"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 131_072),  # 2 x 8 heads x 128 x 32 layers x 2 bytes
        ("meta-llama/Llama-3.3-70B-Instruct", 327_680),
        ("Qwen/Qwen2.5-7B-Instruct", 57_344),
        ("deepseek-ai/DeepSeek-R1", 70_272),  # (512 + 64) x 61 layers x 2 bytes
    ],
)
def test_kv_bytes_per_token(name: str, per_token: int) -> None:
    assert model(name).kv_bytes_per_token() == per_token


def test_kv_heads_are_split_then_repeated() -> None:
    llama = model("meta-llama/Llama-3.1-8B-Instruct")
    assert llama.kv_bytes_per_token(tensor_parallel=8) == 131_072 // 8
    assert llama.kv_bytes_per_token(tensor_parallel=16) == 131_072 // 8


def test_a_compressed_vector_is_held_by_every_rank() -> None:
    deepseek = model("deepseek-ai/DeepSeek-R1")
    assert deepseek.kv_bytes_per_token(tensor_parallel=8) == deepseek.kv_bytes_per_token()


def test_sliding_layers_stop_growing() -> None:
    oss = model("openai/gpt-oss-120b")
    short, long = oss.kv_bytes(128), oss.kv_bytes(12_800)
    # 18 of 36 layers keep 128 tokens.
    assert long == 18 * 2 * 8 * 64 * 2 * (12_800 + 128)
    assert short == 36 * 2 * 8 * 64 * 2 * 128


def test_gemma_keeps_every_sixth_layer_full() -> None:
    kinds = {group.kind: group.layers for group in model("google/gemma-3-27b-it").attention}
    assert kinds == {"full": 10, "sliding": 52}


def test_a_mixture_counts_every_expert_and_tells_the_active_ones() -> None:
    qwen = model("Qwen/Qwen3-235B-A22B-Instruct-2507")
    assert qwen.experts == 128
    assert qwen.active_parameters == pytest.approx(22e9, rel=0.02)


def test_hybrid_attention_keeps_a_state_that_does_not_grow() -> None:
    config = LLAMA | {
        "num_hidden_layers": 48,
        "full_attention_interval": 4,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
    }
    hybrid = facts(config)
    assert {group.kind: group.layers for group in hybrid.attention} == {"full": 12, "linear": 36}
    growth = hybrid.kv_bytes(2000) - hybrid.kv_bytes(1000)
    assert growth == 1000 * 12 * 2 * 8 * 128 * 2
    assert hybrid.odd_architecture


@pytest.mark.parametrize(
    ("extra", "kinds"),
    [
        ({"layer_types": ["full_attention", "linear_attention"] * 16}, {"full": 16, "linear": 16}),
        ({"layers_block_type": ["mamba"] * 28 + ["attention"] * 4}, {"linear": 28, "full": 4}),
        ({"hybrid_override_pattern": "M-M-*-" * 4}, {"linear": 8, "full": 4}),
        ({"sliding_window": 4096}, {"sliding": 32}),
        ({"sliding_window": 4096, "use_sliding_window": False}, {"full": 32}),
        ({"sliding_window": 4096, "model_type": "gemma2"}, {"full": 16, "sliding": 16}),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, {"mla": 32}),
    ],
)
def test_layers_by_what_they_keep(extra: dict[str, Any], kinds: dict[str, int]) -> None:
    assert {group.kind: group.layers for group in facts(LLAMA | extra).attention} == kinds


@pytest.mark.parametrize(
    ("settings", "scheme"),
    [
        ({"quant_method": "fp8", "fmt": "e4m3"}, "fp8"),
        ({"quant_method": "awq"}, "awq"),
        ({"quant_method": "gptq"}, "gptq"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, "fp8"),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, "gptq"),
        ({"quant_method": "compressed-tensors", "format": "int-quantized"}, "int8"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "nvfp4"),
    ],
)
def test_quantization_schemes(settings: dict[str, str], scheme: str) -> None:
    assert facts(LLAMA | {"quantization_config": settings}).quantization == scheme


def test_stored_fp8_is_seen_without_a_config() -> None:
    storage = Storage(bytes_by_dtype={"F8_E4M3": 8, "BF16": 1}, parameters=8, largest_tensor_bytes=1, files=1)
    assert facts(LLAMA, storage).quantization == "fp8"


def test_headers_add_up() -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "w": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]},
        "layers.0.qweight": {"dtype": "I32", "shape": [16, 2], "data_offsets": [64, 192]},
        "layers.0.scales": {"dtype": "F16", "shape": [2, 2], "data_offsets": [192, 200]},
        "layers.0.proj_blocks": {"dtype": "U8", "shape": [4, 16], "data_offsets": [200, 264]},
    }
    storage = storage_of_headers([header, {"b": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}])
    assert storage.bytes_by_dtype == {"BF16": 64, "I32": 128, "F16": 8, "U8": 64, "F32": 12}
    assert storage.parameters == 32 + 32 * 8 + 64 * 2 + 3  # scales are none
    assert storage.largest_tensor_bytes == 128
    assert storage.files == 2


@pytest.mark.parametrize(
    "bad", [{"w": 3}, {"w": {"dtype": "F17", "shape": [1]}}, {"w": {"dtype": "F16", "shape": "x"}}]
)
def test_a_header_that_is_none_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        storage_of_headers([bad])


def test_an_index_gives_the_total_alone() -> None:
    index = {"metadata": {"total_size": 100}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
    storage = storage_of_index(index)
    assert (storage.total_bytes, storage.files, storage.parameters) == (100, 2, None)
    assert facts(LLAMA, storage).parameters == 50
    with pytest.raises(BadInput, match="total_size"):
        storage_of_index({})


def test_old_spellings() -> None:
    falcon = {"n_layer": 32, "n_embd": 4544, "n_head": 71, "multi_query": True, "model_type": "falcon"}
    found = facts(falcon)
    assert (found.layers, found.kv_heads, found.head_dim, found.architecture) == (32, 1, 64, "falcon")


def test_a_multimodal_config_nests_its_text() -> None:
    assert facts({"architectures": ["X"], "text_config": LLAMA}).layers == 32


def test_every_missing_key_matters() -> None:
    with pytest.raises(BadInput, match="num_hidden_layers"):
        facts({"hidden_size": 1, "num_attention_heads": 1})


def test_an_unknown_model_gets_the_close_names() -> None:
    with pytest.raises(BadInput, match=r"Llama-3\.1-8B-Instruct"):
        model("meta-llama/Llama-3.1-8B-Instrct")


@given(tokens=st.integers(1, 200_000), more=st.integers(0, 100_000), ranks=st.sampled_from([1, 2, 4, 8]))
def test_a_longer_sequence_never_keeps_less(tokens: int, more: int, ranks: int) -> None:
    for known in known_models().values():
        longer = known.kv_bytes(tokens + more, tensor_parallel=ranks)
        assert longer >= known.kv_bytes(tokens, tensor_parallel=ranks)


def test_the_shipped_data_is_plain_json() -> None:
    from budget.tables import document  # noqa: PLC0415 - only this test looks at the file

    assert json.dumps(document("models.json"))
