"""Proximity ear: a small convolutional network on level-free mel bands tells a near mouth from a far one.

What it can go by on one channel is what a room does to speech: direct sound against reverberation, early reflections,
smeared syllables, treble lost off axis (see Neri et al., "Speaker distance estimation in enclosures from single-channel
audio", 2024, for what is possible). Loudness is removed: each frame is read relative to the level around it.

One pass over a turn gives a logit and an attention weight every 40 ms; any span is then pooled from those steps and
calibrated with its duration. Training, data and measured error: ``models/cards/proximity.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ, Span
from models.mel_bands import HOP_SAMPLES, WINDOW_SAMPLES, mel_band_db, running_level_db
from models.protocols import Audio, ModelId, Nearness
from models.trained_network import load_network

STRIDE_FRAMES = 4
"""Mel frames per output step: 40 ms."""

LEVEL_HALF_FRAMES = 100
"""The level that is removed from a frame is the mean power over one second to each side of it."""

WEIGHTS = Path(__file__).parent / "weights" / "proximity.onnx"

_STEP_SAMPLES = STRIDE_FRAMES * HOP_SAMPLES
_MIN_SAMPLES = SAMPLE_RATE_HZ // 2
_CLIPPED_AT = 0.999
_MAX_CLIPPED_SHARE = 0.01
_SILENT_RMS = 1e-5  # -100 dBFS: below one step of 16-bit audio

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Calibration:
    """From a pooled logit to a probability, and the probabilities at which a verdict is given.

    ``log odds = (scale + scale_log_s * log d) * logit + offset + offset_log_s * log d`` for a span of ``d`` seconds:
    Platt scaling with the duration as a side input, since a long span averages more evidence.

    Attributes:
        near_at: probability from which the verdict is near.
        far_below: probability below which the verdict is far; between the two it is unsure.
    """

    scale: float
    scale_log_s: float
    offset: float
    offset_log_s: float
    near_at: float
    far_below: float

    def log_odds(self, logit: FloatArray, duration_s: float) -> FloatArray:
        """Calibrated log-odds of near. Spans longer than 3 s count as 3 s, the longest that was calibrated."""
        log_s = math.log(min(max(duration_s, 0.5), 3.0))
        return np.asarray(
            (self.scale + self.scale_log_s * log_s) * np.asarray(logit) + self.offset + self.offset_log_s * log_s
        )

    def probability(self, logit: FloatArray, duration_s: float) -> FloatArray:
        """Calibrated probability of near, 0 to 1."""
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(self.log_odds(logit, duration_s), -60.0, 60.0))))


@dataclass(frozen=True, slots=True)
class Relative:
    """From a span's log-odds and those of the wearer's near speech through the same microphone to a probability.

    ``log odds = span * (log odds of the span) + reference * (log odds of the reference) + offset``; ``reference`` comes
    out negative: near speech that scores low on this microphone lowers what near means on it.

    Attributes:
        near_at: probability from which the verdict is near.
        far_below: probability below which the verdict is far; between the two it is unsure.
    """

    span: float
    reference: float
    offset: float
    near_at: float
    far_below: float

    def probability(self, span_log_odds: FloatArray, reference_log_odds: FloatArray) -> FloatArray:
        """Calibrated probability of near, 0 to 1, given the reference."""
        log_odds = self.span * span_log_odds + self.reference * reference_log_odds + self.offset
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(log_odds, -60.0, 60.0))))


def normalised(bands_db: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Mel bands relative to the level around each frame, scaled to about unit range, float32 ``(frames, 48)``."""
    level = running_level_db(bands_db, LEVEL_HALF_FRAMES)
    # The floor keeps digital silence and 16-bit rounding from mattering at low levels.
    relative = np.maximum(bands_db - level[:, None], -70.0)
    return np.asarray((relative + 30.0) / 15.0, dtype=np.float32)


