"""When a stretch of audio says nothing about who speaks. One rule for every speaker ear."""

from __future__ import annotations

from typing import Final

import numpy as np

from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio

FULL_SCALE: Final = 0.999
MAX_CLIPPED_SHARE: Final = 0.05
"""Of the samples. Speech overdriven by some 12 dB clips this much."""
_AUDIBLE = 10.0 ** (-75.0 / 20.0)
"""Root mean square under which a stretch counts as silence."""


def unfit(audio: Audio, min_samples: int) -> str:
    """Why a stretch is not worth embedding.

    Args:
        audio: float32 ``(samples,)`` at 16 kHz, the stretch itself.
        min_samples: the network's minimum.

    Returns:
        The reason in a few words, or an empty string.
    """
    if audio.ndim != 1 or audio.size < min_samples:
        return f"too short: {audio.size / SAMPLE_RATE_HZ:.2f} s of {min_samples / SAMPLE_RATE_HZ:.2f} s"
    if not np.isfinite(audio).all():
        return "not finite"
    if not float(np.sqrt(np.mean(np.square(audio, dtype=np.float64)))) >= _AUDIBLE:
        return "silent"
    clipped = float(np.mean(np.abs(audio) >= FULL_SCALE))
    if clipped > MAX_CLIPPED_SHARE:
        return f"clipped: {clipped:.0%} of samples at full scale"
    return ""


def inside(span: Span, samples: int) -> Span:
    """The part of ``span`` that lies in ``[0, samples)``."""
    start = min(span.start_sample, samples)
    return Span(start, max(start, min(span.end_sample, samples)))
