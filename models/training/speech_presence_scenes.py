"""Recordings on which a second look at turns is judged: sounds without a word in them, and speech easily missed.

The sounds stand where a gate hears them, over a quiet room, starting and stopping; the speech is real, at levels and
in backgrounds at which a detector fails. Whispering is speech whose voice was replaced by noise through the same vocal
tract, frame by frame, for no whispered recordings were to be had. The same seed, kind and number always give the same
recording.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ, Span
from models.training import corpus, devices, sounds
from models.training.corpus import Part

VOICED_NOISES: Final = ("coffee-shop", "Karissa")
"""Recordings whose names begin so are noise and music with voices: people talk in the one and sing in the other."""
STREAM_S: Final = 60.0
"""Length of a recording without speech."""
MARGIN_S: Final = 1.5
"""Background before and after an utterance."""

_MAX_UTTERANCE_S = 4.0
_ROOM_DBFS = -70.0
_LPC_ORDER = 20
_LPC_FRAME_SAMPLES = 400
_LPC_HOP_SAMPLES = 100

FloatArray = npt.NDArray[np.float64]
Audio = npt.NDArray[np.float32]
Maker = Callable[[np.random.Generator, int], FloatArray]


@dataclass(frozen=True, slots=True)
class Scene:
    """One recording.

    Attributes:
        kind: what it holds ("typing", "whispered").
        name: the recording that it was made of, or the kind again.
        audio: float32 ``(samples,)`` at 16 kHz.
        speech: where the utterance is, or None where nobody speaks.
    """

    kind: str
    name: str
    audio: Audio
    speech: Span | None


# Sounds without speech ------------------------------------------------------------------------------------------------


def white_noise(rng: np.random.Generator, samples: int) -> FloatArray:
    """Hiss that starts and stops: a tap, a spray, a kettle."""
    return _on_and_off(rng, samples, lambda size: sounds.coloured_noise(rng, size, 0.0))


def other_noise(rng: np.random.Generator, samples: int) -> FloatArray:
    """Coloured and band-limited noise that starts and stops."""

    def make(size: int) -> FloatArray:
        if rng.random() < 0.5:
            return sounds.coloured_noise(rng, size, rng.uniform(-9.0, -2.0))
        return sounds.band_noise(rng, size)

    return _on_and_off(rng, samples, make)


def appliance(rng: np.random.Generator, samples: int) -> FloatArray:
    """A motor: hum with harmonics and a hiss, both swelling a few times a second, run up and switched off."""

    def make(size: int) -> FloatArray:
        time_s = np.arange(size) / SAMPLE_RATE_HZ
        hz = math.exp(rng.uniform(math.log(45.0), math.log(400.0)))
        run_up = 1.0 - 0.5 * np.exp(-time_s / rng.uniform(0.1, 0.8))
        phase = 2 * math.pi * hz * np.cumsum(run_up) / SAMPLE_RATE_HZ
        hum = sum(rng.uniform(0.2, 1.0) / n * np.sin(n * phase + rng.uniform(0, 6.3)) for n in range(1, 12))
        out = sounds.unit_power(np.asarray(hum)) + rng.uniform(0.2, 2.0) * sounds.coloured_noise(
            rng, size, rng.uniform(-6.0, 0.0)
        )
        swell = 1.0 + rng.uniform(0.0, 0.9) * np.sin(2 * math.pi * rng.uniform(0.5, 9.0) * time_s)
        return sounds.unit_power(out * swell)

    return _on_and_off(rng, samples, make)


def beeps(rng: np.random.Generator, samples: int) -> FloatArray:
    """Microwaves, alarms and telephones: tones in a rhythm, some of two frequencies, some gliding."""

    def make(size: int) -> FloatArray:
        time_s = np.arange(size) / SAMPLE_RATE_HZ
        hz = math.exp(rng.uniform(math.log(400.0), math.log(3500.0)))
        glide = rng.choice([0.0, 0.0, 0.3]) * np.sin(2 * math.pi * rng.uniform(0.5, 4.0) * time_s)
        phase = 2 * math.pi * np.cumsum(hz * (1.0 + glide)) / SAMPLE_RATE_HZ
        second = rng.choice([0.0, 1.0]) * np.sin(phase * rng.uniform(1.1, 2.2))
        beat = (time_s * rng.uniform(0.7, 8.0)) % 1.0 < rng.uniform(0.2, 0.7)
        edge = np.convolve(beat.astype(np.float64), np.full(80, 1 / 80), mode="same")
        return sounds.unit_power((np.sin(phase) + second + rng.uniform(0.0, 0.5) * np.sin(3 * phase)) * edge)

    return _on_and_off(rng, samples, make)


def claps(rng: np.random.Generator, samples: int) -> FloatArray:
    """Claps, knocks and things put down, alone and in rows, with the room's decay behind them."""
    return _struck(rng, samples, lambda: 1.0 / rng.uniform(1.0, 6.0), rng.uniform(0.1, 0.7), rng.uniform(-25.0, -6.0))


