"""Kaldi's log mel filter bank in NumPy: what the speaker networks read.

Follows Kaldi's ``compute-fbank-feats`` with its defaults except for 80 bins and no dither: frames of 25 ms every 10
ms that lie wholly inside the audio, DC removed and pre-emphasised frame by frame, Povey window, 512-point power
spectrum, triangular filters on the scale ``1127 ln(1 + f/700)`` from 20 Hz to the Nyquist frequency, natural
logarithm. Povey et al., "The Kaldi speech recognition toolkit", ASRU 2011.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio

FRAME_SAMPLES = 400
"""25 ms."""
HOP_SAMPLES = 160
"""10 ms."""

_FFT_SAMPLES = 512
_LOW_HZ = 20.0
_PRE_EMPHASIS = 0.97
_INT16_SCALE = 32_768.0
_FLOOR = float(np.finfo(np.float32).eps)


def frame_count(samples: int) -> int:
    """How many frames :func:`kaldi_fbank` makes of ``samples`` samples; 0 when they do not fill one."""
    return 0 if samples < FRAME_SAMPLES else 1 + (samples - FRAME_SAMPLES) // HOP_SAMPLES


def kaldi_fbank(audio: Audio, bins: int = 80) -> npt.NDArray[np.float32]:
    """Log mel filter bank energies.

    The audio is scaled to the 16-bit range first, as Kaldi reads it, so that its floor never touches audible sound.

    Args:
        audio: float32 ``(samples,)`` at 16 kHz in [-1, 1].
        bins: number of mel filters.

    Returns:
        float32 ``(frames, bins)``, 100 frames a second; ``(0, bins)`` for less than 25 ms.

    Raises:
        ValueError: when ``audio`` is not one-dimensional.
    """
    if audio.ndim != 1:
        raise ValueError(f"audio must be one-dimensional, got shape {audio.shape}")
    if audio.size < FRAME_SAMPLES:
        return np.zeros((0, bins), dtype=np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(audio.astype(np.float32, copy=False), FRAME_SAMPLES)[
        ::HOP_SAMPLES
    ]
    frames = frames * np.float32(_INT16_SCALE)
    frames -= frames.mean(axis=1, keepdims=True)
    # Kaldi's pre-emphasis takes the frame's own first sample as its predecessor.
    previous = np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    frames -= np.float32(_PRE_EMPHASIS) * previous
    frames *= _povey_window()
    spectrum = np.fft.rfft(frames, n=_FFT_SAMPLES, axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    energies = power.astype(np.float32, copy=False) @ _mel_filters(bins)
    features: npt.NDArray[np.float32] = np.log(np.maximum(energies, np.float32(_FLOOR)))
    return features


@lru_cache(maxsize=1)
def _povey_window() -> npt.NDArray[np.float32]:
    """Hann window to the power 0.85, float32 ``(400,)``."""
    phase = 2.0 * np.pi * np.arange(FRAME_SAMPLES) / (FRAME_SAMPLES - 1)
    return ((0.5 - 0.5 * np.cos(phase)) ** 0.85).astype(np.float32)


@lru_cache(maxsize=4)
def _mel_filters(bins: int) -> npt.NDArray[np.float32]:
    """Triangular filters, float32 ``(257, bins)``; Kaldi gives the Nyquist bin no weight."""

    def mel(hz: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return 1127.0 * np.log1p(hz / 700.0)

    lowest, highest = mel(np.array([_LOW_HZ, SAMPLE_RATE_HZ / 2]))
    edges = np.linspace(float(lowest), float(highest), bins + 2)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    at = mel(np.arange(_FFT_SAMPLES // 2, dtype=np.float64) * (SAMPLE_RATE_HZ / _FFT_SAMPLES))[:, None]
    rising = (at - left) / (centre - left)
    falling = (right - at) / (right - centre)
    filters = np.zeros((_FFT_SAMPLES // 2 + 1, bins), dtype=np.float32)
    filters[:-1] = np.maximum(0.0, np.minimum(rising, falling))
    return filters
