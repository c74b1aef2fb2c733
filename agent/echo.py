"""How much of what the microphone heard is our own playback: an echo path is fitted, and its prediction compared.

Pure arithmetic on two signals, microphone and reference. In the short-time Fourier domain:

1. *Delay.* Sub-band cross-correlation with square-root (partial PHAT) weighting, summed in blocks of a quarter of a
   second whose powers are added, so that neither the room's phases nor a slow drift blurs the peak (after Knapp and
   Carter, "The generalized correlation method for estimation of time delay", 1976). It leaves a few candidates.
2. *Drift.* Loudspeaker and microphone have clocks of their own; 130 parts per million between two real devices turn
   the phase at 4 kHz by four full turns in 8 s, and no fixed filter follows. The blocks' cross-spectra are added with
   the phase slope of each drift that may be, and the sharpest sum over candidates and drifts wins.
3. *Path.* A convolutive transfer function, a few complex taps over frames in each band (Talmon, Cohen and Gannot,
   "Relative transfer function identification using convolutive transfer function approximation", 2009), by weighted
   least squares. The weights fall with the error of the round before, so that a person who talks over the playback
   hardly moves the fit. Each block is predicted by a fit on all other blocks: what is explained was never fitted.
4. *Share.* What the prediction takes away from the microphone's energy above its noise floor, over any span.

An echo alone is explained for the most part, whatever its level; speech is not explained at all; and speech over an
echo is explained by as much as the echo's part of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ, Span

FRAME_SAMPLES = 512
HOP_SAMPLES = 128
"""8 ms."""
MIN_SAMPLES = SAMPLE_RATE_HZ // 2
"""Less microphone audio than this cannot be fitted."""

LEAD_SAMPLES = 75 * HOP_SAMPLES
"""How much earlier than the microphone's first sample the reference must begin: 0.6 s."""
AHEAD_SAMPLES = 8 * HOP_SAMPLES + FRAME_SAMPLES
"""How much later than the microphone's last sample it must end."""

_LOW_BIN, _HIGH_BIN = 6, 193  # 187 Hz to 6 kHz: below, loudspeakers of small devices are mute; above, little speech
_BINS_HZ = np.arange(_LOW_BIN, _HIGH_BIN) * (SAMPLE_RATE_HZ / FRAME_SAMPLES)
_WINDOW = np.sqrt(np.hanning(FRAME_SAMPLES + 1)[:-1])
_LAGS = np.arange(-4, 66)
"""Delays that are searched, in hops: -32 to 520 ms. A little before zero, since the stream is stamped in frames."""
_DRIFTS_PPM = np.arange(-200, 201, 10)
_DELAY_BLOCK = 32
_CANDIDATES = 4
_FIT_BLOCK = 24
_TAPS_BEFORE = 2
_TAPS = 12
"""16 ms before the peak to 72 ms behind it, each tap a window 32 ms wide. Fewer leave more of a room unexplained."""
_ROUNDS = 2
_RIDGE = 1e-2
_WEIGHT_FLOOR = 0.1
_NOISE_PERCENTILE = 10.0
_NOISE_MARGIN = 1.5
"""The tenth percentile of a noise's power stands about 1.5 times below what is to be taken off in the mean."""
_SILENT_POWER = 1e-10

Complex = npt.NDArray[np.complex64]
Power = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class EchoPath:
    """Where in time the echo was found.

    Attributes:
        delay_samples: from the reference to the microphone, to 8 ms.
        drift_ppm: how much faster the delay grows than time passes, to 10 ppm.
        coherence: mean over the bands of the squared coherence at that delay, 0 to 1. An echo alone gives 0.2 to 0.9;
            no echo gives about one over the number of independent frames.
    """

    delay_samples: int
    drift_ppm: float
    coherence: float


