"""One listening session: who owns it, what was said before, what is being repaired. Sans-I/O, counted in samples."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from gate.evidence import DistanceVerdict, SpeakerEvidence, SpeakerVerdict
from gate.repair import RepairState
from gate.span import Span
from models.protocols import Embedding, HeardSegment, ModelId, SpeakerThresholds
from models.speaker_calibration import Situation, in_situation

ENROLMENT: Final = "enrolment"
"""The origin of a reference that was made of clips for that purpose."""


class OwnerMode(StrEnum):
    """Whose commands count."""

    ENROLLED = "enrolled"
    """The wearer whose profile was given; without a profile, nobody."""
    INITIATOR = "initiator"
    """Whoever speaks first and near; fixed from then on."""


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """What the owner sounds like.

    Attributes:
        vector: float32 ``(dimension,)``, unit L2 norm.
        speech_s: how many seconds of speech it rests on.
        model: the network that made it; scores across networks mean nothing.
        origin: :data:`ENROLMENT`, or the id of the initiator's turn.
    """

    vector: npt.NDArray[np.float32] = field(repr=False)
    speech_s: float
    model: ModelId
    origin: str

    @property
    def situation(self) -> Situation:
        """Which thresholds its scores are held against."""
        return Situation.ENROLLED if self.origin == ENROLMENT else Situation.INITIATOR


CONTEXT_SEGMENTS = 4
"""How many earlier segments a policy sees."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """Everything that a session remembers between turns. Immutable: a turn drafts a new state and commits it when
    final.

    Attributes:
        owner: the owner's reference, or None. Set once; never learned from later turns.
        context: the last segments, oldest first.
        repair: the open repair.
    """

    owner: OwnerReference | None = None
    context: tuple[HeardSegment, ...] = ()
    repair: RepairState = field(default_factory=RepairState)

    def with_segment(self, segment: HeardSegment) -> SessionState:
        """The state after one more segment was heard."""
        return replace(self, context=(*self.context, segment)[-CONTEXT_SEGMENTS:])


def judge_speaker(
    state: SessionState,
    mode: OwnerMode,
    thresholds: SpeakerThresholds,
    embedding: Embedding,
    span: Span,
    distance: DistanceVerdict,
    model: ModelId,
    turn_id: str,
) -> tuple[SpeakerEvidence, SessionState]:
    """Whose voice a span holds.

    Args:
        state: the session so far.
        mode: whose commands count.
        thresholds: the speaker ear's calibration; an initiator's are used unless the owner is enrolled.
        embedding: the span's embedding, or unknown.
        span: the span, in the stream.
        distance: the span's distance verdict: only a near speaker can become the initiator.
        model: the embedding's network.
        turn_id: the turn, recorded as the reference's origin.

    Returns:
        The evidence, and the state, in which this very speaker may have become the owner.
    """
    test_s = span.duration_s
    if state.owner is None:
        # Nothing is scored; the thresholds say what a second span would be held against.
        situation = Situation.ENROLLED if mode is OwnerMode.ENROLLED else Situation.INITIATOR
        thresholds = in_situation(thresholds, situation)
        _, owner_at, other_below = thresholds.verdict(0.0, test_s, test_s)
        if embedding.vector is None:
            note = embedding.note or "no embedding"
        elif mode is OwnerMode.ENROLLED:
            note = "nobody is enrolled"
        elif distance is not DistanceVerdict.NEAR:
            note = f"no owner yet, and this speaker is {distance}"
        else:
            reference = OwnerReference(embedding.vector, test_s, model, turn_id)
            evidence = SpeakerEvidence(
                SpeakerVerdict.OWNER, 1.0, owner_at, other_below, span, "first near speaker: owns this session"
            )
            return evidence, replace(state, owner=reference)
        return SpeakerEvidence(SpeakerVerdict.UNSURE, None, owner_at, other_below, span, note), state
    thresholds = in_situation(thresholds, state.owner.situation)
    if embedding.vector is None:
        _, owner_at, other_below = thresholds.verdict(0.0, state.owner.speech_s, test_s)
        note = embedding.note or "no embedding"
        return SpeakerEvidence(SpeakerVerdict.UNSURE, None, owner_at, other_below, span, note), state
    score = float(np.dot(state.owner.vector, embedding.vector))
    verdict, owner_at, other_below = thresholds.verdict(score, state.owner.speech_s, test_s)
    return SpeakerEvidence(verdict, score, owner_at, other_below, span, embedding.note), state
