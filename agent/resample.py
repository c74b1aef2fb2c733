"""One continuous resampler for a whole stream.

Resampling each block from a cold start makes a click at every seam and drifts the length; one running filter does
neither. The filter is soxr's "HQ" (linear phase, the pass band reaches 91 % of the lower rate's half), so file, pipe
and microphone hear the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import soxr

from gate.span import SAMPLE_RATE_HZ

MIN_RATE_HZ = 4_000
MAX_RATE_HZ = 768_000
NARROW_BAND_RATE_HZ = 8_000
"""At this rate and below, the upper half of the speech band is missing."""


class StreamResampler:
    """Mono float32 at any rate to mono float32 at 16 kHz, block by block.

    The result does not depend on the size of the blocks. The filter holds back up to 41 ms of audio from 44.1 kHz, 37
    ms from 48 kHz, nothing from 16 kHz; ``finish`` lets that out, and then ``round(samples in * 16000 / rate)`` samples
    have come out, one more or less.

    Args:
        rate_hz: the input's rate.

    Raises:
        ValueError: when the rate lies outside 4 to 768 kHz.
    """

    def __init__(self, rate_hz: int) -> None:
        if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
            raise ValueError(f"cannot resample from {rate_hz} Hz: {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz")
        self.rate_hz = rate_hz
        self._stream = None if rate_hz == SAMPLE_RATE_HZ else soxr.ResampleStream(rate_hz, SAMPLE_RATE_HZ, 1, "float32")

    def push(self, samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Resample the next block, float32 ``(n,)``; returns what is ready, float32 ``(m,)``, which may be empty."""
        if self._stream is None:
            return samples
        return np.asarray(self._stream.resample_chunk(samples), np.float32)

    def finish(self) -> npt.NDArray[np.float32]:
        """Let out what the filter holds back and start afresh: what comes next is another stream."""
        if self._stream is None:
            return np.zeros(0, np.float32)
        rest = np.asarray(self._stream.resample_chunk(np.zeros(0, np.float32), last=True), np.float32)
        self._stream.clear()
        return rest
