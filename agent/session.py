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
    """Whoever speaks first and near; fixed from then on. See :class:`Claim` for who speaks first and perhaps near."""


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


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody who spoke before any owner was known, and may well be the wearer: not surely near, and not far.

    Whoever speaks next and near is most often the same person, who then becomes the owner. A voice that is surely
    another does not take the session in the same breath: it owns it when it speaks near by in a later turn again.

    Attributes:
        reference: what the voice sounds like.
        refused_turn: the turn in which this voice, though near, was refused because of an earlier claim; or empty.
    """

    reference: OwnerReference
    refused_turn: str = ""


CONTEXT_SEGMENTS = 4
"""How many earlier segments a policy sees."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """Everything that a session remembers between turns. Immutable: a turn drafts a new state and commits it when
    final.

    Attributes:
        owner: the owner's reference, or None. Set once; never learned from later turns.
        claim: who may be the owner, while there is none.
        context: the last segments, oldest first.
        repair: the open repair.
    """

    owner: OwnerReference | None = None
    claim: Claim | None = None
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
        else:
            reference = OwnerReference(embedding.vector, test_s, model, turn_id)
            note, state = _begin(state, reference, distance, thresholds)
        if state.owner is not None:
            evidence = SpeakerEvidence(
                SpeakerVerdict.OWNER, 1.0, owner_at, other_below, span, "first near speaker: owns this session"
            )
            return evidence, state
        return SpeakerEvidence(SpeakerVerdict.UNSURE, None, owner_at, other_below, span, note), state
    thresholds = in_situation(thresholds, state.owner.situation)
    if embedding.vector is None:
        _, owner_at, other_below = thresholds.verdict(0.0, state.owner.speech_s, test_s)
        note = embedding.note or "no embedding"
        return SpeakerEvidence(SpeakerVerdict.UNSURE, None, owner_at, other_below, span, note), state
    score = float(np.dot(state.owner.vector, embedding.vector))
    verdict, owner_at, other_below = thresholds.verdict(score, state.owner.speech_s, test_s)
    return SpeakerEvidence(verdict, score, owner_at, other_below, span, embedding.note), state


def _begin(
    state: SessionState, reference: OwnerReference, distance: DistanceVerdict, thresholds: SpeakerThresholds
) -> tuple[str, SessionState]:
    """Who owns a session that nobody owns yet, now that a voice was heard: why it is not this one, and the state."""
    claim = state.claim
    another = False
    if claim is not None:
        score = float(np.dot(claim.reference.vector, reference.vector))
        verdict, _, _ = thresholds.verdict(score, claim.reference.speech_s, reference.speech_s)
        another = verdict is SpeakerVerdict.OTHER
    if distance is DistanceVerdict.NEAR:
        if claim is not None and claim.refused_turn == reference.origin:
            return "somebody else spoke first, perhaps near: no owner yet", state
        if another:
            refused = Claim(reference, reference.origin)
            return "somebody else spoke first, perhaps near: no owner yet", replace(state, claim=refused)
        return "", replace(state, owner=reference, claim=None)
    if distance is DistanceVerdict.UNSURE and (claim is None or another):
        state = replace(state, claim=Claim(reference))
    return f"no owner yet, and this speaker is {distance}", state
