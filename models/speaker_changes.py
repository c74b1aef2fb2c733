"""Where one voice gives way to another inside a turn: binary segmentation, the same for every speaker ear.

The ear says where in a stretch the two sides differ most and whether that is enough; the stretch is cut there, in
the quietest moment nearby, and both parts are looked at again (Scott and Knott, 1974).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio
from models.word_edges import HOP_SAMPLES, loudness_db

MIN_SIDE_SAMPLES: Final = SAMPLE_RATE_HZ * 6 // 10
"""0.6 s: nothing can be told of the voice in less."""

_REACH_SAMPLES = SAMPLE_RATE_HZ // 5
_SMOOTH_FRAMES = 5
_DB_A_FRAME = 0.3
"""How much quieter a moment must be to be preferred to one 10 ms nearer."""

Strongest = Callable[[int, int], int | None]
"""From a stretch's first sample and one past its last, the sample at which the voice changes in it, or None."""


def find_changes(audio: Audio, strongest: Strongest) -> tuple[int, ...]:
    """Samples at which the voice changes.

    Args:
        audio: float32 ``(samples,)`` at 16 kHz.
        strongest: finds one change in a stretch; its answer leaves :data:`MIN_SIDE_SAMPLES` on both sides.

    Returns:
        Rising samples, each at least :data:`MIN_SIDE_SAMPLES` from the next and from both ends. Empty for audio
        that is too short to hold two voices or not finite.
    """
    if audio.ndim != 1 or audio.size < 2 * MIN_SIDE_SAMPLES or not np.isfinite(audio).all():
        return ()
    level_db = loudness_db(audio)
    kernel = np.ones(_SMOOTH_FRAMES) / _SMOOTH_FRAMES
    smooth_db = np.convolve(np.pad(level_db, _SMOOTH_FRAMES // 2, mode="edge"), kernel, "valid")

    def divide(start: int, end: int) -> list[int]:
        if end - start < 2 * MIN_SIDE_SAMPLES:
            return []
        at = strongest(start, end)
        if at is None:
            return []
        lowest = max(start + MIN_SIDE_SAMPLES, at - _REACH_SAMPLES)
        highest = min(end - MIN_SIDE_SAMPLES, at + _REACH_SAMPLES)
        frames = np.arange(-(-lowest // HOP_SAMPLES), min(highest // HOP_SAMPLES + 1, smooth_db.size))
        if frames.size:
            cost = smooth_db[frames] + _DB_A_FRAME * np.abs(frames - at // HOP_SAMPLES)
            at = int(frames[np.argmin(cost)]) * HOP_SAMPLES
        return [*divide(start, at), at, *divide(at, end)]

    return tuple(divide(0, audio.size))
