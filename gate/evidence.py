"""What the ears claim, each claim bound to the samples that it was measured on.

"Unknown" is a value here (``UNSURE``, ``None``), never an exception, and nothing unknown ever licenses a tool.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from gate.span import Span


class SpeakerVerdict(StrEnum):
    """Whose voice a span holds."""

    OWNER = "owner"
    OTHER = "other"
    UNSURE = "unsure"


class DistanceVerdict(StrEnum):
    """How near the mouth was."""

    NEAR = "near"
    FAR = "far"
    UNSURE = "unsure"


class DamageKind(StrEnum):
    """What kept a stretch of speech from being heard."""

    NOISE = "noise"
    SILENCE = "silence"
    MUSIC = "music"
    VOICES = "voices"
    CLIPPING = "clipping"
    GAP = "gap"
    """Samples that the source itself lost (overflow, unplugged device)."""


class Modality(StrEnum):
    """How the words came in."""

    AUDIO = "audio"
    TEXT = "text"
    """Typed by the operator, who is authorised by having the keyboard (VGBench's text-only control)."""


@dataclass(frozen=True, slots=True)
class SpeakerEvidence:
    """A speaker verdict with what it rests on.

    Attributes:
        verdict: owner, other or unsure.
        score: cosine similarity to the owner's reference, or None when nothing could be scored.
        owner_at: the score from which the verdict is owner.
        other_below: the score below which the verdict is other; between the two it is unsure.
        span: the samples that were scored.
        note: why the verdict is what it is, in a few words ("too short: 0.31 s of 0.50 s").
    """

    verdict: SpeakerVerdict
    score: float | None
    owner_at: float
    other_below: float
    span: Span
    note: str = ""


@dataclass(frozen=True, slots=True)
class ProximityEvidence:
    """A distance verdict with what it rests on.

    Attributes:
        verdict: near, far or unsure.
        near_probability: calibrated probability that the mouth was near, or None.
        near_at: the probability from which the verdict is near.
        far_below: the probability below which it is far.
        span: the samples that were scored.
        note: why, in a few words.
    """

    verdict: DistanceVerdict
    near_probability: float | None
    near_at: float
    far_below: float
    span: Span
    note: str = ""


@dataclass(frozen=True, slots=True)
class DamageStretch:
    """A stretch in which a listener could not have heard speech.

    Attributes:
        span: where.
        kind: by what.
        probability: how sure the detector is, 0 to 1.
    """

    span: Span
    kind: DamageKind
    probability: float


@dataclass(frozen=True, slots=True)
class Word:
    """One recognised word.

    Attributes:
        text: as the recogniser wrote it, with its punctuation, without surrounding space.
        span: its samples.
        probability: the recogniser's probability of the word, 0 to 1.
    """

    text: str
    span: Span
    probability: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that is known about one turn when the gate decides.

    Attributes:
        turn_id: the turn's id, unique in the session.
        span: the turn's samples.
        modality: audio, or text typed by the operator.
        words: recognised words as they read after self-corrections; empty when none came through.
        speaker: whose voice the *command span* holds.
        proximity: how near it was.
        damage: damaged stretches, or None when damage could not be measured.
        overlapped: True when two voices sound at once in the span; None when only the damage ear's ``VOICES`` tell.
        own_voice: True when the span is, or overlaps, the gate's own playback.
        source_gap: True when the source lost samples inside the span.
        turn_starts: in evidence that a repair has joined from several turns, the index of each later turn's first word.
        heard: the words as they were heard, with those that were taken back (``gate.correction``); None when the same.
        corrections: the samples of each correction, from its editing term to the end of its repair.
    """

    turn_id: str
    span: Span
    words: tuple[Word, ...]
    speaker: SpeakerEvidence
    proximity: ProximityEvidence
    damage: tuple[DamageStretch, ...] | None
    modality: Modality = Modality.AUDIO
    overlapped: bool | None = None
    own_voice: bool = False
    source_gap: bool = False
    turn_starts: tuple[int, ...] = ()
    heard: tuple[Word, ...] | None = None
    corrections: tuple[Span, ...] = ()

    @property
    def as_heard(self) -> tuple[Word, ...]:
        """The words as they were heard, in order."""
        return self.words if self.heard is None else self.heard

    @property
    def words_by_turn(self) -> tuple[tuple[Word, ...], ...]:
        """The words of each turn, the latest turn first. What is said in one turn does not run on into the next."""
        edges = (0, *self.turn_starts, len(self.words))
        parts = [self.words[start:end] for start, end in pairwise(edges)]
        return tuple(reversed(parts))

    @property
    def transcript(self) -> str:
        """The words as they were heard, joined by single spaces."""
        return " ".join(word.text for word in self.as_heard)
