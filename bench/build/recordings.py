"""Recordings as the project hears them, one channel at 16 kHz: read from any file, written whole or not at all."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio

Container = Literal["wav", "flac"]


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


def write_recording(path: Path, samples: npt.NDArray[np.floating[Any]], container: Container) -> str:
    """Write a recording, 16 bits, whole or not at all.

    Args:
        path: the file.
        samples: float ``(samples,)`` at 16 kHz, held to full scale.
        container: what it is packed in; both hold the same samples.

    Returns:
        The file's sha256.
    """
    pcm = np.round(np.clip(samples, -1.0, 1.0) * 32767.0).astype(np.int16)
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    soundfile.write(draft, pcm, SAMPLE_RATE_HZ, format=container.upper(), subtype="PCM_16")
    digest = hashlib.sha256(draft.read_bytes()).hexdigest()
    draft.replace(path)
    return digest
