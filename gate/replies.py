"""Short answers, read the same way wherever the gate asks something: whose they are, and whether they refuse."""

from __future__ import annotations

from collections.abc import Sequence

from gate.evidence import DistanceVerdict, Evidence, Modality, SpeakerVerdict, Word
from gate.grounding import normal_form
from gate.spoken import FILLERS

_SMALL_WORDS = FILLERS | {"oh", "ok", "okay", "well", "please", "just", "it", "that", "thanks", "you", "actually"}
_REFUSALS = frozenset(
    tuple(phrase.split())
    for phrase in (
        "no", "nope", "nah", "no no", "cancel", "stop", "abort", "nothing", "nobody", "no one", "no 1", "none",
        "never mind", "nevermind", "forget", "leave", "drop", "dont", "do not", "dont bother", "i dont know",
        "dont know", "no idea", "not sure", "im not sure", "no never mind", "no cancel", "no stop", "no forget",
    )
)  # fmt: skip
"""Whole answers in English that give none; "no 1" is how "no one" reads once numbers are in digits."""


def is_from_owner(evidence: Evidence) -> bool:
    """Whether the owner said it near by, or the operator typed it. The gate's own voice answers nothing."""
    if evidence.modality is Modality.TEXT:
        return True
    return (
        evidence.speaker.verdict is SpeakerVerdict.OWNER
        and evidence.proximity.verdict is DistanceVerdict.NEAR
        and not evidence.own_voice
    )


def bare(words: Sequence[Word]) -> tuple[str, ...]:
    """The words in comparable form, without those that carry nothing in a short answer."""
    return tuple(text for word in words for text in normal_form(word.text) if text not in _SMALL_WORDS)


def is_refusal(words: Sequence[Word]) -> bool:
    """Whether the words as a whole call something off ("no", "never mind")."""
    return bare(words) in _REFUSALS
