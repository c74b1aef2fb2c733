"""Seeded sounds that are not the talker: coloured noise, knocks and clicks, music, babble.

Everything here returns float64 ``(samples,)`` with a mean power of 1 unless it says otherwise; callers set the level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

SAMPLE_RATE_HZ = 16_000

FloatArray = npt.NDArray[np.float64]
Reader = Callable[[np.random.Generator, int], FloatArray]
"""Draws that many samples of something from a collection."""


def unit_power(x: npt.NDArray[np.floating]) -> FloatArray:
    """The same sound with mean power 1; digital silence stays what it is."""
    x = np.asarray(x, dtype=np.float64)
    power = float(np.mean(x**2)) if x.size else 0.0
    return np.asarray(x / math.sqrt(power) if power > 0 else x.copy(), dtype=np.float64)


def coloured_noise(rng: np.random.Generator, samples: int, slope_db_per_octave: float) -> FloatArray:
    """Gaussian noise whose spectrum falls by the given slope: 0 white, -3 pink, -6 brown."""
    size = max(samples, 64)
    spectrum = np.fft.rfft(rng.standard_normal(size))
    freqs = np.fft.rfftfreq(size, 1.0 / SAMPLE_RATE_HZ)
    gain = (np.maximum(freqs, 40.0) / 1000.0) ** (slope_db_per_octave / (20.0 * math.log10(2.0)))
    return unit_power(np.fft.irfft(spectrum * gain, size)[:samples])


def band_noise(rng: np.random.Generator, samples: int) -> FloatArray:
    """White noise through a drawn band between 100 Hz and 8 kHz, at least an octave wide."""
    from scipy.signal import butter, sosfilt

    low = math.exp(rng.uniform(math.log(100.0), math.log(2500.0)))
    high = min(7900.0, low * math.exp(rng.uniform(math.log(2.0), math.log(20.0))))
    sos = butter(3, (low, high), btype="bandpass", fs=SAMPLE_RATE_HZ, output="sos")
    return unit_power(sosfilt(sos, rng.standard_normal(samples)))


def room_tone(rng: np.random.Generator, samples: int) -> FloatArray:
    """The steady sound of an empty room: noise that falls by 3 to 9 dB an octave, sometimes with mains hum."""
    out = coloured_noise(rng, samples, rng.uniform(-9.0, -3.0))
    if rng.random() < 0.3:
        mains = rng.choice([50.0, 60.0])
        time_s = np.arange(samples) / SAMPLE_RATE_HZ
        for harmonic in (1, 2, 3, 5):
            phase = rng.uniform(0, 2 * math.pi)
            out += rng.uniform(0.0, 0.5) / harmonic * np.sin(2 * math.pi * mains * harmonic * time_s + phase)
    return unit_power(out)


def knock(rng: np.random.Generator) -> FloatArray:
    """A short struck or clicked sound (door, cup, key), 10 to 120 ms, peak 1."""
    samples = int(rng.uniform(0.01, 0.12) * SAMPLE_RATE_HZ)
    time_s = np.arange(samples) / SAMPLE_RATE_HZ
    out = np.zeros(samples)
    for _ in range(int(rng.integers(2, 6))):
        freq = math.exp(rng.uniform(math.log(80.0), math.log(5000.0)))
        out += (
            rng.uniform(0.2, 1.0)
            * np.sin(2 * math.pi * freq * time_s + rng.uniform(0, 6.3))
            * np.exp(-time_s / rng.uniform(0.003, 0.03))
        )
    out += rng.uniform(0.0, 0.5) * rng.standard_normal(samples) * np.exp(-time_s / 0.004)
    return np.asarray(out / max(float(np.abs(out).max()), 1e-9), dtype=np.float64)


def played_music(rng: np.random.Generator, samples: int) -> FloatArray:
    """Synthetic music: chords and a melody of decaying harmonic notes over an optional beat.

    Real pieces are few in the training data; this keeps a detector from learning those few by heart.
    """
    out = np.zeros(samples)
    beat_s = rng.uniform(0.25, 0.7)
    root = 55.0 * 2.0 ** (rng.integers(0, 24) / 12.0)
    scale = np.array([0, 2, 4, 5, 7, 9, 11]) if rng.random() < 0.5 else np.array([0, 2, 3, 5, 7, 8, 10])
    attack_s = rng.choice([0.003, 0.02, 0.1])
    decay_s = rng.uniform(0.2, 2.0)
    tilt = rng.uniform(0.8, 2.0)
    vibrato = rng.uniform(0.0, 0.008)
    offset_s = rng.uniform(0, beat_s)  # so that a stretch may begin inside a note
    beats = math.ceil((samples / SAMPLE_RATE_HZ + offset_s) / beat_s) + 1
    for beat in range(-2, beats):
        start = int((beat * beat_s - offset_s) * SAMPLE_RATE_HZ)
        degrees = [rng.integers(0, 7)] if beat % 4 else [0, 2, 4] + int(rng.integers(0, 7)) * np.ones(3, dtype=int)
        for degree in degrees:
            octave = 2.0 ** (int(degree) // 7 + rng.integers(0, 3))
            note = root * octave * 2.0 ** (scale[int(degree) % 7] / 12.0)
            _add_note(out, start, note, attack_s, decay_s, tilt, vibrato, rng)
        if rng.random() < 0.5:
            _mix_at(out, start, 0.7 * knock(rng))
    return unit_power(out)


def babble(rng: np.random.Generator, samples: int, voice: Reader, voices: int) -> FloatArray:
    """That many other talkers at once, each at a level drawn within +-3 dB."""
    total = np.zeros(samples)
    for _ in range(voices):
        total += unit_power(voice(rng, samples)) * 10.0 ** (rng.uniform(-3.0, 3.0) / 20.0)
    return unit_power(total)


def excerpt(rng: np.random.Generator, pool: Sequence[npt.NDArray[np.float32]], samples: int) -> FloatArray:
    """A drawn stretch of a drawn recording, repeated when the recording is shorter; not normalised."""
    source = pool[int(rng.integers(len(pool)))]
    if len(source) < samples:
        source = np.tile(source, math.ceil(samples / max(len(source), 1)))
    start = int(rng.integers(0, len(source) - samples + 1))
    return np.asarray(source[start : start + samples], dtype=np.float64)


def _add_note(
    out: FloatArray,
    start: int,
    hz: float,
    attack_s: float,
    decay_s: float,
    tilt: float,
    vibrato: float,
    rng: np.random.Generator,
) -> None:
    samples = min(int(2.5 * decay_s * SAMPLE_RATE_HZ), len(out) - start)
    if samples <= 0 or start + samples <= 0:
        return
    time_s = np.arange(samples) / SAMPLE_RATE_HZ
    envelope = np.minimum(1.0, time_s / attack_s) * np.exp(-time_s / decay_s)
    phase = 2 * math.pi * hz * (time_s + vibrato * np.sin(2 * math.pi * 5.5 * time_s) / 35.0)
    note = np.zeros(samples)
    for harmonic in range(1, 13):
        if hz * harmonic > 7500.0:
            break
        note += harmonic**-tilt * np.sin(harmonic * phase + rng.uniform(0, 6.3))
    _mix_at(out, start, note * envelope)


def _mix_at(out: FloatArray, start: int, sound: FloatArray) -> None:
    first = max(0, -start)
    last = min(len(sound), len(out) - start)
    if last > first:
        out[start + first : start + last] += sound[first:last]