@dataclass(frozen=True, slots=True, eq=False)
class EchoEstimate:
    """A stretch of microphone audio with what is explained of it.

    Attributes:
        path: the echo's delay and drift as far as found, or None; meaningless where nothing is explained.
        samples: length of the audio.
        power: float64 ``(frames,)``, the microphone's energy above its noise floor, every 8 ms.
        left: float64 ``(frames,)``, what the prediction leaves of it; above ``power`` where a fit did harm.
    """

    path: EchoPath | None
    samples: int
    power: Power = field(repr=False)
    left: Power = field(repr=False)

    def energy(self, span: Span) -> tuple[float, float]:
        """Energy above the noise floor and what is left of it, in a span relative to the audio's first sample."""
        # A frame stands for its middle; the shortest span takes the frame that is nearest to it.
        first = (span.start_sample - FRAME_SAMPLES // 2) // HOP_SAMPLES
        last = (span.end_sample - FRAME_SAMPLES // 2) // HOP_SAMPLES
        first = min(max(0, first), max(0, self.power.size - 1))
        last = min(max(first + 1, last), self.power.size)
        return float(self.power[first:last].sum()), float(self.left[first:last].sum())

    def share(self, span: Span) -> float | None:
        """The share of the energy in a span that our playback explains, 0 to 1; None as for ``explained``."""
        return explained(*self.energy(span))


def explained(energy: float, left: float) -> float | None:
    """The explained share of an energy, 0 to 1; None when there is none above the noise floor."""
    if not energy > _SILENT_POWER:
        return None
    return float(np.clip(1.0 - left / energy, 0.0, 1.0))


def estimate_echo(microphone: npt.NDArray[np.float32], reference: npt.NDArray[np.float32]) -> EchoEstimate:
    """Fit the echo of a reference in microphone audio.

    Args:
        microphone: float32 ``(n,)`` at 16 kHz, at least ``MIN_SAMPLES``. One to five seconds are best: a fit over
            longer audio averages over a path that moves.
        reference: float32 ``(LEAD_SAMPLES + n + AHEAD_SAMPLES,)``: what was played, beginning ``LEAD_SAMPLES`` before
            the microphone audio.

    Returns:
        The estimate; with a silent reference nothing is explained.

    Raises:
        ValueError: when lengths do not fit or a sample is not finite.
    """
    if microphone.size < MIN_SAMPLES or reference.size != LEAD_SAMPLES + microphone.size + AHEAD_SAMPLES:
        raise ValueError(f"cannot compare {microphone.size} samples with {reference.size} of reference")
    if not (np.isfinite(microphone).all() and np.isfinite(reference).all()):
        raise ValueError("cannot compare samples that are not finite")
    heard = _spectra(microphone)
    played = _spectra(reference)
    noise = _NOISE_MARGIN * np.percentile(_power(heard), _NOISE_PERCENTILE, axis=0)
    path = _find_path(heard, played)
    if path is None:
        power = np.maximum(_power(heard) - noise, 0.0).sum(axis=1)
        return EchoEstimate(None, microphone.size, power, power)
    lag = path.delay_samples // HOP_SAMPLES
    left = heard - _predict(heard, _drifted(played, path.drift_ppm), lag)
    return EchoEstimate(
        path,
        microphone.size,
        np.maximum(_power(heard) - noise, 0.0).sum(axis=1),
        np.maximum(_power(left) - noise, 0.0).sum(axis=1),
    )


def _spectra(audio: npt.NDArray[np.float32]) -> Complex:
    """Short-time spectra of the used bands, complex64 ``(frames, bins)``."""
    frames = np.lib.stride_tricks.sliding_window_view(audio, FRAME_SAMPLES)[::HOP_SAMPLES]
    return np.asarray(np.fft.rfft(frames * _WINDOW, axis=1)[:, _LOW_BIN:_HIGH_BIN], np.complex64)


def _power(spectra: Complex) -> Power:
    return np.square(np.abs(spectra), dtype=np.float64)


def _at_lag(played: Complex, lag: int, frames: int) -> Complex:
    """The reference as it was ``lag`` hops before each of the microphone's frames."""
    first = LEAD_SAMPLES // HOP_SAMPLES - lag
    return played[first : first + frames]


def _half_whitened(spectra: Complex) -> Complex:
    return np.asarray(spectra / np.sqrt(np.abs(spectra) + 1e-6), np.complex64)


def _find_path(heard: Complex, played: Complex) -> EchoPath | None:
    """The delay and the drift at which the reference fits best; None when either signal is silent."""
    frames = len(heard)
    mic, ref = _half_whitened(heard), _half_whitened(played)
    edges = np.arange(0, frames, _DELAY_BLOCK)
    cross = np.stack([np.add.reduceat(mic * _at_lag(ref, int(lag), frames).conj(), edges) for lag in _LAGS])
    heard_sum = np.square(np.abs(mic)).sum(axis=0)
    played_sum = np.square(np.abs(ref)).sum(axis=0)
    if not (heard_sum.max() > 0.0 and played_sum.max() > 0.0):
        return None
    # Each band by its own powers, or a loud vowel of somebody else's would outweigh an echo in all other bands.
    scale = 1.0 / (heard_sum * played_sum + 1e-12)
    likely = np.argsort(-(np.square(np.abs(cross)).sum(axis=1) * scale).sum(axis=1))[:_CANDIDATES]
    middle_s = (edges + np.minimum(edges + _DELAY_BLOCK, frames)) / 2 * (HOP_SAMPLES / SAMPLE_RATE_HZ)
    turns = 2e-6 * np.pi * _DRIFTS_PPM[:, None, None] * middle_s[None, :, None] * _BINS_HZ
    slopes = np.asarray(np.exp(1j * turns), np.complex64)
    best = EchoPath(0, 0.0, -1.0)
    for place in likely:
        in_step = np.square(np.abs((cross[place] * slopes).sum(axis=1)))
        coherence = (in_step * scale).mean(axis=1)
        drift = int(np.argmax(coherence))
        if coherence[drift] > best.coherence:
            delay = int(_LAGS[place]) * HOP_SAMPLES
            best = EchoPath(delay, float(_DRIFTS_PPM[drift]), float(coherence[drift]))
    return best


def _drifted(played: Complex, drift_ppm: float) -> Complex:
    """The reference with a delay that grows by ``drift_ppm`` from the microphone's first frame on."""
    time_s = (np.arange(len(played)) - LEAD_SAMPLES // HOP_SAMPLES) * (HOP_SAMPLES / SAMPLE_RATE_HZ)
    turns = -2e-6 * np.pi * drift_ppm * time_s[:, None] * _BINS_HZ
    return np.asarray(played * np.exp(1j * turns), np.complex64)


def _predict(heard: Complex, played: Complex, lag: int) -> Complex:
    """Each block of the microphone's frames, predicted by a path that was fitted on all other blocks."""
    frames, bins = heard.shape
    first = LEAD_SAMPLES // HOP_SAMPLES - lag - (_TAPS - 1 - _TAPS_BEFORE)
    # Oldest tap first: row t of band f holds the reference in the frames that can sound in frame t.
    taps = np.lib.stride_tricks.sliding_window_view(played[first : first + frames + _TAPS - 1], _TAPS, axis=0)
    taps = np.ascontiguousarray(taps.transpose(1, 0, 2))
    target = np.ascontiguousarray(heard.T)
    edges = np.linspace(0, frames, max(3, round(frames / _FIT_BLOCK)) + 1).astype(int)
    blocks = [slice(start, end) for start, end in pairwise(edges)]
    predicted = np.zeros_like(target)
    error = np.square(np.abs(target))
    for _ in range(_ROUNDS):
        weight = 1.0 / (error + _WEIGHT_FLOOR * error.mean(axis=1, keepdims=True) + 1e-12)
        normal = []
        right = []
        for block in blocks:
            weighted = (taps[:, block].conj() * weight[:, block, None]).transpose(0, 2, 1)
            normal.append(weighted @ taps[:, block])
            right.append(weighted @ target[:, block, None])
        all_normal, all_right = sum(normal[1:], normal[0]), sum(right[1:], right[0])
        for block, own_normal, own_right in zip(blocks, normal, right, strict=True):
            others = all_normal - own_normal
            scale = np.trace(others, axis1=1, axis2=2).real / _TAPS
            others = others + (_RIDGE * scale + 1e-12)[:, None, None] * np.eye(_TAPS, dtype=np.float32)
            path = np.linalg.solve(others, all_right - own_right)
            predicted[:, block] = (taps[:, block] @ path)[..., 0]
        error = np.square(np.abs(target - predicted))
    assert predicted.shape == (bins, frames), "one prediction a band and frame"
    return np.asarray(predicted.T, np.complex64)
