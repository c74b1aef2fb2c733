"""Rehearsals: talks whose words are known, through the real loop, without a model's weights.

A ``Line`` is a person's sentence and the pitch that stands for it. ``speak`` makes a voice-like sound of that pitch,
which the real voice activity detector takes for speech, and ``RehearsedEars`` reads the line back from the pitch. So
faults and hours of talk can be played through everything else as it is: source, detector, turns, worker, gate,
executor, journal, event file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from agent.assemble import Parts
from agent.hearing import Ears
from gate.catalogue import ToolFacts
from gate.evidence import DamageStretch, SpeakerVerdict, Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, Embedding, Heard, ModelId, Nearness, PolicyInput, PolicyOutput, SpeakerThresholds

MODEL = ModelId("rehearsal", "0" * 64)
DIMENSION = 8
PITCH_STEP_HZ = 100
"""Pitches of lines are multiples of this, above ``VOICE_HZ``; it is also their base tone."""
VOICE_HZ = 100
LOUD = 0.02
"""Samples beyond this belong to a voice; a rehearsal's noise stays below it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence of a rehearsal.

    Attributes:
        hz: the pitch that stands for it, a multiple of ``PITCH_STEP_HZ``; unique in a rehearsal.
        text: what is said.
        speaker: who says it, from 0.
        near: the probability that the speaker is near.
        seconds: how long it takes.
    """

    hz: int
    text: str
    speaker: int = 0
    near: float = 0.99
    seconds: float = 1.2


def speak(line: Line, seed: int = 0) -> Audio:
    """A voice-like sound: harmonics of ``VOICE_HZ`` falling with their number, one of them, the line's pitch, far above
    the others, in syllables of a quarter of a second.

    Returns:
        float32 ``(samples,)`` at 16 kHz; the same for the same arguments.
    """
    count = round(line.seconds * SAMPLE_RATE_HZ)
    t = np.arange(count) / SAMPLE_RATE_HZ
    phases = np.random.default_rng(seed).uniform(0.0, 2.0 * np.pi, 30)
    number = np.arange(1, 31)[:, np.newaxis]
    harmonics = np.sin(2.0 * np.pi * VOICE_HZ * number * t + phases[:, np.newaxis]) / number
    sound = harmonics.sum(axis=0) + 3.0 * np.sin(2.0 * np.pi * line.hz * t)
    syllables = 0.65 + 0.35 * np.cos(2.0 * np.pi * 4.0 * t)
    sound *= syllables
    return np.asarray(0.3 * sound / np.max(np.abs(sound)), np.float32)


class SpeakerLimits:
    """Owner from 0.6, other below 0.4: between orthogonal vectors, everything is one or the other."""

    def verdict(self, score: float, reference_s: float, test_s: float) -> tuple[SpeakerVerdict, float, float]:
        """The verdict and the two limits."""
        if score >= 0.6:
            return SpeakerVerdict.OWNER, 0.6, 0.4
        return (SpeakerVerdict.OTHER if score < 0.4 else SpeakerVerdict.UNSURE), 0.6, 0.4


@dataclass(slots=True)
class RehearsedEars:
    """All four ears over one table of lines.

    Attributes:
        lines: the lines that they know; any other sound has no words.
        before: called with the ear's name before each of its calls: where faults are let in.
    """

    lines: Sequence[Line]
    before: Callable[[str], None] = lambda ear: None

    def ears(self) -> Ears:
        """As the loop takes them."""
        return Ears(_Speech(self), _Speaker(self), _Proximity(self), _Damage(self))

    def line(self, audio: Audio) -> Line | None:
        """The line that audio holds, float32 ``(samples,)`` at 16 kHz, or None."""
        loud = np.flatnonzero(np.abs(audio) > LOUD)
        if len(loud) < SAMPLE_RATE_HZ // 20:
            return None
        spectrum = np.abs(np.fft.rfft(audio[loud[0] : loud[-1] + 1]))
        hz = float(np.argmax(spectrum)) * SAMPLE_RATE_HZ / (loud[-1] + 1 - loud[0])
        return next((line for line in self.lines if abs(line.hz - hz) < PITCH_STEP_HZ / 3), None)


@dataclass(slots=True)
class _Speech:
    owner: RehearsedEars
    model: ModelId = MODEL

    def hear(self, audio: Audio) -> Heard:
        self.owner.before("speech")
        line = self.owner.line(audio)
        if line is None:
            return Heard((), "no speech")
        loud = np.flatnonzero(np.abs(audio) > LOUD)
        parts = line.text.split()
        edges = np.linspace(loud[0], loud[-1], len(parts) + 1).astype(int)
        words = tuple(
            Word(part, Span(int(start), int(end)), 0.95)
            for part, start, end in zip(parts, edges, edges[1:], strict=False)
        )
        return Heard(words)


@dataclass(slots=True)
class _Track:
    owner: RehearsedEars
    audio: Audio

    def embed(self, span: Span) -> Embedding:
        line = self.owner.line(self.audio[span.start_sample : span.end_sample])
        if line is None:
            return Embedding(None, span, "no voice")
        vector = np.zeros(DIMENSION, np.float32)
        vector[line.speaker % DIMENSION] = 1.0
        return Embedding(vector, span)

    def changes(self) -> tuple[int, ...]:
        return ()

    def near(self, span: Span) -> Nearness:
        line = self.owner.line(self.audio[span.start_sample : span.end_sample])
        return Nearness(None, span, "no voice") if line is None else Nearness(line.near, span)


@dataclass(slots=True)
class _Speaker:
    owner: RehearsedEars
    model: ModelId = MODEL
    dimension: int = DIMENSION
    min_samples: int = SAMPLE_RATE_HZ // 4
    thresholds: SpeakerThresholds = field(default_factory=SpeakerLimits)

    def track(self, audio: Audio) -> _Track:
        self.owner.before("speaker")
        return _Track(self.owner, audio)


@dataclass(slots=True)
class _Proximity:
    owner: RehearsedEars
    model: ModelId = MODEL
    min_samples: int = SAMPLE_RATE_HZ // 4
    near_at: float = 0.8
    far_below: float = 0.2

    def track(self, audio: Audio) -> _Track:
        self.owner.before("proximity")
        return _Track(self.owner, audio)


@dataclass(slots=True)
class _Damage:
    owner: RehearsedEars
    model: ModelId = MODEL

    def find(self, audio: Audio) -> tuple[DamageStretch, ...] | None:
        self.owner.before("damage")
        return ()


@dataclass(slots=True)
class RehearsedPolicy:
    """Proposes what was written for a transcript, and Mute for every other.

    Attributes:
        replies: transcript to output in the action grammar.
        before: called with the transcript before each proposal: where faults are let in.
    """

    replies: Mapping[str, str]
    before: Callable[[str], None] = lambda text: None
    model: ModelId = MODEL

    def prepare(self, tools: Sequence[ToolFacts]) -> None:
        """Nothing to prepare."""

    def propose(self, turn: PolicyInput) -> PolicyOutput:
        """The written output."""
        text = " ".join(word.text for word in turn.segment.words)
        self.before(text)
        return PolicyOutput(self.replies.get(text, "[Mute]"))


def rehearsed_parts(ears: RehearsedEars, policy: RehearsedPolicy) -> Parts:
    """Ears and policy as a session takes them."""
    speaker, proximity = _Speaker(ears), _Proximity(ears)
    return Parts(ears.ears(), policy, "rehearsed", speaker.thresholds, proximity)