class ProximityCnn:
    """The proximity ear (see the module's text). Safe to share between threads: it keeps no state between calls.

    Args:
        weights: the ONNX file; calibration is read from the JSON file of the same name beside it.
        threads: ONNX Runtime's threads for one call.

    Raises:
        FileNotFoundError: when either file is missing.
        ValueError: when the weights are not those that the JSON file describes.
    """

    def __init__(self, weights: Path = WEIGHTS, threads: int = 1) -> None:
        network = load_network("proximity", weights, threads)
        self._session = network.session
        self._calibration = Calibration(**network.description["calibration"])
        self._model = network.model

    @property
    def model(self) -> ModelId:
        """Name and hash of the weights."""
        return self._model

    @property
    def min_samples(self) -> int:
        """0.5 s; shorter spans are unknown."""
        return _MIN_SAMPLES

    @property
    def near_at(self) -> float:
        """Probability from which the verdict is near, chosen on dev data (see the card)."""
        return self._calibration.near_at

    @property
    def far_below(self) -> float:
        """Probability below which the verdict is far, likewise."""
        return self._calibration.far_below

    def track(self, audio: Audio) -> ProximityTrackCnn:
        """Run the network once over ``audio``, float32 ``(samples,)`` at 16 kHz; raises nothing on odd audio."""
        samples = np.asarray(audio, dtype=np.float32).reshape(-1)
        steps: npt.NDArray[np.float32] | None = None
        # One infinite sample would spread over a second to each side of it; the spans around it are unknown anyway.
        finite = np.isfinite(samples)
        if samples.size >= _MIN_SAMPLES:
            clean = np.where(finite, samples, np.float32(0.0))
            steps = self._session.run(None, {"bands": normalised(mel_band_db(clean))[None]})[0][0]
        return ProximityTrackCnn(samples, finite, steps, self._calibration)


class ProximityTrackCnn:
    """One pass over a turn (see ``ProximityCnn.track``)."""

    def __init__(
        self,
        samples: npt.NDArray[np.float32],
        finite: npt.NDArray[np.bool_],
        steps: npt.NDArray[np.float32] | None,
        calibration: Calibration,
    ) -> None:
        self._samples = samples
        self._finite = finite
        self._steps = steps
        self._calibration = calibration

    def near(self, span: Span) -> Nearness:
        """How near the mouth was in that span.

        Args:
            span: samples relative to the audio given; what reaches beyond its end is left out.

        Returns:
            A calibrated probability, or None with a note when the span is shorter than 0.5 s, silent, clipped in more
            than 1 % of its samples or not finite.
        """
        span = Span(min(span.start_sample, self._samples.size), min(span.end_sample, self._samples.size))
        if span.samples < _MIN_SAMPLES or self._steps is None:
            return Nearness(None, span, f"too short: {span.duration_s:.2f} s of {_MIN_SAMPLES / SAMPLE_RATE_HZ:.2f} s")
        part = slice(span.start_sample, span.end_sample)
        if not self._finite[part].all():
            return Nearness(None, span, "not finite")
        x = self._samples[part].astype(np.float64)
        if math.sqrt(float(np.mean(x**2))) < _SILENT_RMS:
            return Nearness(None, span, "silent")
        clipped = float(np.mean(np.abs(x) >= _CLIPPED_AT))
        if clipped > _MAX_CLIPPED_SHARE:
            return Nearness(None, span, f"clipped: {clipped:.0%} of samples at full scale")
        steps = self._steps[self._inside(span)]
        # log(1 + exp(a)): the attention is positive; the little extra keeps a span of pure silence defined.
        attention = np.logaddexp(0.0, steps[:, 1].astype(np.float64)) + 1e-3
        logit = float((steps[:, 0] * attention).sum() / attention.sum())
        probability = float(self._calibration.probability(np.array(logit), span.duration_s))
        if not math.isfinite(probability):
            return Nearness(None, span, "the network gave no number")
        return Nearness(probability, span)

    def _inside(self, span: Span) -> slice:
        """The output steps whose centre lies in the span."""
        assert self._steps is not None
        offset = (_STEP_SAMPLES - HOP_SAMPLES + WINDOW_SAMPLES) / 2
        first = max(0, math.ceil((span.start_sample - offset) / _STEP_SAMPLES))
        last = min(len(self._steps), math.floor((span.end_sample - 1 - offset) / _STEP_SAMPLES) + 1)
        return slice(first, last)
