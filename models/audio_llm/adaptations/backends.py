"""The policy that an adaptation stands on, from its options: ``aura:backend=qwen2-audio,dir=FOLDER``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from models.audio_llm import embedded_chat
from models.audio_llm.policy import AudioLlmPolicy
from models.components import UnknownComponentError, load_policy

if TYPE_CHECKING:
    from models.store import Store

EMBEDDED = "smollm2"
"""The embedded model as a chat: the policy of that name decides by examples and cannot be talked to."""


def load_backend(
    adaptation: str, store: Store, threads: int, options: Mapping[str, str] | None, *, listens: bool = False
) -> AudioLlmPolicy:
    """Load what an adaptation stands on.

    Args:
        adaptation: its name, for messages.
        store: where models are.
        threads: CPU threads.
        options: ``backend``, the embedded model where it is not named, and the backend's own options.
        listens: whether sound is heard before its words are known.

    Raises:
        UnknownComponentError: when there is no such backend, it is no chat, or an option is wrong.
        ModelError: when its model is missing or damaged; names the cure.
    """
    rest = dict(options or {})
    backend = rest.pop("backend", EMBEDDED)
    if backend in (EMBEDDED, embedded_chat.NAME):
        return embedded_chat.load(store, threads, rest, listens=listens)
    behind = ",".join(f"{key}={value}" for key, value in rest.items())
    policy = load_policy(f"{backend}:{behind}" if behind else backend, store, threads)
    if not isinstance(policy, AudioLlmPolicy):
        raise UnknownComponentError(f"{adaptation}: {backend!r} is no chat, so it cannot take steps")
    return policy
