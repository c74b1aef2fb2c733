"""Audio language models that run elsewhere, by name: behind a server, or in a process of their own.

``load_…`` are the registry's functions (``models/components.py``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from models.audio_llm.contract import ActionContract, Told
from models.audio_llm.conversation import AudioChat, BackendError, Limits
from models.audio_llm.dialects import DIALECTS
from models.audio_llm.options import Options, OptionsError
from models.audio_llm.policy import ACTION_TOKENS, ANSWER_TOKENS, AudioLlmPolicy
from models.audio_llm.remote_workers import baichuan_omni, desta, echo
from models.audio_llm.server_options import gemini_chat, openai_chat, vllm_chat
from models.audio_llm.subprocess_options import worker_chat
from models.store_errors import ModelError, ModelFault

THINKING_TOKENS: Final = 4096
"""How much longer a reply may be where the model always thinks first."""

_HEARS_30_S: Final = Limits(30.0)
"""Whisper's encoder; longer sound is given in several parts."""
_THINKERS: Final = {"step-audio"}

CHATS: Final[Mapping[str, Callable[[Options, Mapping[str, str]], AudioChat]]] = {
    "gpt-4o-audio": partial(openai_chat, "gpt-4o-audio"),
    "openai-compatible": partial(openai_chat, "openai-compatible"),
    "vllm": vllm_chat,
    "kimi-audio": partial(openai_chat, "vllm-kimi-audio"),
    "step-audio": partial(openai_chat, "step-audio-r1.1"),
    "gemini": gemini_chat,
    "desta": partial(worker_chat, "desta", desta.MODEL, _HEARS_30_S, "VOICEGATE_DESTA_PYTHON"),
    "baichuan-omni": partial(
        worker_chat, "baichuan_omni", baichuan_omni.MODEL, _HEARS_30_S, "VOICEGATE_BAICHUAN_PYTHON"
    ),
    "echo": partial(worker_chat, "echo", echo.MODEL, Limits(600.0), "VOICEGATE_ECHO_PYTHON"),
}
"""By name."""


def chat_from_options(name: str, options: Mapping[str, str], environ: Mapping[str, str] | None = None) -> AudioChat:
    """A chat that runs elsewhere. Nothing is sent or started yet.

    Args:
        name: one of ``CHATS``.
        options: see docs/audio-llm-servers.md.
        environ: where keys are; None takes this process's environment.

    Raises:
        OptionsError: when there is no such chat, option or value.
        BackendError: NO_KEY when a key is needed and the environment holds none.
    """
    given = Options(name, options)
    chat = _chat(name, given, environ)
    given.end()
    return chat


def policy_from_options(
    name: str, options: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None
) -> AudioLlmPolicy:
    """The same as a policy, with the options that every audio language model's policy has.

    Raises:
        OptionsError: when there is no such chat, option or value.
        ModelError: when a key is needed and the environment holds none.
    """
    given = Options(name, options or {})
    try:
        chat = _chat(name, given, environ)
    except BackendError as error:
        raise ModelError(ModelFault.MISSING, f"{name}: {error.detail}", "Set it before you start") from error
    thought = THINKING_TOKENS if name in _THINKERS else 0
    policy = AudioLlmPolicy(
        chat,
        ActionContract(Told(given.choice("told", Told, Told.VERDICTS))),
        dialects=given.choices("dialects", DIALECTS),
        action_tokens=given.count("tokens", ACTION_TOKENS + thought),
        answer_tokens=ANSWER_TOKENS + thought,
    )
    given.end()
    return policy


def _chat(name: str, given: Options, environ: Mapping[str, str] | None) -> AudioChat:
    if name not in CHATS:
        raise OptionsError(f"no chat {name!r}. There are: {', '.join(sorted(CHATS))}")
    return CHATS[name](given, os.environ if environ is None else environ)


def _load(name: str, store: object, threads: int, options: Mapping[str, str] | None = None) -> AudioLlmPolicy:
    return policy_from_options(name, options)


load_gpt_4o_audio = partial(_load, "gpt-4o-audio")
load_openai_compatible = partial(_load, "openai-compatible")
load_vllm = partial(_load, "vllm")
load_kimi_audio = partial(_load, "kimi-audio")
load_step_audio = partial(_load, "step-audio")
load_gemini = partial(_load, "gemini")
load_desta = partial(_load, "desta")
load_baichuan_omni = partial(_load, "baichuan-omni")
