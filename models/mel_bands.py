"""Mel-band power in NumPy, and its level-free form: the front end of the proximity and damage ears.

Frames of 25 ms every 10 ms, periodic Hann window, 512-point transform, 48 triangular filters between 60 Hz and 7.8
kHz on the mel scale of O'Shaughnessy (1987), ten times the decimal logarithm. Nothing is padded: frame ``t`` holds
samples ``[160 t, 160 t + 400)`` and no others.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ

WINDOW_SAMPLES = 400
HOP_SAMPLES = 160
BANDS = 48

_FFT_SAMPLES = 512
_LOW_HZ = 60.0
_HIGH_HZ = 7_800.0
_FLOOR_POWER = 1e-14
# The block bounds memory: an hour of audio would otherwise be one array of gigabytes.
_BLOCK_FRAMES = 4_096

FloatArray = npt.NDArray[np.float32]


def frame_count(samples: int) -> int:
    """How many frames audio of that many samples has."""
    return 0 if samples < WINDOW_SAMPLES else 1 + (samples - WINDOW_SAMPLES) // HOP_SAMPLES


def mel_band_db(audio: npt.NDArray[np.float32]) -> FloatArray:
    """Power per frame and mel band in dB.

    Args:
        audio: float32 ``(samples,)`` at 16 kHz.

    Returns:
        float32 ``(frames, 48)``; ``frames`` is 0 when the audio is shorter than one window. Digital silence is -140 dB.
    """
    count = frame_count(audio.size)
    out = np.empty((count, BANDS), dtype=np.float32)
    if count == 0:
        return out
    frames = np.lib.stride_tricks.sliding_window_view(audio.astype(np.float32, copy=False), WINDOW_SAMPLES)[
        ::HOP_SAMPLES
    ]
    filters = _filters()
    for start in range(0, count, _BLOCK_FRAMES):
        spectrum = np.fft.rfft(frames[start : start + _BLOCK_FRAMES] * _window(), n=_FFT_SAMPLES, axis=1)
        power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32, copy=False)
        out[start : start + _BLOCK_FRAMES] = 10.0 * np.log10(np.maximum(power @ filters, np.float32(_FLOOR_POWER)))
    return out


def running_level_db(bands_db: FloatArray, half_frames: int) -> FloatArray:
    """Level around each frame: the mean power over ``half_frames`` before and after it, in dB.

    Args:
        bands_db: ``(frames, bands)`` from :func:`mel_band_db`.
        half_frames: reach to each side; at the ends only what exists is averaged.

    Returns:
        float32 ``(frames,)``.
    """
    power = np.power(10.0, bands_db.astype(np.float64) / 10.0).sum(axis=1)
    total = np.concatenate(([0.0], np.cumsum(power)))
    index = np.arange(len(power))
    low = np.maximum(index - half_frames, 0)
    high = np.minimum(index + half_frames + 1, len(power))
    # A cumulative sum's difference can come out as a tiny negative number after loud audio.
    mean = np.maximum((total[high] - total[low]) / (high - low), _FLOOR_POWER)
    return np.asarray(10.0 * np.log10(mean), dtype=np.float32)


@lru_cache(maxsize=1)
def _window() -> FloatArray:
    return (0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(WINDOW_SAMPLES) / WINDOW_SAMPLES)).astype(np.float32)


@lru_cache(maxsize=1)
def _filters() -> FloatArray:
    """Triangles of unit peak, float32 ``(257, 48)``."""

    def mel(hz: float) -> float:
        return float(2595.0 * np.log10(1.0 + hz / 700.0))

    points = 700.0 * (10.0 ** (np.linspace(mel(_LOW_HZ), mel(_HIGH_HZ), BANDS + 2) / 2595.0) - 1.0)
    bins = np.arange(_FFT_SAMPLES // 2 + 1) * SAMPLE_RATE_HZ / _FFT_SAMPLES
    rising = (bins[:, None] - points[:-2]) / np.diff(points)[:-1]
    falling = (points[2:] - bins[:, None]) / np.diff(points)[1:]
    return np.maximum(0.0, np.minimum(rising, falling)).astype(np.float32)
