"""A turn whose spans are each embedded alone: what speaker ears share that have no cheaper way."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, Embedding, SpeakerThresholds
from models.speaker_audio import inside, unfit
from models.speaker_changes import MIN_SIDE_SAMPLES, find_changes

_CHANGE_HOP_SAMPLES = SAMPLE_RATE_HZ // 4
"""Coarse, since every side of every candidate is a pass of its own."""
_CHANGE_SIDE_SAMPLES = 2 * SAMPLE_RATE_HZ


class EmbedsAlone(Protocol):
    """A network that embeds one stretch at a time."""

    @property
    def thresholds(self) -> SpeakerThresholds: ...

    def embed_alone(self, audio: Audio) -> tuple[npt.NDArray[np.float32] | None, str]:
        """The embedding of a stretch, float32 ``(dimension,)`` with unit norm, or None and why."""
        ...


class SpanTrack:
    """One turn. Implements :class:`models.protocols.SpeakerTrack`; spans are embedded once and remembered."""

    def __init__(self, ear: EmbedsAlone, audio: Audio) -> None:
        self._ear = ear
        self._audio = audio
        self._embeddings: dict[Span, Embedding] = {}

    def embed(self, span: Span) -> Embedding:
        """The embedding of one span, from its own samples alone; what lies outside the audio is left out."""
        span = inside(span, self._audio.size)
        if span not in self._embeddings:
            vector, note = self._ear.embed_alone(self._audio[span.start_sample : span.end_sample])
            self._embeddings[span] = Embedding(vector, span, note)
        return self._embeddings[span]

    def changes(self) -> tuple[int, ...]:
        """Samples at which the voice changes: where the thresholds call the two sides different people.

        Empty when one person speaks, and when the network is not calibrated.
        """
        if unfit(self._audio, 2 * MIN_SIDE_SAMPLES):
            return ()
        return find_changes(self._audio, self._contrast, _CHANGE_HOP_SAMPLES)

    def _contrast(self, start: int, samples: npt.NDArray[np.int64], end: int) -> npt.NDArray[np.float64]:
        """How far the cosine of the two sides lies under the threshold of being different people."""
        return np.array([self._contrast_at(start, int(at), end) for at in samples])

    def _contrast_at(self, start: int, at: int, end: int) -> float:
        left = self.embed(Span(max(start, at - _CHANGE_SIDE_SAMPLES), at))
        right = self.embed(Span(at, min(end, at + _CHANGE_SIDE_SAMPLES)))
        if left.vector is None or right.vector is None:
            return -np.inf
        cosine = float(np.dot(left.vector, right.vector))
        _, _, other_below = self._ear.thresholds.verdict(cosine, left.span.duration_s, right.span.duration_s)
        return other_below - cosine
