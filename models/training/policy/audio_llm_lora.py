"""LoRA on the attention of an audio LLM's language model, and nowhere else; on disk, and merged into a network.

VGBench, section 5.1: rank 32 and alpha 64 on q, k, v and o, with audio encoder and aligner frozen. Hu et al., "LoRA:
Low-Rank Adaptation of Large Language Models", ICLR 2022.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.mini_adapter import ADAPTER_FILE, SETTINGS_FILE

if TYPE_CHECKING:
    import torch

LEARNING = "learning"
"""PEFT's name of the adapter that learns."""
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
_ATTENTION_LAYERS = ("attention", "full_attention")
"""As hybrid networks name them; their "linear_attention" is Mamba."""
_ELSEWHERE = r".*(audio_tower|embed_audio|multi_modal_projector|visual|vision|talker|code2wav).*"
"""Parts that are no language model: their attention has projections of the same names."""


class MisplacedLoraError(ValueError):
    """Matrices that would learn where nothing may, or are missing where they belong. The message names one."""


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """How much of the attention learns.

    Attributes:
        rank, alpha, dropout: LoRA's.
        gradient_checkpointing: whether the language model's layers are computed again for the backward pass instead of
            kept: a third more work, a tenth of the memory.
    """

    rank: int = 32
    alpha: int = 64
    dropout: float = 0.05
    gradient_checkpointing: bool = True


@dataclass(frozen=True, slots=True)
class Base:
    """What an adapter belongs to.

    Attributes:
        name: policy and checkpoint.
        sha256: of the checkpoint's files.
        told: what the model was told beside the sound when it learnt.
    """

    name: str
    sha256: str
    told: str


def attention(network: Any) -> list[str]:
    """The projections of the language model's attention, by name.

    Raises:
        MisplacedLoraError: when they are not four for each of its attention layers.
    """
    decoder = network.get_decoder()
    inside = {id(module) for module in decoder.modules()}
    names = [
        name
        for name, module in network.named_modules()
        if id(module) in inside and name.rpartition(".")[2] in _PROJECTIONS
    ]
    text = network.config.get_text_config()
    kinds = getattr(text, "layers_block_type", None)
    layers = text.num_hidden_layers if kinds is None else sum(kind in _ATTENTION_LAYERS for kind in kinds)
    if len(names) != 4 * layers:
        raise MisplacedLoraError(f"{len(names)} projections of attention in {layers} layers of the language model")
    return names


def add_lora(network: Any, settings: LoraSettings) -> Any:
    """Put LoRA into a network; all else is frozen.

    The modules are named in full, and other parts excluded as well: for networks with experts PEFT reduces a pattern to
    the last parts of names, which fit the audio encoder's attention too.

    Returns:
        PEFT's wrapper. The network itself carries the adapter.

    Raises:
        MisplacedLoraError: when a matrix stands elsewhere.
    """
    from peft import LoraConfig, get_peft_model

    network.requires_grad_(False)
    places = attention(network)
    config = LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, lora_dropout=settings.dropout, bias="none", target_modules=places,
        exclude_modules=_ELSEWHERE,
    )  # fmt: skip
    wrapped = get_peft_model(network, config, adapter_name=LEARNING)
    check_places(network, places)
    if settings.gradient_checkpointing:
        network.activation_checkpointing_enable()
    return wrapped


def check_places(network: Any, places: Sequence[str]) -> None:
    """Make sure that LoRA's matrices, and nothing else, learn, and that they stand where they should.

    Raises:
        MisplacedLoraError: naming the first that does not.
    """
    wanted = {f"{place}.lora_{half}.{LEARNING}.weight" for place in places for half in "AB"}
    learns = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    present = {name for name, _ in network.named_parameters() if ".lora_" in name}
    if wrong := sorted((learns | present) - wanted):
        raise MisplacedLoraError(f"{wrong[0]} would learn, and {len(wrong) - 1} more outside of the language model")
    if lacking := sorted(wanted - learns):
        raise MisplacedLoraError(f"{lacking[0]} does not learn, nor do {len(lacking) - 1} more")


def matrices(network: Any, adapter: str = LEARNING) -> dict[str, torch.nn.Parameter]:
    """LoRA's matrices by the name of the weight that they change, with ``.lora_A`` or ``.lora_B``."""
    ending = f".{adapter}.weight"
    return {
        name.removesuffix(ending): parameter
        for name, parameter in network.named_parameters()
        if ".lora_" in name and name.endswith(ending)
    }


def save_lora(folder: Path, network: Any, base: Base, settings: LoraSettings) -> None:
    """Write the adapter as float32 safetensors, and what it belongs to."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().float().cpu().contiguous() for name, value in matrices(network).items()}
    partial = folder / f"{ADAPTER_FILE}.part"
    save_file(tensors, str(partial))
    partial.replace(folder / ADAPTER_FILE)
    about = {
        "base": base.name, "sha256": base.sha256, "told": base.told, "rank": settings.rank, "alpha": settings.alpha,
    }  # fmt: skip
    (folder / SETTINGS_FILE).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def read_lora(folder: Path, base: Base) -> tuple[dict[str, torch.Tensor], float]:
    """Read what ``save_lora`` wrote.

    Returns:
        The matrices by name, and alpha / rank.

    Raises:
        OSError: when a file is missing.
        ValueError: when it belongs to another base model, was told something else, or is no adapter of an audio LLM.
    """
    from safetensors.torch import load_file

    about = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
    for key, wanted in (("sha256", base.sha256), ("told", base.told)):
        if about.get(key) != wanted:
            raise ValueError(
                f"{folder} holds an adapter for {about.get('base')} ({key} {about.get(key)}), this is {base.name} "
                f"({key} {wanted})"
            )
    return load_file(str(folder / ADAPTER_FILE)), float(about["alpha"]) / float(about["rank"])


def copy_lora(network: Any, tensors: Mapping[str, torch.Tensor], adapter: str = LEARNING) -> None:
    """Set an adapter's matrices.

    Raises:
        ValueError: when names or shapes are others than this network's.
    """
    import torch

    own = matrices(network, adapter)
    shapes = {name: tuple(value.shape) for name, value in own.items()}
    if shapes != {name: tuple(value.shape) for name, value in tensors.items()}:
        raise ValueError("the adapter holds other matrices than this network has")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(tensors[name])


def merge_lora(network: Any, folder: Path, base: Base) -> None:
    """Add an adapter to the weights of a network without LoRA, to serve it. Needs no PEFT.

    Each sum is taken in float32 and rounded to the network's precision once.

    Raises:
        OSError, ValueError: as ``read_lora``; also when the network has no such weights.
    """
    import torch

    tensors, scale = read_lora(folder, base)
    weights = dict(network.named_parameters())
    with torch.no_grad():
        for name in sorted({name.rpartition(".")[0] for name in tensors}):
            weight = weights.get(f"{name}.weight")
            down, up = tensors.get(f"{name}.lora_A"), tensors.get(f"{name}.lora_B")
            if weight is None or down is None or up is None:
                raise ValueError(f"{folder} changes {name}, and this network cannot be changed there")
            change = scale * (up.to(weight.device) @ down.to(weight.device))
            weight.copy_(weight.float() + change)
