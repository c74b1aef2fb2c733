"""Tiny random networks of the very classes that the audio LLM backends load, with tokenizer and processor made here.

A network of a few hundred kilobytes says nothing of its own accord. ``teach`` fits its output layer, in closed form, to
say certain texts after certain conversations; all below it stays random, so what it says still comes through the
class's own audio encoder, projector, attention and decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from models.audio_llm.contract import ActionContract
from models.audio_llm.conversation import Message
from models.audio_llm.native import NativeChat
from models.protocols import ModelId
from tools.catalogue import ToolCatalogue

WIDTH = 64
WINDOW_S = 4
"""The encoders' windows: 30 s in the real Qwen2-Audio and Audio Flamingo 3, 300 s in Qwen2.5-Omni's extractor."""
_MELS = 16
_CHATML = """{%- for message in messages -%}
{%- if loop.first and message['role'] != 'system' -%}<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif -%}
<|im_start|>{{ message['role'] }}
{% if message['content'] is string -%}{{ message['content'] }}
{%- else -%}
{%- for content in message['content'] -%}
{%- if content['type'] == 'audio' -%}AUDIO_PLACE{%- else -%}{{ content['text'] }}{%- endif -%}
{%- endfor -%}
{%- endif -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""
_CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@cache
def _texts() -> tuple[str, ...]:
    tools = ToolCatalogue.builtin(()).all()
    return (ActionContract().instruction(tools), "You are a helpful assistant.")


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread: networks this small lose more by sharing than they gain."""
    import torch
    import transformers

    transformers.AutoTokenizer  # noqa: B018  # what every class imports takes seconds: here, and not in the first test
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_tokenizer(marks: Mapping[str, str], controls: Sequence[str] = ()) -> Any:
    """A byte-level vocabulary learnt from the action contract.

    Args:
        marks: the processor's attributes of a tokenizer, each with its token ("audio_token": "<|AUDIO|>").
        controls: further control tokens.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=[*_CONTROLS, *controls, *dict.fromkeys(marks.values())],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts() * 3, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=dict(marks),
    )


@dataclass(frozen=True)
class Tiny:
    """One class at tiny size.

    Attributes:
        name: the policy's name in the registry.
        chat_class: the backend.
        tokenizer: its tokenizer.
        processor: its processor.
        config: its network's configuration.
    """

    name: str
    chat_class: type[NativeChat]
    tokenizer: Any
    processor: Any
    config: Any

    def network(self, seed: int = 0) -> Any:
        """A random network. Its weights are spread wider than at a training's start, so that inputs matter."""
        import torch
        import transformers

        torch.manual_seed(seed)
        network = getattr(transformers, self.chat_class.network_class)(self.config).eval()
        with torch.no_grad():
            for name, weight in network.named_parameters():
                if weight.dim() > 1 and "vision" not in name and "visual" not in name:
                    weight.mul_(4.0)
        return network

    def chat(self, seed: int = 0) -> NativeChat:
        """The backend on a random network."""
        return self.chat_class(self.network(seed), self.processor, ModelId(f"tiny-{self.name}", "0" * 64))


def _ids(tokenizer: Any, **names: str) -> dict[str, int]:
    return {key: tokenizer.convert_tokens_to_ids(token) for key, token in names.items()}


def _text_config(tokenizer: Any, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": WIDTH, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": len(tokenizer), "max_position_embeddings": 8192,
        "tie_word_embeddings": False, **more,
        **_ids(tokenizer, eos_token_id="<|im_end|>", pad_token_id="<|endoftext|>"),
    }  # fmt: skip


_ENCODER = {
    "num_mel_bins": _MELS, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 32, "d_model": 32,
    "max_source_positions": 50 * WINDOW_S,
}  # fmt: skip


def _extractor() -> Any:
    from transformers import WhisperFeatureExtractor

    return WhisperFeatureExtractor(feature_size=_MELS, chunk_length=WINDOW_S)


def qwen2_audio() -> Tiny:
    """Qwen2-Audio."""
    from transformers import Qwen2AudioConfig, Qwen2AudioProcessor

    from models.audio_llm.qwen2_audio import NAME, Qwen2AudioChat

    marks = {"audio_token": "<|AUDIO|>", "audio_bos_token": "<|audio_bos|>", "audio_eos_token": "<|audio_eos|>"}
    tokenizer = make_tokenizer(marks)
    processor = Qwen2AudioProcessor(_extractor(), tokenizer)
    config = Qwen2AudioConfig(
        audio_config={"model_type": "qwen2_audio_encoder", **_ENCODER},
        text_config={"model_type": "qwen2", **_text_config(tokenizer)},
        audio_token_index=tokenizer.convert_tokens_to_ids("<|AUDIO|>"),
    )
    return Tiny(NAME, Qwen2AudioChat, tokenizer, processor, config)


