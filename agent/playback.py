"""What the gate itself sounded, and when: the reference against which an echo is recognised.

Counted in samples of the microphone's stream. Between the sample at which a sound was handed to the device and the one
at which the microphone hears it lies the device's delay, which is unknown and is left to ``agent.echo`` to find.
Everything stays in memory, for ``KEEP_SAMPLES``.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import soxr

from gate.span import SAMPLE_RATE_HZ, Span

KEEP_SAMPLES = 60 * SAMPLE_RATE_HZ
"""How long a sound is remembered after its end: longer than any turn with its compute."""

STOP_MARGIN_SAMPLES = SAMPLE_RATE_HZ // 2
"""How much of a sound may still be heard after it was stopped: what the driver had already taken."""


@dataclass(frozen=True, slots=True, eq=False)
class Sound:
    """Something to play.

    Attributes:
        samples: float32 mono in [-1, 1], shape ``(samples,)``.
        rate_hz: its sampling rate.

    Raises:
        ValueError: on another shape or type, without samples, on samples that are not finite, or on a rate below 4 kHz.
    """

    samples: npt.NDArray[np.float32] = field(repr=False)
    rate_hz: int

    def __post_init__(self) -> None:
        if self.samples.dtype != np.float32 or self.samples.ndim != 1 or not self.samples.size:
            raise ValueError(f"not a sound: {self.samples.dtype} {self.samples.shape}, not float32 (samples,)")
        if not np.isfinite(self.samples).all():
            raise ValueError("not a sound: some samples are not finite")
        if self.rate_hz < 4000:
            raise ValueError(f"not a sound: {self.rate_hz} Hz")

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return self.samples.size / self.rate_hz

    def at_rate(self, rate_hz: int) -> npt.NDArray[np.float32]:
        """Its samples at another rate, float32 ``(m,)``."""
        if rate_hz == self.rate_hz:
            return self.samples
        return np.asarray(soxr.resample(self.samples, self.rate_hz, rate_hz), np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """One sound that was, or is being, played.

    Attributes:
        start_sample: the stream position at which the device took its first sample.
        samples: float32 ``(n,)`` at 16 kHz, without what was cut off by a stop.
        text: the words in it; empty for an earcon. After a stop, only those that can have been said.
    """

    start_sample: int
    samples: npt.NDArray[np.float32] = field(repr=False)
    text: str

    @property
    def span(self) -> Span:
        """Its place in the stream, before the device's delay."""
        return Span(self.start_sample, self.start_sample + self.samples.size)


class PlaybackRecord:
    """Remembers what was played. Safe to use from the driver's, the loop's and the model's threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._played: list[Played] = []

    def start(self, samples: npt.NDArray[np.float32], text: str, start_sample: int) -> Played:
        """A sound begins. Quick enough for a driver's callback.

        Args:
            samples: the sound, float32 ``(n,)`` at 16 kHz.
            text: the words in it, or "".
            start_sample: the stream's position now.

        Returns:
            The entry, to be handed to ``stop`` if it is cut short.
        """
        entry = Played(start_sample, samples, text)
        oldest = start_sample - KEEP_SAMPLES
        with self._lock:
            self._played = [old for old in self._played if old.span.end_sample >= oldest]
            self._played.append(entry)
        return entry

    def stop(self, entry: Played, at_sample: int) -> None:
        """A sound was cut short at the stream position ``at_sample``; nothing happens when it had already ended."""
        kept = at_sample - entry.start_sample + STOP_MARGIN_SAMPLES
        if kept >= entry.samples.size:
            return
        kept = max(0, kept)
        words = entry.text.split()
        # Words are taken to be equally long, and one more may have been begun.
        said = words[: int(len(words) * kept / entry.samples.size) + 1]
        cut = Played(entry.start_sample, entry.samples[:kept], " ".join(said))
        with self._lock:
            self._played = [cut if old is entry else old for old in self._played]

    def within(self, span: Span) -> tuple[Played, ...]:
        """What was being played in ``span``, in the order in which it began."""
        with self._lock:
            return tuple(entry for entry in self._played if entry.span.overlap(span))

    def reference(self, start_sample: int, samples: int) -> npt.NDArray[np.float32]:
        """What the device was given, as one signal: float32 ``(samples,)`` at 16 kHz from ``start_sample`` on.

        Zeros where nothing was played. ``start_sample`` may be negative: before the stream there was nothing.
        """
        out = np.zeros(samples, np.float32)
        with self._lock:
            entries = list(self._played)
        for entry in entries:
            first = max(start_sample, entry.start_sample)
            last = min(start_sample + samples, entry.start_sample + entry.samples.size)
            if first < last:
                piece = entry.samples[first - entry.start_sample : last - entry.start_sample]
                out[first - start_sample : last - start_sample] += piece
        return out

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._played = []
