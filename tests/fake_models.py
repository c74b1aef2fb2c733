"""Small deterministic ears and policies for tests of the loop: what they hear is coded in the pitch of a tone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from agent.hearing import Ears
from gate.catalogue import ToolFacts
from gate.evidence import DamageStretch, SpeakerVerdict, Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, Embedding, Heard, ModelId, Nearness, PolicyInput, PolicyOutput

FAKE = ModelId("fake", "0" * 64)


@dataclass(frozen=True)
class Voice:
    """What a tone of one pitch stands for."""

    hz: int
    text: str
    speaker: int = 0
    near: float | None = 0.99


def tone(voice: Voice, seconds: float = 1.2, amplitude: float = 0.3) -> Audio:
    """The tone that the fakes hear as ``voice``."""
    t = np.arange(round(seconds * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    return (amplitude * np.sin(2 * np.pi * voice.hz * t)).astype(np.float32)


def _pitch_hz(audio: Audio) -> int:
    loud = audio[np.abs(audio) > 0.05]
    if len(loud) < 1600:
        return 0
    spectrum = np.abs(np.fft.rfft(audio))
    return round(float(np.argmax(spectrum)) * SAMPLE_RATE_HZ / len(audio) / 50) * 50


class LevelVad:
    """Loud is speech."""

    frame_samples = 320

    def is_speech(self, frame: Audio) -> bool:
        return bool(np.max(np.abs(frame)) > 0.05)

    def reset(self) -> None:
        """No state."""


@dataclass
class FakeEars:
    """All four ears over one table of voices."""

    voices: Sequence[Voice]
    changes_at: Callable[[Audio], tuple[int, ...]] = lambda audio: ()
    damage: Callable[[Audio], tuple[DamageStretch, ...] | None] = lambda audio: ()
    fail: dict[str, Exception] = field(default_factory=dict)
    overlap: Callable[[Audio], tuple[Span, ...] | None] | None = None
    model: ModelId = FAKE
    dimension: int = 8
    min_samples: int = SAMPLE_RATE_HZ // 2

    def ears(self) -> Ears:
        overlap = None if self.overlap is None else _Overlap(self)
        return Ears(_Speech(self), _Speaker(self), _Proximity(self), _Damage(self), overlap)

    def voice(self, audio: Audio) -> Voice | None:
        hz = _pitch_hz(audio)
        return next((voice for voice in self.voices if voice.hz == hz), None)

    def maybe_fail(self, name: str) -> None:
        if name in self.fail:
            raise self.fail[name]


@dataclass
class _Speech:
    owner: FakeEars
    model: ModelId = FAKE

    def hear(self, audio: Audio) -> Heard:
        self.owner.maybe_fail("speech")
        words: list[Word] = []
        edges = [0, *self.owner.changes_at(audio), len(audio)]
        for start, end in pairwise(edges):
            words.extend(self._hear_one(audio[start:end], start))
        return Heard(tuple(words), "" if words else "no speech")

    def _hear_one(self, audio: Audio, offset: int) -> list[Word]:
        voice = self.owner.voice(audio)
        if voice is None:
            return []
        loud = np.flatnonzero(np.abs(audio) > 0.05)
        parts = voice.text.split()
        edges = np.linspace(loud[0], loud[-1], len(parts) + 1).astype(int) + offset
        return [Word(part, Span(int(a), int(b)), 0.95) for part, (a, b) in zip(parts, pairwise(edges), strict=True)]


@dataclass
class _Track:
    owner: FakeEars
    audio: Audio

    def embed(self, span: Span) -> Embedding:
        voice = self.owner.voice(self.audio[span.start_sample : span.end_sample])
        if voice is None or span.samples < self.owner.min_samples:
            return Embedding(None, span, "too short")
        vector = np.zeros(self.owner.dimension, np.float32)
        vector[voice.speaker] = 1.0
        return Embedding(vector, span)

    def changes(self) -> tuple[int, ...]:
        return self.owner.changes_at(self.audio)

    def near(self, span: Span) -> Nearness:
        voice = self.owner.voice(self.audio[span.start_sample : span.end_sample])
        return Nearness(None, span, "unknown") if voice is None else Nearness(voice.near, span)


@dataclass
class _Speaker:
    owner: FakeEars
    model: ModelId = FAKE
    dimension: int = 8
    min_samples: int = SAMPLE_RATE_HZ // 2

    def track(self, audio: Audio) -> _Track:
        self.owner.maybe_fail("speaker")
        return _Track(self.owner, audio)


@dataclass
class _Proximity:
    owner: FakeEars
    model: ModelId = FAKE
    min_samples: int = SAMPLE_RATE_HZ // 2

    def track(self, audio: Audio) -> _Track:
        self.owner.maybe_fail("proximity")
        return _Track(self.owner, audio)


@dataclass
class _Damage:
    owner: FakeEars
    model: ModelId = FAKE

    def find(self, audio: Audio) -> tuple[DamageStretch, ...] | None:
        self.owner.maybe_fail("damage")
        return self.owner.damage(audio)


@dataclass
class _Overlap:
    owner: FakeEars
    model: ModelId = FAKE

    def find(self, audio: Audio) -> tuple[Span, ...] | None:
        self.owner.maybe_fail("overlap")
        assert self.owner.overlap is not None
        return self.owner.overlap(audio)


class FixedSpeakerThresholds:
    """Owner from 0.6, other below 0.4."""

    def verdict(self, score: float, reference_s: float, test_s: float) -> tuple[SpeakerVerdict, float, float]:
        if score >= 0.6:
            return SpeakerVerdict.OWNER, 0.6, 0.4
        return (SpeakerVerdict.OTHER if score < 0.4 else SpeakerVerdict.UNSURE), 0.6, 0.4


@dataclass(frozen=True)
class FixedDistanceThresholds:
    """Near from 0.8, far below 0.2."""

    near_at: float = 0.8
    far_below: float = 0.2


class ScriptedPolicy:
    """Answers by transcript; anything unknown is muted.

    Attributes:
        seen: every input, in order.
    """

    model = FAKE

    def __init__(self, replies: Mapping[str, str | Exception]) -> None:
        self.replies = replies
        self.seen: list[PolicyInput] = []

    def prepare(self, tools: Sequence[ToolFacts]) -> None:
        """Nothing to prepare."""

    def propose(self, turn: PolicyInput) -> PolicyOutput:
        self.seen.append(turn)
        reply = self.replies.get(" ".join(word.text for word in turn.segment.words), "[Mute]")
        if isinstance(reply, Exception):
            raise reply
        return PolicyOutput(reply)


class BlockingPolicy(ScriptedPolicy):
    """Holds every proposal until released, as a hung model does."""

    def __init__(self, replies: Mapping[str, str | Exception]) -> None:
        super().__init__(replies)
        self.release = threading.Event()
        self.entered = threading.Event()

    def propose(self, turn: PolicyInput) -> PolicyOutput:
        self.entered.set()
        self.release.wait(30)
        return super().propose(turn)