def typing(rng: np.random.Generator, samples: int) -> FloatArray:
    """A keyboard: five to eleven keys a second with pauses for thought, each pressed and let go."""
    decay_s, peak_dbfs = rng.uniform(0.03, 0.15), rng.uniform(-45.0, -15.0)
    return _struck(rng, samples, lambda: 1.0 / rng.uniform(5.0, 11.0), decay_s, peak_dbfs, released=True)


def made_music(rng: np.random.Generator, samples: int) -> FloatArray:
    """Synthetic music that starts and stops."""
    return _on_and_off(rng, samples, lambda size: sounds.played_music(rng, size), 4.0, 20.0)


SOUNDS: Final[Mapping[str, Maker]] = {
    "white noise": white_noise,
    "other noise": other_noise,
    "appliances": appliance,
    "beeps and rings": beeps,
    "claps and knocks": claps,
    "typing": typing,
    "synthetic music": made_music,
}
"""Kinds that are made here. Each maker returns float64 samples at the level at which they are heard."""


def made_scene(kind: str, index: int, seed: int) -> Scene:
    """Recording number ``index`` of a kind in ``SOUNDS``, a minute long."""
    rng = np.random.default_rng([seed, list(SOUNDS).index(kind), index])
    samples = round(STREAM_S * SAMPLE_RATE_HZ)
    return Scene(kind, kind, _as_recorded(SOUNDS[kind](rng, samples) + _room(rng, samples, _ROOM_DBFS)), None)


def recorded_scene(recording: corpus.Recording, index: int, seed: int) -> Scene:
    """A recorded noise or piece of music that starts and stops over a quiet room, a minute long."""
    rng = np.random.default_rng([seed, 100, index])
    samples = round(STREAM_S * SAMPLE_RATE_HZ)
    source = [recording.read()]

    def make(size: int) -> FloatArray:
        return sounds.unit_power(sounds.excerpt(rng, source, size))

    audio = _on_and_off(rng, samples, make, 3.0, 15.0) + _room(rng, samples, _ROOM_DBFS)
    return Scene(recording.set_name, recording.path.stem, _as_recorded(audio), None)


