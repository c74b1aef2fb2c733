"""Confirmation of the most consequential calls: "Transfer 60 dollars to Ben, yes?"

A Tool decision for a risky tool becomes a question. The question is bound to the exact arguments, is short-lived and is
used up by its answer; only the owner, near by, can answer it. A bystander's "yes" or "no" changes nothing, and neither
does noise. Anything else that the owner says ends it unanswered, and nothing is executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from gate.actions import ActionKind
from gate.catalogue import Risk, ToolCall
from gate.decision import Decision
from gate.evidence import DistanceVerdict, Evidence, Modality, SpeakerVerdict, Word
from gate.grounding import normal_form
from gate.reasons import Reason
from gate.replies import bare, is_from_owner, is_refusal
from gate.span import SAMPLE_RATE_HZ

_YES = frozenset(
    tuple(phrase.split())
    for phrase in (
        "yes", "yeah", "yep", "yup", "sure", "correct", "right", "thats right", "confirm", "confirmed", "go ahead",
        "go ahead with", "go ahead and do", "do", "absolutely", "exactly", "of course", "affirmative",
    )
)  # fmt: skip
"""Phrases that confirm, without small words ("do" is "do it", "please do"). One or more of them make a whole answer."""
_LONGEST_YES = max(map(len, _YES))
_BETWEEN = frozenset({"to", "the", "a", "an", "my"})
"""What may stand between the words of the question when it is repeated."""


class Reply(StrEnum):
    """What an answer to a confirmation says."""

    YES = "yes"
    NO = "no"
    UNSURE_YES = "unsure_yes"
    """A near "yes" of somebody who may be the owner. It confirms nothing; a longer answer is asked for."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ConfirmSettings:
    """Which calls are confirmed, and for how long an answer counts.

    Attributes:
        risks: the risk classes that are confirmed.
        life_samples: how long the question stays open after the turn it asks about.
    """

    risks: frozenset[Risk] = field(default_factory=frozenset)
    life_samples: int = 8 * SAMPLE_RATE_HZ

    def __post_init__(self) -> None:
        if self.life_samples <= 0:
            raise ValueError(f"life_samples must be > 0, not {self.life_samples}")


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A confirmation that waits for its answer.

    Attributes:
        call: exactly what a "yes" executes.
        summary: the call as a sentence, as it was asked about.
        evidence: the evidence that would have licensed it at once.
        expires_sample: the stream position from which it is void.
    """

    call: ToolCall
    evidence: Evidence
    expires_sample: int
    summary: str = ""


def ask(
    decision: Decision, risk: Risk, summary: str, now_sample: int, settings: ConfirmSettings
) -> tuple[Decision, OpenQuestion | None]:
    """Turn a Tool decision into a question where its risk demands one.

    Args:
        decision: what ``decide`` said.
        risk: the tool's risk.
        summary: the call as a sentence ("transfer 60 dollars to Ben").
        now_sample: the stream position.
        settings: which calls are confirmed.

    Returns:
        The decision as it is carried out, and the open question; the decision unchanged and None when nothing is asked.
        What the operator typed is never asked about: it can be read before it is sent.
    """
    if decision.action is not ActionKind.TOOL or risk not in settings.risks:
        return decision, None
    if decision.evidence.modality is Modality.TEXT:
        return decision, None
    assert decision.call is not None, "a Tool decision names its call"
    text = f"{summary[:1].upper()}{summary[1:].rstrip('.')}, yes?"
    asked = replace(decision, action=ActionKind.PARDON, reason=Reason.CONFIRM, text=text, grant=None)
    return asked, OpenQuestion(decision.call, decision.evidence, now_sample + settings.life_samples, summary)


def expire(question: OpenQuestion | None, now_sample: int) -> OpenQuestion | None:
    """The question if it is still open at ``now_sample``."""
    return question if question is not None and now_sample < question.expires_sample else None


def read(evidence: Evidence, summary: str = "") -> Reply | None:
    """What a turn answers to the open question.

    A "yes" executes, so it needs the owner's voice for certain. A "no" prevents, so doubt about the voice does not stop
    it; another person's voice does. A "yes" may repeat the question's own words ("yes, send Ben sixty dollars"); with
    any other word or number it is something else.

    Args:
        evidence: the turn.
        summary: what was asked about, as a sentence.

    Returns:
        The reply, or None when the turn is somebody else's, far away or the gate's own voice, and so answers nothing.
    """
    if not is_from_owner(evidence):
        unsure = evidence.speaker.verdict is SpeakerVerdict.UNSURE and not evidence.own_voice
        if not unsure or evidence.proximity.verdict is not DistanceVerdict.NEAR:
            return None
        if is_refusal(evidence.words):
            return Reply.NO
        return Reply.UNSURE_YES if _is_yes(evidence.words, summary) else None
    if is_refusal(evidence.words):
        return Reply.NO
    if evidence.overlapped or evidence.source_gap:
        return None
    return Reply.YES if _is_yes(evidence.words, summary) else Reply.OTHER


def confirmed(question: OpenQuestion, answer: Evidence) -> Evidence:
    """The evidence to decide a confirmed call on: its own words, and the voice that confirmed them."""
    return replace(
        question.evidence,
        turn_id=answer.turn_id,
        span=answer.span,
        speaker=answer.speaker,
        proximity=answer.proximity,
        own_voice=answer.own_voice,
        overlapped=answer.overlapped,
        source_gap=answer.source_gap,
        modality=answer.modality,
    )


def _is_yes(words: Sequence[Word], summary: str) -> bool:
    if not words:
        return False
    # As one text, so that a number of several words is one number.
    said = bare((replace(words[0], text=" ".join(word.text for word in words)),))
    start = 0
    while (length := _yes_at(said, start)) > 0:
        start += length
    return start > 0 and set(said[start:]) <= _BETWEEN.union(normal_form(summary) if summary else ())


def _yes_at(said: Sequence[str], start: int) -> int:
    """How many words from ``start`` confirm; the longest phrase counts."""
    lengths = range(min(_LONGEST_YES, len(said) - start), 0, -1)
    return next((length for length in lengths if tuple(said[start : start + length]) in _YES), 0)
