"""A training run on paper: shapes, what learns, and the memory of each GPU, from a configuration alone.

The network is made on torch's meta device, where tensors have shapes and no numbers; its language model is run there,
and autograd says what it would keep. No weights, no GPU and no row are needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from models.audio_llm.loading import transformers_class
from models.training.policy.audio_llm_config import TrainingConfig
from models.training.policy.audio_llm_lora import add_lora, attention, matrices
from models.training.policy.grpo import GrpoSettings
from models.training.policy.sft import SftSettings

GPUS_GB = (24, 40, 48, 80, 141, 192)
"""Memory of common GPUs."""
_ROOM = 0.25
"""Beside the weights: for gradients in passing, workspaces and fragments."""
_CONTEXT_GB = 2.0
"""CUDA itself, kernels, and NCCL's buffers."""
_ENTRANCES = ("embed_audio", "multi_modal_projector", "audio_tower")
"""Where sound becomes as wide as the language model, the first that a network has."""


@dataclass(frozen=True, slots=True)
class Load:
    """What goes through the network of one GPU at once.

    Attributes:
        rows: under gradients.
        row_tokens: of each, its target included.
        target_tokens: scored positions of each.
        drawn_rows: completions that are written side by side, 0 for SFT.
    """

    rows: int
    row_tokens: int
    target_tokens: int
    drawn_rows: int = 0


@dataclass(frozen=True, slots=True)
class Paper:
    """What was worked out.

    Attributes:
        network: the class.
        parameters: of the whole network, by part.
        trainable: how many numbers learn.
        matrices: in how many matrices.
        layers: attention layers that learn.
        hidden: width of the language model.
        vocabulary: how many tokens are scored.
        memory_gb: of one GPU, by use, in GB (10^9 bytes).
    """

    network: str
    parameters: dict[str, int]
    trainable: int
    matrices: int
    layers: int
    hidden: int
    vocabulary: int
    memory_gb: dict[str, float]

    @property
    def needed_gb(self) -> float:
        """All together, with room to work in."""
        rest = sum(value for use, value in self.memory_gb.items() if use != "weights")
        return self.memory_gb["weights"] + (1.0 + _ROOM) * rest + _CONTEXT_GB


def lay_out(config: TrainingConfig, load: Load) -> Paper:
    """Make the network on paper and run its language model.

    Args:
        config: the model's.
        load: what goes through it at once.

    Raises:
        ValueError: when the sizes are not known, or do not fit together.
        MisplacedLoraError: when LoRA would stand where nothing may learn.
        ModelError: when transformers has no such class.
    """
    with torch.device("meta"):
        network = _network(config)
        add_lora(network, replace(config.lora, gradient_checkpointing=False))
    hidden = network.config.get_text_config().hidden_size
    if (entrance := _entrance(network)) != hidden:
        raise ValueError(f"sound enters {entrance} wide, and the language model is {hidden} wide")
    learning = matrices(network)
    head = network.get_output_embeddings() or network.get_decoder().lm_head
    return Paper(
        config.paper.network, _parts(network), sum(matrix.numel() for matrix in learning.values()), len(learning),
        len(attention(network)) // 4, hidden, head.weight.shape[0],
        _memory(network, config, load, head.weight.shape[0]),
    )  # fmt: skip


def sft_load(config: TrainingConfig, settings: SftSettings) -> Load:
    """What SFT puts through at once: a batch."""
    paper = config.paper
    return Load(settings.batch, paper.row_tokens + paper.target_tokens, paper.target_tokens)


def grpo_load(config: TrainingConfig, settings: GrpoSettings) -> Load:
    """What pair GRPO puts through at once: a whole group, which was drawn half by half."""
    tokens = config.paper.row_tokens + settings.max_tokens
    return Load(settings.completions, tokens, settings.max_tokens, math.ceil(settings.completions / 2))


def described(config: TrainingConfig, paper: Paper, load: Load, gpus: int) -> Iterator[str]:
    """The lines that a dry run prints."""
    parts = ", ".join(f"{name} {count / 1e9:.2f}" for name, count in paper.parameters.items())
    yield f"{config.name} on paper: {paper.network}, no weights read"
    yield f"parameters, billions: {sum(paper.parameters.values()) / 1e9:.2f} ({parts})"
    yield (
        f"trainable: {paper.trainable:,} in {paper.matrices} matrices, rank {config.lora.rank}, on q, k, v and o of "
        f"{paper.layers} layers; all else is frozen"
    )
    yield (
        f"shapes: {load.rows} rows of {load.row_tokens:,} tokens, {paper.hidden:,} wide (as wide as sound enters); "
        f"{load.target_tokens} scored positions a row over {paper.vocabulary:,} tokens"
    )
    yield f"memory of each of {gpus} GPUs, which all hold a whole copy, in GB:"
    for use, value in paper.memory_gb.items():
        yield f"  {use:<42}{value:8.2f}"
    yield f"  {'needed, with room to work in':<42}{paper.needed_gb:8.2f}"
    fitting = [str(size) for size in GPUS_GB if size >= paper.needed_gb]
    yield f"fits on GPUs of {', '.join(fitting)} GB" if fitting else "fits on no common GPU: make batches smaller"