def audio_flamingo3() -> Tiny:
    """Audio Flamingo 3, whose template has one place for sound before the words, and which asks for sampling."""
    from transformers import AudioFlamingo3Config, AudioFlamingo3Processor

    from models.audio_llm.audio_flamingo3 import NAME, AudioFlamingo3Chat

    tokenizer = make_tokenizer({"audio_token": "<sound>"})
    template = _CHATML.replace(
        "{%- for content in message['content'] -%}",
        "{%- if message['content'] | selectattr('type', 'equalto', 'audio') | list -%}<sound>{%- endif -%}"
        "{%- for content in message['content'] -%}",
    ).replace("AUDIO_PLACE", "")
    processor = AudioFlamingo3Processor(_extractor(), tokenizer, chat_template=template)
    config = AudioFlamingo3Config(
        audio_config={
            "model_type": "audioflamingo3_encoder", "num_mel_bins": _MELS, "num_hidden_layers": 1,
            "num_attention_heads": 2, "intermediate_size": 32, "hidden_size": 32,
            "max_source_positions": 50 * WINDOW_S,
        },
        text_config={"model_type": "qwen2", **_text_config(tokenizer)},
        audio_token_id=tokenizer.convert_tokens_to_ids("<sound>"),
    )  # fmt: skip
    return Tiny(NAME, AudioFlamingo3Chat, tokenizer, processor, config)


_OMNI_MARKS = {
    "image_token": "<|image_pad|>", "audio_token": "<|audio_pad|>", "video_token": "<|video_pad|>",
    "vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>",
    "audio_bos_token": "<|audio_start|>", "audio_eos_token": "<|audio_end|>",
}  # fmt: skip
_OMNI_PLACE = "<|audio_start|><|audio_pad|><|audio_end|>"


def qwen25_omni() -> Tiny:
    """The thinker of Qwen2.5-Omni."""
    from transformers import Qwen2_5OmniThinkerConfig

    from models.audio_llm.processors import without_eyes
    from models.audio_llm.qwen25_omni import NAME, Qwen25OmniChat

    tokenizer = make_tokenizer(_OMNI_MARKS)
    template = _CHATML.replace("AUDIO_PLACE", _OMNI_PLACE)
    processor = without_eyes("Qwen2_5OmniProcessor", tokenizer, _extractor(), template)
    config = Qwen2_5OmniThinkerConfig(
        audio_config={"n_window": 100, "output_dim": WIDTH, **_ENCODER},
        vision_config={
            "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": WIDTH,
            "fullatt_block_indexes": [0],
        },
        text_config=_text_config(
            tokenizer, rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
        ),
        audio_end_token_id=tokenizer.convert_tokens_to_ids("<|audio_end|>"),
        **_ids(
            tokenizer, audio_token_index="<|audio_pad|>", image_token_index="<|image_pad|>",
            video_token_index="<|video_pad|>", audio_start_token_id="<|audio_start|>",
        ),
    )  # fmt: skip
    config.vision_start_token_id = tokenizer.convert_tokens_to_ids("<|vision_start|>")
    return Tiny(NAME, Qwen25OmniChat, tokenizer, processor, config)


def qwen3_omni() -> Tiny:
    """The thinker of Qwen3-Omni, with four experts."""
    from transformers import Qwen3OmniMoeThinkerConfig

    from models.audio_llm.processors import without_eyes
    from models.audio_llm.qwen3_omni import NAME, Qwen3OmniChat

    tokenizer = make_tokenizer(_OMNI_MARKS)
    template = _CHATML.replace("AUDIO_PLACE", _OMNI_PLACE)
    processor = without_eyes("Qwen3OmniMoeProcessor", tokenizer, _extractor(), template)
    config = Qwen3OmniMoeThinkerConfig(
        audio_config={
            "n_window": 50, "n_window_infer": 800, "conv_chunksize": 500, "output_dim": WIDTH,
            "downsample_hidden_size": 16, **_ENCODER,
        },
        vision_config={
            "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": WIDTH,
            "deepstack_visual_indexes": [0], "num_position_embeddings": 16,
        },
        text_config=_text_config(
            tokenizer, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
            rope_parameters={
                "rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3], "mrope_interleaved": True,
            },
        ),
        **_ids(
            tokenizer, audio_token_id="<|audio_pad|>", image_token_id="<|image_pad|>", video_token_id="<|video_pad|>",
            audio_start_token_id="<|audio_start|>",
        ),
    )  # fmt: skip
    config.vision_start_token_id = tokenizer.convert_tokens_to_ids("<|vision_start|>")
    return Tiny(NAME, Qwen3OmniChat, tokenizer, processor, config)


