"""Two short sounds, made here and not recorded: a rising "pardon" and a settled "done".

They stand in for speech where no synthesiser is installed, and fill the time until a sentence is ready.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from agent.playback import Sound

RATE_HZ = 24_000
PEAK = 0.2
"""-14 dBFS: audible beside speech, and no fright in an earphone."""

_EDGE_S = 0.012
_GAP_S = 0.02


@cache
def pardon() -> Sound:
    """Two notes, a fourth up, as a question rises: 0.28 s."""
    return _notes((440.0, 0.12), (587.33, 0.14))


@cache
def done() -> Sound:
    """Two notes, a fifth down to the octave of the first sound's start: 0.24 s."""
    return _notes((1318.51, 0.09), (880.0, 0.13))


def _notes(*notes: tuple[float, float]) -> Sound:
    gap = np.zeros(round(_GAP_S * RATE_HZ), np.float32)
    parts: list[np.ndarray] = []
    for index, (frequency_hz, seconds) in enumerate(notes):
        parts.extend([gap] if index else [])
        parts.append(_note(frequency_hz, seconds))
    samples = np.concatenate(parts)
    samples.setflags(write=False)
    return Sound(samples, RATE_HZ)


def _note(frequency_hz: float, seconds: float) -> np.ndarray:
    time_s = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    # A little of the octave makes the note heard on loudspeakers that drop what lies below 500 Hz.
    wave = np.sin(2 * np.pi * frequency_hz * time_s) + 0.3 * np.sin(4 * np.pi * frequency_hz * time_s)
    edge = np.minimum(np.minimum(time_s, time_s[-1] - time_s) / _EDGE_S, 1.0)
    shaped = wave * (0.5 - 0.5 * np.cos(np.pi * edge)) * np.exp(-time_s / seconds)
    return np.asarray(PEAK * shaped / np.max(np.abs(shaped)), np.float32)
