"""Qwen2-Audio: a Whisper-large encoder in 30 s windows before a 7B language model (arXiv 2407.10759)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.audio_llm.conversation import Limits
from models.audio_llm.native import NativeChat
from models.audio_llm.native_policy import load_native
from models.audio_llm.policy import AudioLlmPolicy
from models.audio_llm.processors import whole_processor

NAME = "qwen2-audio"
REPO = "Qwen/Qwen2-Audio-7B-Instruct"


class Qwen2AudioChat(NativeChat):
    """Its encoder hears 30 s; what is longer its own processor would cut without a word."""

    network_class = "Qwen2AudioForConditionalGeneration"
    terminators = ("<|im_end|>", "<|endoftext|>")
    mask_key = "feature_attention_mask"

    @property
    def limits(self) -> Limits:
        """The encoder's window; a message may hold several sounds."""
        return Limits(audio_max_s=float(self._processor.feature_extractor.chunk_length))

    def encoder_tokens(self, frames: Any) -> Any:
        """25 tokens a second."""
        return self._network.model.audio_tower._get_feat_extract_output_lengths(frames)[1]


def load(store: object, threads: int, options: Mapping[str, str] | None = None) -> AudioLlmPolicy:
    """The policy on the checkpoint in the hub's cache or in a folder.

    Raises:
        OptionsError: for an unknown option.
        ModelError: when the model is not here, or does not load; names the cure.
    """
    return load_native(
        NAME, REPO, Qwen2AudioChat, lambda folder: whole_processor("Qwen2AudioProcessor", folder), threads, options
    )
