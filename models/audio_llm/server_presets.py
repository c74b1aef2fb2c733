"""The servers of the papers' models: what each is sent, what it takes, and what it costs.

Lengths and ids come from each model's own code: vLLM's model files, StepFun's client (``Step-Audio-R1``), the model
cards, and OpenAI's and Google's pages. Greedy decoding is asked for everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from models.audio_llm.conversation import Limits
from models.audio_llm.endpoint_costs import Prices
from models.audio_llm.server_chat import Habits

_INLINE_BYTES: Final = 20_000_000
_INLINE_AUDIO_S: Final = 440.0
"""16 kHz, 16 bits and base64 make 42.7 kB of a second; room is left for the text."""
_QWEN_STOPS: Final = [151645, 151643]
"""``<|im_end|>`` and ``<|endoftext|>``."""
_KIMI_STOPS: Final = [151644, 151645, 151667]
"""``[EOS]``, ``<|im_msg_end|>`` and ``<|im_kimia_text_eos|>``; without the last the text repeats its end."""
_STEP_STOPS: Final = [151665]
"""``<|EOT|>``."""


def _vllm(stop_token_ids: list[int], **more: Any) -> dict[str, Any]:
    """What vLLM is sent beside OpenAI's fields. Nothing is left to the model's ``generation_config.json``."""
    return {
        "top_k": 1,
        "top_p": 1.0,
        "repetition_penalty": 1.0,
        "seed": 0,
        "stop_token_ids": stop_token_ids,
        "skip_special_tokens": True,
        **more,
    }


@dataclass(frozen=True, slots=True)
class Preset:
    """A model behind a server.

    Attributes:
        model: its name at the server.
        base_url: where the server is, unless somebody says otherwise.
        keys: variables that may hold its key.
        needs_key: whether it needs one.
        more: fields of every request beside those of OpenAI's chat completions.
        limits: what it takes.
        habits: what it does and wants beyond the format.
        prices: what it costs, or None.
        timeout_s: how long a reply may take.
    """

    model: str
    base_url: str
    keys: tuple[str, ...]
    limits: Limits
    more: Mapping[str, Any] = field(default_factory=dict)
    habits: Habits = field(default_factory=Habits)
    needs_key: bool = False
    prices: Prices | None = None
    timeout_s: float = 30.0


_VLLM_URL: Final = "http://127.0.0.1:8000/v1"
_VLLM_KEYS: Final = ("VLLM_API_KEY",)

PRESETS: Final[Mapping[str, Preset]] = {
    "gpt-4o-audio": Preset(
        "gpt-4o-audio-preview",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        Limits(_INLINE_AUDIO_S, _INLINE_AUDIO_S),
        {"modalities": ["text"], "seed": 0},
        Habits(needs_sound=True, request_max_bytes=_INLINE_BYTES),
        needs_key=True,
        prices=Prices(text_in=2.5, audio_in=40.0, out=10.0, audio_tokens_s=10.0),
    ),
    # The server's own limits decide beyond these: --max-model-len, --limit-mm-per-prompt.
    "vllm-qwen3-omni": Preset(
        "Qwen/Qwen3-Omni-30B-A3B-Instruct", _VLLM_URL, _VLLM_KEYS, Limits(600.0, 900.0, 8), _vllm(_QWEN_STOPS)
    ),
    # Its template writes one <sound> a message, and the encoder's windows end at ten minutes.
    "vllm-af3": Preset(
        "nvidia/audio-flamingo-3-hf", _VLLM_URL, _VLLM_KEYS, Limits(600.0, 600.0, 1), _vllm(_QWEN_STOPS)
    ),
    # The template of the server leaves a system message out.
    "vllm-kimi-audio": Preset(
        "moonshotai/Kimi-Audio-7B-Instruct",
        _VLLM_URL,
        _VLLM_KEYS,
        Limits(30.0, 30.0, 1, system_role=False),
        _vllm(_KIMI_STOPS),
        Habits(terminators=("<|im_msg_end|>", "<|im_kimia_text_eos|>", "[EOS]"), needs_sound=True),
    ),
    "step-audio-r1.1": Preset(
        "Step-Audio-R1.1",
        "http://127.0.0.1:9999/v1",
        ("STEPFUN_API_KEY",),
        Limits(25.0, 600.0),
        _vllm(_STEP_STOPS, skip_special_tokens=False, add_generation_prompt=True, continue_final_message=False),
        Habits(opens_thinking=True, terminators=("<|EOT|>",)),
        timeout_s=180.0,
    ),
    # Any other model and server: OpenAI's fields alone.
    "openai-compatible": Preset("", "", ("OPENAI_COMPATIBLE_API_KEY",), Limits(600.0, 900.0)),
}
"""By name."""

GEMINI: Final = Preset(
    "gemini-2.5-flash",
    "https://generativelanguage.googleapis.com/v1beta",
    ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    Limits(_INLINE_AUDIO_S, _INLINE_AUDIO_S),
    habits=Habits(request_max_bytes=_INLINE_BYTES),
    needs_key=True,
    prices=Prices(text_in=0.3, audio_in=1.0, out=2.5),
)
"""Gemini's REST interface."""
