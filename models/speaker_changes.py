"""Where one voice gives way to another inside a turn: binary segmentation, the same for every speaker ear.

The ear says how much more the two sides of a sample differ than one person's two sides would. The turn is cut where
that is most, in the quietest moment nearby, and both parts are looked at again (Scott and Knott, 1974). In the end
each cut must hold between the parts that it really separates, or it is taken back, the weakest first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio
from models.word_edges import HOP_SAMPLES, loudness_db

MIN_SIDE_SAMPLES: Final = SAMPLE_RATE_HZ * 6 // 10
"""0.6 s: nothing can be told of the voice in less."""

_FINEST_SAMPLES = SAMPLE_RATE_HZ // 16
_REACH_SAMPLES = SAMPLE_RATE_HZ // 5
_SMOOTH_FRAMES = 5
_SIDE_FRAMES = 50
_PAUSE_DEPTH_DB = 10.0
_DB_A_FRAME = 0.3
"""How much quieter a moment must be to be preferred to one 10 ms nearer."""

Samples = npt.NDArray[np.int64]
Contrast = Callable[[int, Samples, int], npt.NDArray[np.float64]]
"""From a part's first sample, samples inside it, and one past its last: how far the voices before and after each of
these are from being one person's. Positive where they are two people's; ``-inf`` where it cannot be told."""


def find_changes(audio: Audio, contrast: Contrast, hop_samples: int) -> tuple[int, ...]:
    """Samples at which the voice changes.

    Args:
        audio: float32 ``(samples,)`` at 16 kHz.
        contrast: the ear's measure; asked only about samples with :data:`MIN_SIDE_SAMPLES` on both sides.
        hop_samples: how far apart the samples lie that are tried first; the best one is then refined.

    Returns:
        Rising samples, each at least :data:`MIN_SIDE_SAMPLES` from the next and from both ends. Empty for audio
        that is too short to hold two voices or not finite.
    """
    if audio.ndim != 1 or audio.size < 2 * MIN_SIDE_SAMPLES or not np.isfinite(audio).all():
        return ()
    kernel = np.ones(_SMOOTH_FRAMES) / _SMOOTH_FRAMES
    level_db = np.convolve(np.pad(loudness_db(audio), _SMOOTH_FRAMES // 2, mode="edge"), kernel, "valid")

    def divide(start: int, end: int) -> list[int]:
        first, last = start + MIN_SIDE_SAMPLES, end - MIN_SIDE_SAMPLES
        if first > last:
            return []
        at, score = _best(contrast, start, np.arange(first, last + 1, hop_samples), end)
        step = hop_samples // 2
        while step >= _FINEST_SAMPLES:
            nearby = np.clip(np.array([at - step, at, at + step]), first, last)
            at, score = _best(contrast, start, nearby, end)
            step //= 2
        if not score > 0.0:
            return []
        at = _pause_near(level_db, at, first, last)
        return [*divide(start, at), at, *divide(at, end)]

    found = divide(0, audio.size)
    while found:
        bounds = [0, *found, audio.size]
        held = [
            float(contrast(before, np.array([at]), after)[0])
            for before, at, after in zip(bounds[:-2], found, bounds[2:], strict=True)
        ]
        weakest = int(np.argmin(held))
        if held[weakest] > 0.0:
            break
        del found[weakest]
    return tuple(found)


def _best(contrast: Contrast, start: int, samples: Samples, end: int) -> tuple[int, float]:
    scores = contrast(start, samples, end)
    best = int(np.argmax(scores))
    return int(samples[best]), float(scores[best])


def _pause_near(level_db: npt.NDArray[np.float64], at: int, first: int, last: int) -> int:
    """The quietest moment within reach, or ``at`` where nobody pauses."""
    lowest, highest = max(first, at - _REACH_SAMPLES), min(last, at + _REACH_SAMPLES)
    frames = np.arange(-(-lowest // HOP_SAMPLES), min(highest // HOP_SAMPLES + 1, level_db.size))
    if frames.size == 0:
        return at
    middle = at // HOP_SAMPLES
    sides = level_db[max(0, middle - _SIDE_FRAMES) : middle + 1], level_db[middle : middle + _SIDE_FRAMES]
    # Only a pause attracts: where both talk on, the quieter voice is no better place than the louder one.
    pause_db = min(float(np.percentile(side, 80)) for side in sides if side.size) - _PAUSE_DEPTH_DB
    cost = np.minimum(level_db[frames], pause_db) + _DB_A_FRAME * np.abs(frames - middle)
    return int(frames[np.argmin(cost)]) * HOP_SAMPLES
