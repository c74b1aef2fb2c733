"""Qwen3-Omni-30B-A3B, its thinker alone (arXiv 2509.17765): the backbone of VGBench's adaptations and of VoxGate."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from models.audio_llm.conversation import Limits
from models.audio_llm.native import NativeChat
from models.audio_llm.native_policy import load_native
from models.audio_llm.policy import AudioLlmPolicy
from models.audio_llm.processors import sightless_processor, whisper_extractor

NAME = "qwen3-omni"
REPO = "Qwen/Qwen3-Omni-30B-A3B-Instruct"
_LONGEST_S = 40 * 60.0
"""As its report tests it; the context may end before."""


class Qwen3OmniChat(NativeChat):
    """Sound of any length without padding, at 13 tokens a second."""

    network_class = "Qwen3OmniMoeThinkerForConditionalGeneration"
    terminators = ("<|im_end|>", "<|endoftext|>")
    mask_key = "feature_attention_mask"

    @property
    def limits(self) -> Limits:
        """Forty minutes in all; a message may hold several sounds."""
        return Limits(audio_max_s=_LONGEST_S, audio_total_s=_LONGEST_S)

    def encoder_tokens(self, frames: Any) -> Any:
        """13 tokens for each second of 100 frames, and what is left over."""
        lengths: Any = inspect.getmodule(type(self._network))
        return lengths._get_feat_extract_output_lengths(frames, self._network.config.audio_config.n_window)


def load(store: object, threads: int, options: Mapping[str, str] | None = None) -> AudioLlmPolicy:
    """The policy on the checkpoint in the hub's cache or in a folder.

    Raises:
        OptionsError: for an unknown option.
        ModelError: when the model is not here, or does not load; names the cure.
    """
    return load_native(
        NAME, REPO, Qwen3OmniChat,
        lambda folder: sightless_processor("Qwen3OmniMoeProcessor", folder, whisper_extractor), threads, options,
    )  # fmt: skip
