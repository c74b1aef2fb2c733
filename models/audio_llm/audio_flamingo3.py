"""Audio Flamingo 3: a Whisper-large encoder in windows of 30 s, before Qwen2.5-7B (arXiv 2507.08128).

One sound a conversation: its chat template has a single place for sound, in front of the words, however many sounds a
message holds. Its checkpoint asks for sampling, which is overruled here as for every class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.audio_llm.conversation import Limits
from models.audio_llm.native import NativeChat
from models.audio_llm.native_policy import load_native
from models.audio_llm.policy import AudioLlmPolicy
from models.audio_llm.processors import whole_processor

NAME = "audio-flamingo-3"
REPO = "nvidia/audio-flamingo-3-hf"


class AudioFlamingo3Chat(NativeChat):
    """Writes calls in square brackets of its own accord (VGBench, section 4.1); see ``models.audio_llm.dialects``."""

    network_class = "AudioFlamingo3ForConditionalGeneration"
    terminators = ("<|im_end|>", "<|endoftext|>")
    mask_key = "input_features_mask"

    @property
    def limits(self) -> Limits:
        """One sound of ten minutes."""
        return Limits(audio_max_s=float(self._processor.max_audio_len), audio_parts=1)

    def encoder_tokens(self, frames: Any) -> Any:
        """25 tokens a second, window by window."""
        return self._network.model.audio_tower._get_feat_extract_output_lengths(frames)[1]


def load(store: object, threads: int, options: Mapping[str, str] | None = None) -> AudioLlmPolicy:
    """The policy on the checkpoint in the hub's cache or in a folder.

    Raises:
        OptionsError: for an unknown option.
        ModelError: when the model is not here, or does not load; names the cure.
    """
    return load_native(
        NAME, REPO, AudioFlamingo3Chat, lambda folder: whole_processor("AudioFlamingo3Processor", folder), threads,
        options,
    )  # fmt: skip
