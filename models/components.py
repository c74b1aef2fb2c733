"""Which ears and policies exist: one line each. A new one is a new file and a new line here.

Each value names a function ``load(store, threads)`` that is imported only when it is chosen, so that nothing heavy is
loaded for what is not used. A policy's may take a third argument, the options that stand behind its name:
``NAME:key=value,key=value``.
"""

from __future__ import annotations

import importlib
import inspect
from difflib import get_close_matches
from typing import Any, cast

from models.protocols import Policy, SpeakerEar

POLICIES = {
    "voxgate-mini": "models.policy_mini:load",
    "smollm2": "models.policy_smollm2:load",
    "smollm2-chat": "models.audio_llm.embedded_chat:load",
    "aura": "models.audio_llm.adaptations.aura:load",
    "tws": "models.audio_llm.adaptations.tws:load",
    "shanks": "models.audio_llm.adaptations.shanks:load",
    "qwen2-audio": "models.audio_llm.qwen2_audio:load",
    "qwen2.5-omni": "models.audio_llm.qwen25_omni:load",
    "qwen3-omni": "models.audio_llm.qwen3_omni:load",
    "audio-flamingo-3": "models.audio_llm.audio_flamingo3:load",
    "nemotron-omni": "models.audio_llm.nemotron_omni:load",
    "gpt-4o-audio": "models.audio_llm.server_load:load_gpt_4o_audio",
    "gemini": "models.audio_llm.server_load:load_gemini",
    "vllm": "models.audio_llm.server_load:load_vllm",
    "step-audio": "models.audio_llm.server_load:load_step_audio",
    "kimi-audio": "models.audio_llm.server_load:load_kimi_audio",
    "openai-compatible": "models.audio_llm.server_load:load_openai_compatible",
    "desta": "models.audio_llm.server_load:load_desta",
    "baichuan-omni": "models.audio_llm.server_load:load_baichuan_omni",
}
"""Proposers of actions."""

SPEAKERS = {
    "campplus-onnx": "models.speaker_campplus:load",
    "spkrec-ecapa-voxceleb": "models.speaker_speechbrain:load",
    "ge2e-resemblyzer": "models.speaker_resemblyzer:load",
}
"""Speaker embedders."""


class UnknownComponentError(Exception):
    """No ear or policy of that name. The message lists what there is."""


def load_policy(name: str, store: Any, threads: int) -> Policy:
    """Load a policy by name, with the options behind it ("qwen2-audio:dir=FOLDER,dtype=bfloat16").

    Raises:
        UnknownComponentError: when there is none of that name, or an option is wrong.
        ModelError: when a model is missing or damaged; names the cure.
    """
    head, _, options = name.partition(":")
    load = _load("policy", POLICIES, head)
    if not options:
        return cast(Policy, load(store, threads))
    if "options" not in inspect.signature(load).parameters:
        raise UnknownComponentError(f"policy {head!r} takes no options")
    return cast(Policy, load(store, threads, parse_options(options)))


def parse_options(text: str) -> dict[str, str]:
    """``key=value,key=value`` as a table. A value may hold anything but a comma.

    Raises:
        UnknownComponentError: when a part is no ``key=value``, or a key stands twice.
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if not (key and equals and value) or key in found:
            raise UnknownComponentError(f"{part!r} in {text!r}: options are key=value,key=value, each key once")
        found[key] = value
    return found


def load_speaker(name: str, store: Any, threads: int) -> SpeakerEar:
    """Load a speaker ear by name.

    Raises:
        UnknownComponentError: when there is none of that name.
    """
    return cast(SpeakerEar, _load("speaker model", SPEAKERS, name)(store, threads))


def _load(what: str, table: dict[str, str], name: str) -> Any:
    if name not in table:
        close = get_close_matches(name, table, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UnknownComponentError(f"no {what} {name!r}{hint} There are: {', '.join(sorted(table))}")
    module, function = table[name].split(":")
    return getattr(importlib.import_module(module), function)
