"""The gate without the ears that tell who speaks and how near: words alone decide, for the policy as for the veto.

``no_veto`` keeps the verdicts from the gate only; here nobody has them. The difference between the two is what the
policy itself makes of the verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from agent.assemble import Parts
from agent.hearing import Ears
from bench.contestants import Contestant, Setup
from gate.span import Span
from models.protocols import (
    Audio,
    Embedding,
    ModelId,
    Nearness,
    ProximityEar,
    SpeakerEar,
    SpeakerThresholds,
    SpeakerTrack,
)

NOTE = "no such ear in this run"


@dataclass(frozen=True, slots=True)
class _OneVoice:
    """A track on which every span is the same voice, near by."""

    track: SpeakerTrack | None
    vector: np.ndarray | None = None

    def embed(self, span: Span) -> Embedding:
        return Embedding(self.vector, span, NOTE)

    def changes(self) -> tuple[int, ...]:
        return self.track.changes() if self.track is not None else ()

    def near(self, span: Span) -> Nearness:
        return Nearness(1.0, span, NOTE)


@dataclass(frozen=True, slots=True)
class OneVoiceEar:
    """A speaker ear to which everybody sounds alike. Turns are still cut where the real one hears the voice change."""

    ear: SpeakerEar

    @property
    def model(self) -> ModelId:
        """The real ear's, whose voice changes are used."""
        return self.ear.model

    @property
    def thresholds(self) -> SpeakerThresholds:
        """The real ear's: a score of 1 is the owner's to any of them."""
        return self.ear.thresholds

    @property
    def dimension(self) -> int:
        """The real ear's."""
        return self.ear.dimension

    @property
    def min_samples(self) -> int:
        """Every span is long enough."""
        return 1

    def track(self, audio: Audio) -> SpeakerTrack:
        """One voice from beginning to end."""
        vector = np.zeros(self.ear.dimension, np.float32)
        vector[0] = 1.0
        return _OneVoice(self.ear.track(audio), vector)


@dataclass(frozen=True, slots=True)
class NearEar:
    """A proximity ear to which everything is near."""

    ear: ProximityEar

    @property
    def model(self) -> ModelId:
        """The real ear's, which is not asked."""
        return self.ear.model

    @property
    def near_at(self) -> float:
        """The real ear's."""
        return self.ear.near_at

    @property
    def far_below(self) -> float:
        """The real ear's."""
        return self.ear.far_below

    @property
    def min_samples(self) -> int:
        """Every span is long enough."""
        return 1

    def track(self, audio: Audio) -> _OneVoice:
        """Near from beginning to end."""
        return _OneVoice(None)


def without_verdicts(parts: Parts) -> Parts:
    """The same parts, with ears to which everybody is the owner, near by."""
    ears = parts.ears
    return replace(parts, ears=Ears(ears.speech, OneVoiceEar(ears.speaker), NearEar(ears.proximity), ears.damage))


def load(setup: Setup) -> Contestant:
    """Load the product's ears and policy, without verdicts."""
    return Contestant(without_verdicts(setup.parts()), setup.catalogue)