def updates(config: TrainingConfig, settings: SftSettings, gpus: int) -> str:
    """How the rows of an epoch are shared.

    Raises:
        ValueError: when an update has fewer batches than there are GPUs.
    """
    passes, rest = divmod(settings.effective_batch, settings.batch * gpus)
    if passes < 1 or rest:
        raise ValueError(
            f"{settings.effective_batch} rows an update cannot be shared by {gpus} GPUs, {settings.batch} each"
        )
    count = settings.epochs * math.ceil(config.paper.train_rows / settings.effective_batch)
    return (
        f"updates: {count} for {config.paper.train_rows:,} rows and {settings.epochs} epochs; each of "
        f"{settings.effective_batch} rows, {passes} x {settings.batch} on each GPU"
    )


def _network(config: TrainingConfig) -> Any:
    network_class = transformers_class(config.paper.network)
    folder = config.options.get("dir")
    if folder is not None:
        about = network_class.config_class.from_pretrained(Path(folder), local_files_only=True)
    elif config.paper.architecture:
        about = network_class.config_class(**config.paper.architecture)
    else:
        raise ValueError(f"the sizes of {config.name} are in no file here: name a checkpoint, {config.name}:dir=FOLDER")
    return network_class._from_config(about, dtype=torch.bfloat16)


def _entrance(network: Any) -> int:
    for part in _ENTRANCES:
        inside = [m for name, m in network.named_modules() if f".{part}." in f".{name}" and hasattr(m, "out_features")]
        if inside:
            return int(inside[-1].out_features)
    raise ValueError(f"no way for sound into {type(network).__name__}")


def _parts(network: Any) -> dict[str, int]:
    """Parameters by part, LoRA's left out."""
    parts = {"language model": 0, "audio encoder": 0, "other": 0}
    for name, parameter in network.named_parameters():
        if ".lora_" in name:
            continue
        is_language = "language_model" in name or name.startswith("lm_head")
        part = "language model" if is_language else "audio encoder" if "audio_tower" in name else "other"
        parts[part] += parameter.numel()
    return parts


def _memory(network: Any, config: TrainingConfig, load: Load, vocabulary: int) -> dict[str, float]:
    text = network.config.get_text_config()
    layers = text.num_hidden_layers
    frozen = sum(p.numel() * p.element_size() for name, p in network.named_parameters() if ".lora_" not in name)
    learning = sum(matrix.numel() for matrix in matrices(network).values())
    all_kept = kept_bytes(network, load.rows, load.row_tokens)
    layer = all_kept / layers
    checkpointed = config.lora.gradient_checkpointing
    copies = 2 if load.drawn_rows else 1  # of the adapter: GRPO holds the earlier stage's as well
    uses = {
        "weights": float(frozen),
        "adapter, its gradients, AdamW (float32)": 4.0 * learning * (3 + copies),
        "what layers keep for the backward pass": _inputs_bytes(text, layers, load) if checkpointed else all_kept,
        "a layer computed again, and its gradients": 2.0 * layer if checkpointed else layer,
        # The head's bfloat16, and three times float32: scores, their logarithms, their gradients.
        "scores over the vocabulary": load.rows * load.target_tokens * vocabulary * (2.0 + 3 * 4.0),
    }
    if load.drawn_rows:
        uses["keys and values of completions"] = _cache_bytes(text, load)
    return {use: value / 1e9 for use, value in uses.items()}


def kept_bytes(network: Any, rows: int, tokens: int) -> float:
    """What autograd keeps of one pass of the language model without gradient checkpointing, in bytes.

    Scores of attention (rows x heads x tokens x tokens) are left out: fused kernels keep none, and meta tensors are not
    given to those.
    """
    text = network.config.get_text_config()
    device = network.device
    own = {parameter.untyped_storage()._cdata for parameter in network.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own and tensor.shape[-2:] != (tokens, tokens):
            kept[storage._cdata] = storage
        return tensor

    embedded = torch.zeros(rows, tokens, text.hidden_size, dtype=network.dtype, device=device)
    places = torch.zeros(rows, tokens, dtype=torch.long, device=device)
    mask = torch.ones(rows, 1, tokens, tokens, dtype=torch.bool, device=device)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = network.get_decoder()(inputs_embeds=embedded, attention_mask=mask, position_ids=places, use_cache=False)
    if out[0].shape[:2] != (rows, tokens):
        raise ValueError(f"{rows} rows of {tokens} tokens come out as {tuple(out[0].shape)}")
    return float(sum(storage.nbytes() for storage in kept.values()))


def _inputs_bytes(text: Any, layers: int, load: Load) -> float:
    """The input of each layer, in bfloat16, and of the last norm, in float32."""
    return float(load.rows * load.row_tokens * text.hidden_size * (2.0 * layers + 4.0))


def _cache_bytes(text: Any, load: Load) -> float:
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    heads = text.num_hidden_layers * text.num_key_value_heads
    return float(load.drawn_rows * load.row_tokens * 2.0 * heads * width * 2.0)
