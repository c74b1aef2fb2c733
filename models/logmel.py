"""Whisper's log-mel spectrogram in NumPy: what the speech recogniser reads.

Radford et al., "Robust speech recognition via large-scale weak supervision", 2022: periodic Hann window of 25 ms
every 10 ms, the ends reflected, 80 area-normalised triangular filters on Slaney's mel scale, decimal logarithm,
dynamic range limited to 8 decades below the loudest bin, then mapped by ``(x + 4) / 4``.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio

WINDOW_SAMPLES = 400
"""25 ms; also the length of the Fourier transform."""
HOP_SAMPLES = 160
"""10 ms."""

_FLOOR = 1e-10
_RANGE_DECADES = 8.0
_LINEAR_HZ_PER_MEL = 200.0 / 3.0
_BREAK_HZ = 1_000.0
_LOG_STEP = np.log(6.4) / 27.0
"""Slaney's scale: linear below 1 kHz, then 27 steps for each factor of 6.4."""


def whisper_log_mel(audio: Audio, bins: int = 80) -> npt.NDArray[np.float32]:
    """Log-mel spectrogram of the audio as it is, without padding it to Whisper's usual 30 s.

    Args:
        audio: float32 ``(samples,)`` at 16 kHz in [-1, 1].
        bins: number of mel filters the model was trained with.

    Returns:
        float32 ``(bins, samples // 160)``, 100 columns a second.

    Raises:
        ValueError: when ``audio`` is not one-dimensional or too short to reflect (under 201 samples).
    """
    half = WINDOW_SAMPLES // 2
    if audio.ndim != 1 or audio.size <= half:
        raise ValueError(f"audio must be one-dimensional with more than {half} samples, got shape {audio.shape}")
    padded = np.pad(audio.astype(np.float32, copy=False), half, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW_SAMPLES)[::HOP_SAMPLES][
        : audio.size // HOP_SAMPLES
    ]
    spectrum = np.fft.rfft(frames * _hann_window(), axis=1)
    power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32, copy=False)
    log_mel = np.log10(np.maximum(_mel_filters(bins) @ power.T, np.float32(_FLOOR)))
    log_mel = np.maximum(log_mel, log_mel.max() - np.float32(_RANGE_DECADES))
    return np.ascontiguousarray((log_mel + 4.0) / 4.0, dtype=np.float32)


@lru_cache(maxsize=1)
def _hann_window() -> npt.NDArray[np.float32]:
    """Periodic Hann window, float32 ``(400,)``."""
    return (0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(WINDOW_SAMPLES) / WINDOW_SAMPLES)).astype(np.float32)


@lru_cache(maxsize=4)
def _mel_filters(bins: int) -> npt.NDArray[np.float32]:
    """Triangular filters of equal area, float32 ``(bins, 201)``."""

    def mel(hz: float) -> float:
        if hz < _BREAK_HZ:
            return hz / _LINEAR_HZ_PER_MEL
        return float(_BREAK_HZ / _LINEAR_HZ_PER_MEL + np.log(hz / _BREAK_HZ) / _LOG_STEP)

    mels = np.linspace(mel(0.0), mel(SAMPLE_RATE_HZ / 2), bins + 2)
    break_mel = mel(_BREAK_HZ)
    edges_hz = np.where(mels < break_mel, mels * _LINEAR_HZ_PER_MEL, _BREAK_HZ * np.exp(_LOG_STEP * (mels - break_mel)))
    at = np.arange(WINDOW_SAMPLES // 2 + 1) * (SAMPLE_RATE_HZ / WINDOW_SAMPLES)
    left, centre, right = (edge[:, None] for edge in (edges_hz[:-2], edges_hz[1:-1], edges_hz[2:]))
    triangles = np.maximum(0.0, np.minimum((at - left) / (centre - left), (right - at) / (right - centre)))
    filters: npt.NDArray[np.float32] = (triangles * (2.0 / (right - left))).astype(np.float32)
    return filters
