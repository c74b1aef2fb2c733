"""Sample-counted spans: the one way in which the project says *when*.

Domain code never reads a clock. It counts samples of the session's 16 kHz mono stream, from 0 at the stream's start.
"""

from __future__ import annotations

from dataclasses import dataclass

SAMPLE_RATE_HZ = 16_000
"""The one rate inside the project; sources resample to it."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Half-open stretch ``[start_sample, end_sample)`` of the session's stream.

    Raises:
        ValueError: when the end lies before the start or the start is negative.
    """

    start_sample: int
    end_sample: int

    def __post_init__(self) -> None:
        if self.start_sample < 0 or self.end_sample < self.start_sample:
            raise ValueError(f"not a span: [{self.start_sample}, {self.end_sample})")

    @classmethod
    def from_seconds(cls, start_s: float, end_s: float) -> Span:
        """The span between two times, each rounded to the nearest sample."""
        return cls(round(start_s * SAMPLE_RATE_HZ), round(end_s * SAMPLE_RATE_HZ))

    @property
    def samples(self) -> int:
        """Length in samples."""
        return self.end_sample - self.start_sample

    @property
    def start_s(self) -> float:
        """Start in seconds."""
        return self.start_sample / SAMPLE_RATE_HZ

    @property
    def end_s(self) -> float:
        """End in seconds."""
        return self.end_sample / SAMPLE_RATE_HZ

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return self.samples / SAMPLE_RATE_HZ

    def overlap(self, other: Span) -> int:
        """Number of samples that both spans hold."""
        return max(0, min(self.end_sample, other.end_sample) - max(self.start_sample, other.start_sample))

    def shifted(self, samples: int) -> Span:
        """The same span, moved by ``samples``."""
        return Span(self.start_sample + samples, self.end_sample + samples)

    def cover(self, other: Span) -> Span:
        """The smallest span that holds both."""
        return Span(min(self.start_sample, other.start_sample), max(self.end_sample, other.end_sample))
