"""Sound as it is sent: a WAV file, 16 kHz, mono, 16 bits, in base64."""

from __future__ import annotations

import base64
import io
import wave

import numpy as np

from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio

_FULL_SCALE = 32767


def wav_bytes(audio: Audio) -> bytes:
    """A WAV file.

    Args:
        audio: float32 ``(samples,)``, finite; what is beyond [-1, 1] is clipped, as any sound card would.
    """
    samples = np.rint(np.clip(audio, -1.0, 1.0) * _FULL_SCALE).astype("<i2")
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE_HZ)
        file.writeframes(samples.tobytes())
    return out.getvalue()


def wav_base64(audio: Audio) -> str:
    """The same in base64, without a ``data:`` prefix."""
    return base64.b64encode(wav_bytes(audio)).decode("ascii")
