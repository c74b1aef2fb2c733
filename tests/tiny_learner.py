"""A tiny voxgate-mini in training: the random Llama of ``tiny_llama`` in torch, with its tokenizer."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gate.catalogue import ToolFacts
from models.export_llama import TOKENIZER_FILE, export_tokenizer
from models.training.policy.mini_learner import MiniLearner, MiniSettings, States
from tests.tiny_llama import random_state, tiny_config, tokenizer_fields
from tools.catalogue import ToolCatalogue

NAME = "tiny"
TOOLS: tuple[ToolFacts, ...] = tuple(ToolCatalogue.builtin().all()[:2])


@cache
def tiny_tokenizer() -> Any:
    """The tokenizer of the tiny model."""
    from tokenizers import Tokenizer

    with TemporaryDirectory() as folder:
        path = Path(folder) / TOKENIZER_FILE
        export_tokenizer(tokenizer_fields(), path)
        return Tokenizer.from_file(str(path))


def tiny_network(seed: int = 3, spread: float = 0.08) -> Any:
    """transformers' network with random weights, frozen."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = tiny_config()
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size, hidden_size=config.hidden_size, intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers, num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads, head_dim=config.head_dim, rope_theta=config.rope_theta,
            rms_norm_eps=config.rms_norm_eps, max_position_embeddings=config.max_positions, tie_word_embeddings=True,
        )
    )  # fmt: skip
    state = {name: torch.from_numpy(value) for name, value in random_state(config, seed, spread).items()}
    missing, unexpected = network.load_state_dict(state, strict=False)
    assert missing == ["lm_head.weight"]
    assert not unexpected
    network.tie_weights()
    return network.requires_grad_(False).eval()


def tiny_learner(
    settings: MiniSettings | None = None, states: States | None = None, before: Path | None = None
) -> MiniLearner:
    """A learner that trains in seconds."""
    import torch

    torch.manual_seed(7)
    chosen = settings or MiniSettings(rank=8, alpha=16, dropout=0.0)
    return MiniLearner(tiny_network(), tiny_tokenizer(), TOOLS, chosen, states or {}, NAME, before)