def nemotron_omni() -> Tiny:
    """Nemotron-3-Nano-Omni: one Mamba, one attention and one expert layer."""
    from transformers import NemotronH_Omni_Reasoning_V3_Config, ParakeetFeatureExtractor

    from models.audio_llm.nemotron_omni import NAME, NemotronOmniChat
    from models.audio_llm.processors import without_eyes

    marks = {"image_token": "<image>", "video_token": "<video>", "audio_token": "<so_embedding>"}
    tokenizer = make_tokenizer(marks, ["<so_start>", "<so_end>", "<img>", "</img>"])
    thought = "{%- if enable_thinking -%}<think>\n{% else -%}<think></think>{% endif -%}"
    template = _CHATML.replace("AUDIO_PLACE", "<so_embedding>").replace(
        "<|im_start|>assistant\n{% endif -%}", f"<|im_start|>assistant\n{thought}{{% endif -%}}"
    )
    extractor = ParakeetFeatureExtractor(feature_size=_MELS)
    processor = without_eyes("NemotronH_Omni_Reasoning_V3Processor", tokenizer, extractor, template)
    config = NemotronH_Omni_Reasoning_V3_Config(
        text_config=_text_config(
            tokenizer, layers_block_type=["mamba", "attention", "moe"], mamba_num_heads=4, mamba_head_dim=16,
            ssm_state_size=8, n_groups=1, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
            moe_shared_expert_intermediate_size=16, head_dim=16,
        ),
        audio_config={
            "num_mel_bins": _MELS, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 2, "subsampling_conv_channels": 8, "projection_hidden_size": 32,
            "projection_bias": False,
        },
        vision_config={
            "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
            "video_temporal_patch_size": 2,
        },
        vision_hidden_size=32, projector_hidden_size=32,
        **_ids(tokenizer, image_token_id="<image>", audio_token_id="<so_embedding>", video_token_id="<video>"),
    )  # fmt: skip
    return Tiny(NAME, NemotronOmniChat, tokenizer, processor, config)


FAMILIES: Mapping[str, Callable[[], Tiny]] = {
    "qwen2-audio": cache(qwen2_audio),
    "qwen2.5-omni": cache(qwen25_omni),
    "qwen3-omni": cache(qwen3_omni),
    "audio-flamingo-3": cache(audio_flamingo3),
    "nemotron-omni": cache(nemotron_omni),
}
"""Every native class, made once a process."""


def output_layer(network: Any) -> Any:
    """The layer that scores tokens."""
    return network.get_output_embeddings() or network.language_model.lm_head


def teach(chat: NativeChat, lessons: Sequence[tuple[Sequence[Message], str]]) -> None:
    """Fit the output layer so that each conversation is answered with its text, and then ended.

    Least squares over the hidden states at every token of every text. Raises ``AssertionError`` where two lessons
    cannot be told apart, as when sound does not reach the network.
    """
    import torch

    network, tokenizer = chat._network, chat._tokenizer
    head = output_layer(network)
    states, targets = [], []
    for messages, text in lessons:
        sounds = [sound for message in messages for sound in message.sounds]
        inputs = chat._inputs(chat._prompt(messages), sounds)
        said = [*tokenizer(text, add_special_tokens=False)["input_ids"], chat._ends[0]]
        start = inputs["input_ids"].shape[1]
        inputs["input_ids"] = torch.cat([inputs["input_ids"], torch.tensor([said])], dim=1)
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        seen: list[Any] = []
        hook = head.register_forward_pre_hook(lambda module, args, seen=seen: seen.append(args[0]))
        with torch.inference_mode():
            network(**inputs)
        hook.remove()
        states.append(seen[0][0, start - 1 : start - 1 + len(said)].double())
        targets += said
    hidden = torch.cat(states).clone()
    wanted = torch.zeros(len(targets), head.weight.shape[0], dtype=torch.float64)
    wanted[range(len(targets)), targets] = 10.0
    weight = torch.linalg.lstsq(hidden, wanted, driver="gelsd").solution.T
    assert (hidden @ weight.T).argmax(-1).tolist() == targets, "the lessons sound alike to the network"
    with torch.no_grad():
        head.weight.copy_(weight.to(head.weight.dtype))


_WHOLE_MODELS = {"qwen2.5-omni": "qwen2_5_omni", "qwen3-omni": "qwen3_omni_moe"}


def save_checkpoint(tiny: Tiny, folder: Path, seed: int = 0) -> None:
    """Write a checkpoint as it lies on the hub. The omni classes' lies inside of the whole model's."""
    import json

    from safetensors.torch import load_file, save_file

    tiny.network(seed).save_pretrained(folder)
    tiny.tokenizer.save_pretrained(folder)
    tiny.processor.feature_extractor.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(tiny.processor.chat_template, encoding="utf-8")
    if tiny.name not in _WHOLE_MODELS:
        return
    thinker = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    whole = {"model_type": _WHOLE_MODELS[tiny.name], "thinker_config": thinker}
    (folder / "config.json").write_text(json.dumps(whole), encoding="utf-8")
    weights = {f"thinker.{name}": weight for name, weight in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
