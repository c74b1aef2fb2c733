"""Reading a recording as the project hears it: float32, one channel, 16 kHz."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
import soxr

from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio


class RecordingError(OSError):
    """A recording cannot be read. The message names it."""


def read_recording(path: Path) -> Audio:
    """A whole recording.

    Args:
        path: any rate, width and channel count that libsndfile reads; channels are averaged.

    Returns:
        float32 ``(samples,)`` at 16 kHz.

    Raises:
        RecordingError: when it cannot be read, is empty or not finite.
    """
    try:
        samples, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, soundfile.LibsndfileError) as error:
        raise RecordingError(f"{path}: cannot be read: {error}") from error
    mono = samples.mean(axis=1)
    if rate_hz != SAMPLE_RATE_HZ:
        mono = soxr.resample(mono, rate_hz, SAMPLE_RATE_HZ)
    if mono.size == 0 or not np.isfinite(mono).all():
        raise RecordingError(f"{path}: is empty or not finite")
    return np.asarray(mono, np.float32)
