"""Music for masks, made note by note from a seed: chords that sustain, a bass under them, a figure over them, a beat.

Written apart from the music that detectors here are trained with, so that a mask is not of a detector's own making.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ

FloatArray = npt.NDArray[np.float64]

BEATS_A_BAR = 4
PROGRESSIONS = (
    ((0, 4, 7), (9, 12, 16), (5, 9, 12), (7, 11, 14)),  # I vi IV V
    ((0, 4, 7), (7, 11, 14), (9, 12, 16), (5, 9, 12)),  # I V vi IV
    ((0, 3, 7), (8, 12, 15), (3, 7, 10), (10, 14, 17)),  # i VI III VII
    ((2, 5, 9), (7, 11, 14), (0, 4, 7), (0, 4, 9)),  # ii V I I6
)
"""Chords in semitones above the key, one a bar."""

_BANDS_HZ = 7000.0
_TOP_HARMONIC = 12


def played(rng: np.random.Generator, samples: int) -> FloatArray:
    """A stretch out of the middle of a piece.

    Args:
        rng: draws key, tempo, progression, voicing and where the stretch begins.
        samples: its length.

    Returns:
        float64 ``(samples,)`` of mean power 1; it never falls silent.
    """
    beat = round(SAMPLE_RATE_HZ * 60.0 / rng.uniform(84.0, 138.0))
    tonic_hz = 110.0 * 2.0 ** (rng.integers(0, 12) / 12.0)
    progression = PROGRESSIONS[int(rng.integers(len(PROGRESSIONS)))]
    tilt = rng.uniform(1.0, 1.8)
    start = int(rng.integers(0, beat * BEATS_A_BAR * len(progression)))
    figure = rng.permutation(8)
    out = np.zeros(samples)
    bar = beat * BEATS_A_BAR
    for number in range(start // bar - 1, (start + samples) // bar + 1):
        chord = progression[number % len(progression)]
        for semitone in chord:
            _note(out, number * bar - start, bar, tonic_hz * _ratio(semitone), 0.08, 4.0, tilt + 0.4)
        _note(out, number * bar - start, bar // 2, tonic_hz / 2 * _ratio(chord[0]), 0.01, 1.2, tilt, 1.6)
        _note(
            out, number * bar + bar // 2 - start, bar // 2, tonic_hz / 2 * _ratio(chord[2] - 12), 0.01, 1.2, tilt, 1.2
        )
        for step in range(2 * BEATS_A_BAR):
            pitch = chord[int(figure[step]) % 3] + 12 * (1 + int(figure[step]) // 6)
            _note(out, number * bar + step * beat // 2 - start, beat, tonic_hz * _ratio(pitch), 0.004, 0.35, tilt, 0.9)
        for step in range(BEATS_A_BAR):
            _tick(out, number * bar + step * beat + beat // 2 - start, rng)
    return np.asarray(out / np.sqrt(np.mean(out**2)))


def _ratio(semitones: int) -> float:
    return float(2.0 ** (semitones / 12.0))


def _note(
    out: FloatArray, at: int, samples: int, pitch_hz: float, attack_s: float, decay_s: float, tilt: float,
    level: float = 1.0,
) -> None:  # fmt: skip
    """Add a note of harmonics that fall by ``tilt``, at most up to 7 kHz."""
    first, last = max(at, 0), min(at + samples, out.size)
    if first >= last:
        return
    time_s = np.arange(first - at, last - at) / SAMPLE_RATE_HZ
    release = np.clip((at + samples - np.arange(first, last)) / (0.02 * SAMPLE_RATE_HZ), 0.0, 1.0)
    envelope = np.minimum(time_s / attack_s, 1.0) * np.exp(-time_s / decay_s) * release
    wave = np.zeros(last - first)
    for harmonic in range(1, min(_TOP_HARMONIC, int(_BANDS_HZ / pitch_hz)) + 1):
        wave += harmonic**-tilt * np.sin(2 * np.pi * pitch_hz * harmonic * time_s)
    out[first:last] += level * envelope * wave


def _tick(out: FloatArray, at: int, rng: np.random.Generator) -> None:
    """Add a closed hi-hat: 30 ms of bright noise."""
    samples = round(0.03 * SAMPLE_RATE_HZ)
    noise = np.diff(rng.standard_normal(samples + 1)) * np.exp(-np.arange(samples) / (0.008 * SAMPLE_RATE_HZ))
    first, last = max(at, 0), min(at + samples, out.size)
    if first < last:
        out[first:last] += 0.5 * noise[first - at : last - at]
