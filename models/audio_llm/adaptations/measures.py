"""Plain measures of a stretch of sound: pitch, level, spectrum, and where somebody speaks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio
from models.word_edges import HOP_SAMPLES, active_frames, loudness_db

LOWEST_HZ = 60.0
HIGHEST_HZ = 400.0
_WINDOW = SAMPLE_RATE_HZ // 25
"""40 ms: more than two periods of the lowest pitch."""
_HOP = SAMPLE_RATE_HZ // 100
_APERIODIC_AT = 0.2
"""Above it a frame has no pitch; the method's authors take 0.1 to 0.15 for clean speech."""
_BELOW_LOUD_DB = 30.0
_AUDIBLE_DB = -75.0
"""Below it nobody speaks, whatever stands out."""
_PAUSE_SAMPLES = SAMPLE_RATE_HZ // 5
_SHORTEST_SAMPLES = SAMPLE_RATE_HZ // 10
_TILT_FROM_HZ, _TILT_TO_HZ = 125.0, 6000.0
_FLOOR = 1e-12

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pitch:
    """Pitch of the voiced frames of a stretch.

    Attributes:
        median_hz: the middle one.
        low_hz: a tenth of the frames lie below.
        high_hz: a tenth of the frames lie above.
        voiced: share of the frames that have a pitch, 0 to 1.
    """

    median_hz: float
    low_hz: float
    high_hz: float
    voiced: float


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Shape of the long-term spectrum.

    Attributes:
        tilt_db: slope from 125 Hz to 6 kHz, in dB an octave.
        centroid_hz: centre of its energy.
        high_db: energy from 4 to 8 kHz over that below 1 kHz. Walls and air take from it.
    """

    tilt_db: float
    centroid_hz: float
    high_db: float


def level_dbfs(audio: Audio) -> tuple[float, float]:
    """Root mean square and peak in dB relative to full scale, at least -120."""
    wide = audio.astype(np.float64)
    rms, peak = np.sqrt(np.mean(wide * wide) + _FLOOR), np.abs(wide).max() + 1e-6
    return float(20.0 * np.log10(rms)), float(20.0 * np.log10(peak))


def pitch(audio: Audio) -> Pitch | None:
    """Pitch by YIN (de Cheveigné and Kawahara, 2002), on frames within 30 dB of the loudest.

    Args:
        audio: float32 ``(samples,)`` at 16 kHz, finite.

    Returns:
        The pitch, or None where no frame has one.
    """
    shortest, longest = int(SAMPLE_RATE_HZ / HIGHEST_HZ), int(SAMPLE_RATE_HZ / LOWEST_HZ)
    size = _WINDOW + longest
    if audio.size < size:
        return None
    frames = np.lib.stride_tricks.sliding_window_view(audio.astype(np.float64), size)[::_HOP]
    power = np.mean(frames * frames, axis=1) + _FLOOR
    loud = frames[power >= 10.0 ** (max(10.0 * np.log10(power.max()) - _BELOW_LOUD_DB, _AUDIBLE_DB) / 10.0)]
    differences = _cumulative_mean_normalised(_differences(loud, longest))
    pitches = [hz for row in differences if (hz := _period_hz(row, shortest)) is not None]
    if not pitches:
        return None
    low, median, high = np.percentile(pitches, [10, 50, 90])
    return Pitch(float(median), float(low), float(high), len(pitches) / len(frames))


def _differences(frames: FloatArray, longest: int) -> FloatArray:
    """Squared difference of each frame and itself, shifted by 0 to ``longest`` samples: ``(frames, longest + 1)``."""
    size = frames.shape[1]
    points = 1 << (size + _WINDOW - 1).bit_length()
    head = np.fft.rfft(frames[:, :_WINDOW], points)
    products = np.fft.irfft(np.conj(head) * np.fft.rfft(frames, points), points)[:, : longest + 1]
    sums = np.concatenate([np.zeros((len(frames), 1)), np.cumsum(frames * frames, axis=1)], axis=1)
    shifts = np.arange(longest + 1)
    energies = sums[:, shifts + _WINDOW] - sums[:, shifts]
    return np.asarray(np.maximum(energies[:, :1] + energies - 2.0 * products, 0.0))


def _cumulative_mean_normalised(differences: FloatArray) -> FloatArray:
    shifts = np.arange(1, differences.shape[1])
    means = np.cumsum(differences[:, 1:], axis=1) / shifts
    out = np.ones_like(differences)
    out[:, 1:] = differences[:, 1:] / np.maximum(means, _FLOOR)
    return out


def _period_hz(row: FloatArray, shortest: int) -> float | None:
    """The pitch of one frame: the bottom of the first dip that is deep enough."""
    deep = np.flatnonzero(row[shortest:-1] < _APERIODIC_AT)
    if not deep.size:
        return None
    at = shortest + int(deep[0])
    while at + 1 < len(row) - 1 and row[at + 1] < row[at]:
        at += 1
    before, here, after = row[at - 1 : at + 2]
    bend = before - 2.0 * here + after
    shift = 0.5 * (before - after) / bend if bend > 0.0 else 0.0
    return float(SAMPLE_RATE_HZ / (at + np.clip(shift, -0.5, 0.5)))


def spectrum(audio: Audio) -> Spectrum:
    """Shape of the long-term power spectrum, from windows of 40 ms.

    Args:
        audio: float32 ``(samples,)`` at 16 kHz, finite, at least 40 ms.
    """
    frames = np.lib.stride_tricks.sliding_window_view(audio.astype(np.float64), _WINDOW)[:: _WINDOW // 2]
    power = np.mean(np.abs(np.fft.rfft(frames * np.hanning(_WINDOW), axis=1)) ** 2, axis=0) + _FLOOR
    hz = np.fft.rfftfreq(_WINDOW, 1.0 / SAMPLE_RATE_HZ)
    inside = (hz >= _TILT_FROM_HZ) & (hz <= _TILT_TO_HZ)
    octaves = np.log2(hz[inside])
    # Each octave weighs the same, however many bins it has.
    tilt_db = np.polyfit(octaves, 10.0 * np.log10(power[inside]), 1, w=np.sqrt(1.0 / hz[inside]))[0]
    high, low = power[hz >= 4000.0].sum(), power[(hz >= 50.0) & (hz < 1000.0)].sum()
    return Spectrum(float(tilt_db), float((hz * power).sum() / power.sum()), float(10.0 * np.log10(high / low)))


def sounding(audio: Audio) -> tuple[Span, ...]:
    """Stretches that sound, pauses of less than 0.2 s included, none shorter than 0.1 s; relative to ``audio``."""
    level_db = loudness_db(audio)
    active = active_frames(level_db) & (level_db > _AUDIBLE_DB)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], active, [False]]).astype(np.int8))) * HOP_SAMPLES
    spans = [Span(int(start), int(end)) for start, end in zip(edges[::2], edges[1::2], strict=True)]
    out: list[Span] = []
    for span in spans:
        if out and span.start_sample - out[-1].end_sample < _PAUSE_SAMPLES:
            out[-1] = out[-1].cover(span)
        else:
            out.append(span)
    return tuple(span for span in out if span.samples >= _SHORTEST_SAMPLES)


def cut_at(spans: tuple[Span, ...], changes: tuple[int, ...]) -> tuple[Span, ...]:
    """The same stretches, cut where the voice changes inside one."""
    out: list[Span] = []
    for span in spans:
        inside = [at for at in changes if span.start_sample < at < span.end_sample]
        out += [Span(start, end) for start, end in pairwise([span.start_sample, *inside, span.end_sample])]
    return tuple(out)
