"""Qwen2.5-Omni, its thinker alone: the part that hears and writes (arXiv 2503.20215). The talker is not loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.audio_llm.conversation import Limits
from models.audio_llm.native import NativeChat
from models.audio_llm.native_policy import load_native
from models.audio_llm.policy import AudioLlmPolicy
from models.audio_llm.processors import sightless_processor, whisper_extractor

NAME = "qwen2.5-omni"
REPO = "Qwen/Qwen2.5-Omni-7B"


class Qwen25OmniChat(NativeChat):
    """Every sound is padded to the feature extractor's length (300 s): slow on a CPU, and the limit."""

    network_class = "Qwen2_5OmniThinkerForConditionalGeneration"
    terminators = ("<|im_end|>", "<|endoftext|>")
    mask_key = "feature_attention_mask"

    @property
    def limits(self) -> Limits:
        """The feature extractor's length; a message may hold several sounds."""
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
        NAME, REPO, Qwen25OmniChat,
        lambda folder: sightless_processor("Qwen2_5OmniProcessor", folder, whisper_extractor), threads, options,
    )  # fmt: skip
