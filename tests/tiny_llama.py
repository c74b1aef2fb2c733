"""A random Llama of a few hundred kilobytes, with the layout and tokenizer of the real one."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from models import prompt
from models.export_llama import TOKENIZER_FILE, LlamaConfig, Precision, export_graph, export_tokenizer

FloatArray = npt.NDArray[np.float32]

CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@cache
def tokenizer_fields() -> dict[str, Any]:
    """A byte-level vocabulary learnt from the policy's own prompts, as a GGUF file holds it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        special_tokens=list(CONTROLS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [prompt.LISTEN_PROMPT, prompt.ANSWER_PROMPT, prompt.DIALOGUE_PROMPT, prompt.CALL_PROMPT]
    texts += [text for said in prompt.EXEMPLARS.values() for text in said]
    tokenizer.train_from_iterator(texts * 3, trainer)
    import json

    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=lambda token: model["vocab"][token])
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.token_type": [3 if token in CONTROLS else 1 for token in tokens],
    }


def tiny_config(layers: int = 2) -> LlamaConfig:
    """Grouped-query attention, two layers, width 64."""
    return LlamaConfig(
        vocab_size=len(tokenizer_fields()["tokenizer.ggml.tokens"]),
        hidden_size=64,
        intermediate_size=96,
        num_layers=layers,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        rope_theta=10_000.0,
        rms_norm_eps=1e-5,
        max_positions=4096,
    )


def random_state(config: LlamaConfig, seed: int, spread: float = 0.2) -> dict[str, FloatArray]:
    """Random weights; a larger spread makes sharper predictions."""
    rng = np.random.default_rng(seed)
    width, wide = config.hidden_size, config.intermediate_size
    keys = config.num_kv_heads * config.head_dim
    queries = config.num_heads * config.head_dim

    def normal(*shape: int) -> FloatArray:
        return (spread * rng.standard_normal(shape)).astype(np.float32)

    state = {
        "model.embed_tokens.weight": normal(config.vocab_size, width) * np.float32(5.0),
        "model.norm.weight": 1 + normal(width),
    }
    for layer in range(config.num_layers):
        name = f"model.layers.{layer}."
        state |= {
            name + "input_layernorm.weight": 1 + normal(width),
            name + "self_attn.q_proj.weight": normal(queries, width),
            name + "self_attn.k_proj.weight": normal(keys, width),
            name + "self_attn.v_proj.weight": normal(keys, width),
            name + "self_attn.o_proj.weight": normal(width, queries),
            name + "post_attention_layernorm.weight": 1 + normal(width),
            name + "mlp.gate_proj.weight": normal(wide, width),
            name + "mlp.up_proj.weight": normal(wide, width),
            name + "mlp.down_proj.weight": normal(width, wide),
        }
    return state


def export_tiny(directory: Path, seed: int, precision: Precision = Precision.FP32) -> dict[str, FloatArray]:
    """Write a complete model directory and return its weights."""
    config = tiny_config()
    state = random_state(config, seed)
    export_graph(config, state, directory, precision)
    export_tokenizer(tokenizer_fields(), directory / TOKENIZER_FILE)
    return state
