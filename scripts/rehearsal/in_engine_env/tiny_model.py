"""Makes a tiny Llama: 4 layers, hidden 256, a tokenizer of 512 trained tokens; the same bytes every time.

    python tiny_model.py FOLDER

Its weights are drawn wide and from a chosen seed, so that it prefers the first tokens of the launcher's prompt clearly
over all others: a known answer of it is firm.
Run by the engine environment's Python, which has torch, transformers and tokenizers.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 512
SEED = 30
"""Of 20 to 43 the one with the most leading tokens (six) that lead by a nat or more."""
BEGIN, END = "<s>", "</s>"
TEXT = (
    "A cold start is the time from asking for one more replica to its first answer at normal speed.",
    "It is measured phase by phase: node, pull, start, weights, engine, warmup; the largest is attacked first.",
    "The capital of France is Paris. The quick brown fox jumps over the lazy dog while nine wizards hum.",
    "Weights stream from a bucket in the same region; the compile cache is restored before the engine begins.",
    "Numbers such as 0 1 2 3 4 5 6 7 8 9 and 10, brackets (like these), quotes and dashes are ordinary too.",
    "Because pods wait for nodes, images, weights and graphs, every second between has a name and an owner.",
)
CHAT = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE with exactly 512 tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(TEXT, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=made, bos_token=BEGIN, eos_token=END)
    fast.chat_template = CHAT
    return fast


def model() -> LlamaForCausalLM:
    """Random weights from a fixed seed, in bf16."""
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.4,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16)


def main(folder: Path) -> None:
    """Writes the model."""
    tokens = tokenizer()
    if len(tokens) != VOCABULARY:
        raise SystemExit(f"the tokenizer has {len(tokens)} tokens, not {VOCABULARY}: give it more text")
    tokens.save_pretrained(folder)
    model().save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
