"""Which ears and policies exist: one line each. A new one is a new file and a new line here.

Each value names a function ``load(store, threads)`` that is imported only when it is chosen, so that nothing heavy is
loaded for what is not used.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import Any, cast

from models.protocols import Policy, SpeakerEar

POLICIES = {
    "smollm2": "models.policy_smollm2:load",
}
"""Proposers of actions."""

SPEAKERS = {
    "campplus-onnx": "models.speaker_campplus:load",
    "spkrec-ecapa-voxceleb": "models.speaker_speechbrain:load",
}
"""Speaker embedders."""


class UnknownComponentError(Exception):
    """No ear or policy of that name. The message lists what there is."""


def load_policy(name: str, store: Any, threads: int) -> Policy:
    """Load a policy by name.

    Raises:
        UnknownComponentError: when there is none of that name.
    """
    return cast(Policy, _load("policy", POLICIES, name)(store, threads))


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