def _on_and_off(
    rng: np.random.Generator,
    samples: int,
    make: Callable[[int], FloatArray],
    least_s: float = 0.3,
    most_s: float = 10.0,
) -> FloatArray:
    """Stretches of a sound at drawn levels, faded in and out, with silence between them."""
    out = np.zeros(samples)
    at = round(rng.uniform(0.5, 2.0) * SAMPLE_RATE_HZ)
    while at < samples:
        size = round(math.exp(rng.uniform(math.log(least_s), math.log(most_s))) * SAMPLE_RATE_HZ)
        size = min(size, samples - at)
        sound = make(size) * 10.0 ** (rng.uniform(-55.0, -18.0) / 20.0)
        fade = max(1, min(size // 2, round(rng.uniform(0.002, 0.2) * SAMPLE_RATE_HZ)))
        ramp = np.linspace(0.0, 1.0, fade)
        sound[:fade] *= ramp
        sound[-fade:] *= ramp[::-1]
        out[at : at + size] += sound
        at += size + round(rng.uniform(0.5, 3.0) * SAMPLE_RATE_HZ)
    return out


def _struck(
    rng: np.random.Generator,
    samples: int,
    every_s: Callable[[], float],
    rt60_s: float,
    peak_dbfs: float,
    *,
    released: bool = False,
) -> FloatArray:
    """Knocks in rows, with pauses between the rows."""
    out = np.zeros(samples)
    tail_time_s = np.arange(round(rt60_s * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    tail = rng.standard_normal(tail_time_s.size) * 10.0 ** (-3.0 * tail_time_s / rt60_s) * rng.uniform(0.02, 0.1)
    tail[0] = 1.0
    at = round(rng.uniform(0.3, 1.5) * SAMPLE_RATE_HZ)
    left = int(rng.integers(1, 25))
    while at < samples:
        _add(out, at, sounds.knock(rng) * 10.0 ** ((peak_dbfs + rng.uniform(-8.0, 0.0)) / 20.0))
        if released:
            later = at + round(rng.uniform(0.05, 0.11) * SAMPLE_RATE_HZ)
            _add(out, later, sounds.knock(rng) * 10.0 ** ((peak_dbfs + rng.uniform(-18.0, -6.0)) / 20.0))
        left -= 1
        at += round(every_s() * SAMPLE_RATE_HZ)
        if left <= 0:
            left = int(rng.integers(1, 25))
            at += round(rng.uniform(0.4, 3.0) * SAMPLE_RATE_HZ)
    from scipy.signal import fftconvolve

    return np.asarray(fftconvolve(out, tail)[:samples], dtype=np.float64)


def _add(out: FloatArray, at: int, sound: FloatArray) -> None:
    size = min(len(sound), len(out) - at)
    if size > 0:
        out[at : at + size] += sound[:size]


# Speech that is easily missed -----------------------------------------------------------------------------------------


CONDITIONS: Final = (
    "plain",
    "short",
    "quiet",
    "quiet and short",
    "whispered",
    "noise 20 dB",
    "noise 15 dB",
    "noise 10 dB",
    "noise 5 dB",
    "device",
)


def speech_scene(condition: str, recording: corpus.Recording, noises: Sequence[Audio], index: int, seed: int) -> Scene:
    """One utterance in one of ``CONDITIONS``."""
    rng = np.random.default_rng([seed, 200 + CONDITIONS.index(condition), index])
    voice = _utterance(rng, recording, "short" in condition)
    if condition == "whispered":
        voice = whispered(rng, voice)
    level_dbfs, floor_dbfs = -26.0, -65.0
    if "quiet" in condition:
        level_dbfs, floor_dbfs = -50.0, -75.0
    elif condition == "whispered":
        level_dbfs, floor_dbfs = -40.0, -70.0
    voice = _at_active_level(voice, level_dbfs)
    margin = round(MARGIN_S * SAMPLE_RATE_HZ)
    samples = len(voice) + 2 * margin
    if condition.startswith("noise"):
        snr_db = float(condition.split()[1])
        background = sounds.unit_power(sounds.excerpt(rng, noises, samples)) * 10.0 ** ((level_dbfs - snr_db) / 20.0)
    else:
        background = _room(rng, samples, floor_dbfs)
    audio = background
    audio[margin : margin + len(voice)] += voice
    if condition == "device":
        audio = devices.through_device(audio, rng)
    return Scene(condition, recording.set_name, _as_recorded(audio), Span(margin, margin + len(voice)))


def whispered(rng: np.random.Generator, voice: FloatArray) -> FloatArray:
    """The same words without a voice: linear prediction keeps the vocal tract, noise takes the place of the glottis.

    The residual of each frame of 25 ms is replaced by white noise of the same power, and lows are taken off, as the
    open glottis of a whisper does.

    Args:
        rng: draws the noise.
        voice: ``(samples,)``.
    """
    from scipy.linalg import solve_toeplitz
    from scipy.signal import butter, lfilter, sosfilt

    emphasised = np.append(voice[:1], voice[1:] - 0.97 * voice[:-1])
    window = np.hanning(_LPC_FRAME_SAMPLES)
    out = np.zeros(len(voice) + _LPC_FRAME_SAMPLES)
    for start in range(0, len(voice) - _LPC_FRAME_SAMPLES, _LPC_HOP_SAMPLES):
        frame = emphasised[start : start + _LPC_FRAME_SAMPLES] * window
        correlation = np.correlate(frame, frame, mode="full")[_LPC_FRAME_SAMPLES - 1 :][: _LPC_ORDER + 1]
        if correlation[0] <= 1e-12:
            continue
        correlation[0] *= 1.0 + 1e-5
        predictor = solve_toeplitz(correlation[:-1], correlation[1:])
        error = max(float(correlation[0] - predictor @ correlation[1:]), 0.0)
        excitation = rng.standard_normal(_LPC_FRAME_SAMPLES) * math.sqrt(error / _LPC_FRAME_SAMPLES)
        out[start : start + _LPC_FRAME_SAMPLES] += window * lfilter([1.0], np.append(1.0, -predictor), excitation)
    softened = lfilter([1.0], [1.0, -0.8], out[: len(voice)])
    return np.asarray(sosfilt(butter(1, 500.0, btype="highpass", fs=SAMPLE_RATE_HZ, output="sos"), softened))


def _utterance(rng: np.random.Generator, recording: corpus.Recording, short: bool) -> FloatArray:
    """From the first to the last sound of a recording, at most 4 s; or 0.25 to 0.6 s out of it."""
    audio = recording.read().astype(np.float64)
    voiced = np.flatnonzero(corpus.voiced_frames(recording.read()))
    audio = audio[voiced[0] * 160 : (voiced[-1] + 1) * 160]
    if not short:
        return audio[: round(_MAX_UTTERANCE_S * SAMPLE_RATE_HZ)].copy()
    size = min(len(audio), round(rng.uniform(0.25, 0.6) * SAMPLE_RATE_HZ))
    # A word holds a vowel; a fragment without one is breath or a consonant, which nobody needs to hear.
    active = corpus.voiced_frames(audio.astype(np.float32), 15.0).astype(np.float64)
    starts = rng.integers(0, len(audio) - size + 1, 20)
    at = int(max(starts, key=lambda start: float(active[start // 160 : (start + size) // 160].mean())))
    best = audio[at : at + size]
    fade = np.minimum(1.0, np.minimum(np.arange(size), np.arange(size)[::-1]) / 160.0)
    return np.asarray(best * fade, dtype=np.float64)


def _at_active_level(voice: FloatArray, dbfs: float) -> FloatArray:
    frames = voice[: len(voice) // 160 * 160].reshape(-1, 160)
    power = np.mean(frames**2, axis=1)
    active = power[power > np.percentile(power, 95) * 10.0**-2.5]
    return np.asarray(voice * (10.0 ** (dbfs / 20.0) / math.sqrt(float(active.mean()))), dtype=np.float64)


def _room(rng: np.random.Generator, samples: int, dbfs: float) -> FloatArray:
    return sounds.room_tone(rng, samples) * float(10.0 ** (dbfs / 20.0))


def _as_recorded(audio: FloatArray) -> Audio:
    return np.asarray(np.round(np.clip(audio, -1.0, 1.0) * 32767.0) / 32768.0, dtype=np.float32)


# Many of them --------------------------------------------------------------------------------------------------------


def quiet_scenes(folder: Path, parts: Sequence[Part], minutes: int, seed: int) -> Iterator[Scene]:
    """So many minutes of each kind of sound, and two of every recorded noise and piece of music of those parts."""
    for kind in SOUNDS:
        for index in range(minutes):
            yield made_scene(kind, index, seed)
    for number, recording in enumerate(recorded_noises(folder, parts)):
        for index in range(2):
            yield recorded_scene(recording, 10 * number + index, seed)


def recorded_noises(folder: Path, parts: Sequence[Part]) -> list[corpus.Recording]:
    """Noises and pieces of music."""
    return [r for part in parts for r in (*corpus.noises(folder, part), *corpus.music(folder, part))]


def spoken_scenes(
    pools: Sequence[Sequence[corpus.Recording]], noises: Sequence[Audio], utterances: int, seed: int
) -> Iterator[Scene]:
    """So many utterances in each condition, from the pools of recordings by turns."""
    rng = np.random.default_rng([seed, 300])
    for condition in CONDITIONS:
        for index, pool in enumerate(islice(cycle(pools), utterances)):
            yield speech_scene(condition, pool[int(rng.integers(len(pool)))], noises, index, seed)
