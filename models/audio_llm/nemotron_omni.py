"""Nemotron-3-Nano-Omni-30B-A3B-Reasoning: a Parakeet encoder before a hybrid of Mamba, attention and experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.audio_llm.conversation import Limits
from models.audio_llm.native import NativeChat
from models.audio_llm.native_policy import load_native
from models.audio_llm.policy import AudioLlmPolicy
from models.audio_llm.processors import parakeet_extractor, sightless_processor

NAME = "nemotron-omni"
REPO = "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-BF16"


class NemotronOmniChat(NativeChat):
    """Thinks before it acts unless its template is told not to."""

    network_class = "NemotronH_Omni_Reasoning_V3"
    terminators = ()
    mask_key = "input_features_mask"
    thinking = False

    @property
    def limits(self) -> Limits:
        """The encoder's positions: a message may hold several sounds."""
        config = self._network.config.audio_config
        frames = config.max_position_embeddings * config.subsampling_factor
        extractor = self._processor.feature_extractor
        return Limits(audio_max_s=frames * extractor.hop_length / extractor.sampling_rate)

    def encoder_tokens(self, frames: Any) -> Any:
        """12.5 tokens a second."""
        # The extractor's mask ends one frame before the encoder's (centred windows).
        return self._network.audio_tower._get_subsampling_output_length(frames + 1)

    def template_options(self) -> Mapping[str, object]:
        """Whether to think."""
        return {"enable_thinking": self.thinking}


class ThinkingNemotronOmniChat(NemotronOmniChat):
    """The same with its thinking on; what it thinks reaches no parser."""

    thinking = True


def load(store: object, threads: int, options: Mapping[str, str] | None = None) -> AudioLlmPolicy:
    """The policy on the checkpoint in the hub's cache or in a folder.

    Raises:
        OptionsError: for an unknown option.
        ModelError: when the model is not here, or does not load; names the cure.
    """
    return load_native(
        NAME, REPO, NemotronOmniChat,
        lambda folder: sightless_processor("NemotronH_Omni_Reasoning_V3Processor", folder, parakeet_extractor),
        threads, options, thinking=ThinkingNemotronOmniChat,
    )  # fmt: skip
