"""Seeded simulation of rooms: a dry recording in, the same words at a distance out, with what was measured on the way.

Early reflections come from the image-source method (Allen and Berkley, 1979) as implemented by pyroomacoustics, with
octave-band wall absorption and air absorption. The late field is, by default, Gaussian noise that decays per octave
band and takes over where the image source model of the chosen order stops being complete; its level is matched to the
energy of the last complete reflections. That keeps a 0.9 s room at some 20 ms of compute. ``Method.IMAGE`` runs the
image source model to the end instead and serves as an independent second renderer for tests.

Alignment: pyroomacoustics centres each arrival in an 81-tap fractional-delay filter, which delays everything by 40
samples, and sound needs ``distance / c`` to arrive. :func:`render` removes both, so sample ``n`` of the output holds
the direct sound of sample ``n`` of the input (to the nearest sample) and word times stay true.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

SAMPLE_RATE_HZ = 16_000
SPEED_OF_SOUND_M_S = 343.0
BANDS_HZ = (125.0, 250.0, 500.0, 1000.0, 2000.0, 4000.0, 8000.0)
"""Centres of the octave bands in which absorption is given."""

SIMULATOR_DELAY_SAMPLES = 40
"""Half of pyroomacoustics' 81-tap fractional-delay filter."""

_MID_BANDS = (2, 3)  # 500 Hz and 1 kHz: the bands by which a room's RT60 is usually named
_WALLS = ("west", "east", "south", "north", "floor", "ceiling")
_EARLY_ORDER = 12
_DIRECT_HALF_WINDOW_S = 0.0025  # the usual window around the direct sound in DRR measurements
_MAX_ABSORPTION = 0.97

# How much less a talker radiates straight backwards than forwards, in dB per octave band, after the measurements of
# Chu and Warnock, "Detailed directivity of sound fields around human talkers" (2002), smoothed.
_BACKWARD_LOSS_DB = np.array([2.0, 3.0, 5.0, 6.0, 9.0, 13.0, 18.0])

FloatArray = npt.NDArray[np.float64]


class ImpossibleRoomError(ValueError):
    """No wall material gives this room the reverberation time asked for."""


class Method(StrEnum):
    """How the late field is made."""

    HYBRID = "hybrid"
    """Image sources up to order 12, then decaying noise per octave band."""
    IMAGE = "image"
    """Image sources only, up to an order that covers the reverberation time (at most 60)."""


@dataclass(frozen=True, eq=False)
class Room:
    """A shoebox with absorbing walls.

    Attributes:
        dims_m: length, width, height.
        absorption: float64 ``(6, 7)``: energy absorption of west, east, south, north, floor and ceiling in the seven
            octave bands of ``BANDS_HZ``, each between 0 and 0.97.

    Raises:
        ValueError: when a dimension is not positive or an absorption is out of range.
    """

    dims_m: tuple[float, float, float]
    absorption: FloatArray

    def __post_init__(self) -> None:
        if len(self.dims_m) != 3 or min(self.dims_m) <= 0:
            raise ValueError(f"a room needs three positive dimensions in metres, got {self.dims_m}")
        if self.absorption.shape != (6, len(BANDS_HZ)):
            raise ValueError(f"absorption must have shape (6, {len(BANDS_HZ)}), got {self.absorption.shape}")
        if not (np.all(self.absorption > 0) and np.all(self.absorption <= _MAX_ABSORPTION)):
            raise ValueError(f"absorption must lie in (0, {_MAX_ABSORPTION}]")

    @property
    def volume_m3(self) -> float:
        """Volume."""
        return math.prod(self.dims_m)

    @property
    def wall_areas_m2(self) -> FloatArray:
        """Areas of the six walls, ``(6,)``, in the order of ``absorption``."""
        length, width, height = self.dims_m
        side, front, flat = width * height, length * height, length * width
        return np.array([side, side, front, front, flat, flat])

    def eyring_rt60_s(self) -> FloatArray:
        """Reverberation time per octave band by Eyring's formula (without air absorption), ``(7,)``."""
        return _eyring_rt60_s(self.volume_m3, self.wall_areas_m2, self.absorption)

    @classmethod
    def with_rt60(cls, dims_m: tuple[float, float, float], rt60_s: float, rng: np.random.Generator) -> Room:
        """A room with drawn, uneven walls whose mean Eyring RT60 at 500 Hz and 1 kHz is ``rt60_s``.

        Args:
            dims_m: length, width, height.
            rt60_s: the reverberation time asked for. What a listener position gives differs by some 10-20 % since a
                shoebox is no diffuse field; :class:`Response` carries the measured value.
            rng: draws how absorption is spread over walls (a carpet, bare plaster) and over frequency.

        Raises:
            ImpossibleRoomError: when even walls that absorb 97 % leave a longer reverberation, or when the time is not
                positive. The message gives the shortest possible time.
        """
        volume = math.prod(dims_m)
        length, width, height = dims_m
        areas = np.array([width * height] * 2 + [length * height] * 2 + [length * width] * 2)
        shortest = float(_eyring_rt60_s(volume, areas, np.full((6, 1), _MAX_ABSORPTION))[0])
        if not rt60_s > 0 or rt60_s < shortest:
            raise ImpossibleRoomError(
                f"RT60 {rt60_s:.3f} s is impossible in a {length:.1f} x {width:.1f} x {height:.1f} m room: "
                f"walls that absorb {_MAX_ABSORPTION:.0%} still give {shortest:.3f} s"
            )
        wall_weight = np.exp(rng.normal(0.0, 0.6, size=(6, 1)))
        # Absorption over frequency: a tilt (porous absorbers swallow treble, panels bass) plus a little irregularity.
        octaves = np.arange(len(BANDS_HZ)) - 2.5
        tilt = rng.normal(0.12, 0.15, size=(6, 1))
        shape = wall_weight * np.exp(tilt * octaves + rng.normal(0.0, 0.12, size=(6, len(BANDS_HZ))))
        scale_low, scale_high = 1e-6, 1e6
        for _ in range(80):  # bisection in the logarithm: RT60 falls monotonically with the scale
            scale = math.sqrt(scale_low * scale_high)
            absorption = np.clip(scale * shape, 1e-3, _MAX_ABSORPTION)
            if _eyring_rt60_s(volume, areas, absorption)[list(_MID_BANDS)].mean() > rt60_s:
                scale_low = scale
            else:
                scale_high = scale
        return cls(dims_m, absorption)


@dataclass(frozen=True, eq=False)
class Response:
    """An impulse response with what was measured on it.

    Attributes:
        taps: float64 ``(samples,)``; direct sound of unit gain at one metre.
        direct_sample: index of the direct sound's centre.
        distance_m: from source to microphone.
        rt60_s: measured at 354-1414 Hz (the octaves of 500 Hz and 1 kHz) on the part after the direct sound, from 20 dB
            of Schroeder decay; NaN when the reverberant part is too short to tell.
        drr_db: direct-to-reverberant energy ratio, with the direct sound taken as +-2.5 ms around its centre.
    """

    taps: FloatArray
    direct_sample: int
    distance_m: float
    rt60_s: float
    drr_db: float


@dataclass(frozen=True, eq=False)
class Rendered:
    """A recording as the microphone hears it.

    Attributes:
        audio: float64 ``(samples,)``: as long as the dry input, or longer by the decay when it was asked for.
        response: what it was convolved with.
    """

    audio: FloatArray
    response: Response


def draw_room(rng: np.random.Generator, rt60_range_s: tuple[float, float] = (0.15, 0.9)) -> Room:
    """A living room, office or bedroom: 9 to 90 square metres, 2.3 to 3.6 m high, RT60 drawn log-uniformly.

    Combinations that physics forbids (a hall that is as dry as a cupboard) are drawn again.
    """
    while True:
        area = math.exp(rng.uniform(math.log(9.0), math.log(90.0)))
        ratio = rng.uniform(1.0, 1.8)
        dims = (math.sqrt(area * ratio), math.sqrt(area / ratio), rng.uniform(2.3, 3.6))
        rt60_s = math.exp(rng.uniform(math.log(rt60_range_s[0]), math.log(rt60_range_s[1])))
        try:
            return Room.with_rt60(dims, rt60_s, rng)
        except ImpossibleRoomError:
            continue


def impulse_responses(
    room: Room,
    source_m: npt.ArrayLike,
    mics_m: npt.ArrayLike,
    seed: int,
    *,
    facing_deg: npt.ArrayLike | None = None,
    method: Method = Method.HYBRID,
) -> tuple[Response, ...]:
    """Responses from one talker to several microphones of one room.

    Args:
        room: the room.
        source_m: ``(3,)`` position of the mouth.
        mics_m: ``(n, 3)`` positions of the microphones.
        seed: seeds the late field.
        facing_deg: ``(n,)`` angle between where the talker faces and each microphone, 0 to 180; None for a source that
            radiates evenly. Turning away takes treble from the direct sound first (Chu and Warnock, 2002).
        method: how the late field is made.

    Raises:
        ValueError: when a position lies outside the room.
    """
    import pyroomacoustics as pra

    source = np.asarray(source_m, dtype=np.float64)
    mics = np.atleast_2d(np.asarray(mics_m, dtype=np.float64))
    for point in (source, *mics):
        if np.any(point <= 0) or np.any(point >= np.array(room.dims_m)):
            raise ValueError(f"position {point.round(2).tolist()} m lies outside the room of {room.dims_m} m")
    materials = {
        wall: pra.Material({"description": wall, "coeffs": list(room.absorption[i]), "center_freqs": list(BANDS_HZ)})
        for i, wall in enumerate(_WALLS)
    }
    # Between the two middle bands, as the room is named; the measured value is what is reported.
    rt60_s = float(room.eyring_rt60_s()[list(_MID_BANDS)].mean())
    order = _EARLY_ORDER
    if method is Method.IMAGE:
        order = min(60, max(_EARLY_ORDER, math.ceil(SPEED_OF_SOUND_M_S * rt60_s / min(room.dims_m))))
    box = pra.ShoeBox(list(room.dims_m), fs=SAMPLE_RATE_HZ, materials=materials, max_order=order, air_absorption=True)
    box.set_sound_speed(SPEED_OF_SOUND_M_S)
    box.add_source(source)
    box.add_microphone(mics.T)
    box.compute_rir()
    angles = None if facing_deg is None else np.broadcast_to(np.asarray(facing_deg, dtype=np.float64), len(mics))
    rng = np.random.default_rng(seed)
    out = []
    for i, mic in enumerate(mics):
        distance = float(np.linalg.norm(mic - source))
        direct = round(distance / SPEED_OF_SOUND_M_S * SAMPLE_RATE_HZ) + SIMULATOR_DELAY_SAMPLES
        taps = np.asarray(box.rir[i][0], dtype=np.float64)
        if method is Method.HYBRID:
            taps = _with_diffuse_tail(taps, room, order, rng)
        if angles is not None:
            taps = _turned_away(taps, direct, float(angles[i]))
        out.append(measure(taps, direct, distance))
    return tuple(out)


def render(
    dry: npt.ArrayLike,
    room: Room,
    source_m: npt.ArrayLike,
    mic_m: npt.ArrayLike,
    seed: int,
    *,
    facing_deg: float | None = None,
    method: Method = Method.HYBRID,
    keep_decay: bool = False,
) -> Rendered:
    """A dry recording as a microphone in the room hears it, time-aligned with the input (see the module's text).

    Args:
        dry: ``(samples,)`` at 16 kHz, recorded close and without much room.
        room: the room.
        source_m: ``(3,)`` position of the mouth.
        mic_m: ``(3,)`` position of the microphone.
        seed: the same seed gives the same samples.
        facing_deg: how far the talker looks away from the microphone, or None.
        method: how the late field is made.
        keep_decay: whether the room's decay after the last input sample is kept.

    Raises:
        ValueError: when a position lies outside the room.
    """
    mics = np.asarray(mic_m, dtype=np.float64)[None]
    response = impulse_responses(room, source_m, mics, seed, facing_deg=facing_deg, method=method)[0]
    return Rendered(convolve(dry, response, keep_decay=keep_decay), response)


def convolve(dry: npt.ArrayLike, response: Response, *, keep_decay: bool = False) -> FloatArray:
    """Convolve and remove the response's own delay, so that the output is aligned with the input."""
    from scipy.signal import fftconvolve

    x = np.asarray(dry, dtype=np.float64)
    wet = fftconvolve(x, response.taps)[response.direct_sample :]
    return np.asarray(wet if keep_decay else wet[: len(x)], dtype=np.float64)


def measure(taps: FloatArray, direct_sample: int, distance_m: float) -> Response:
    """Measure RT60 and DRR of an impulse response whose direct sound is at ``direct_sample``."""
    half = round(_DIRECT_HALF_WINDOW_S * SAMPLE_RATE_HZ)
    direct = float(np.sum(taps[max(0, direct_sample - half) : direct_sample + half] ** 2))
    rest = taps[direct_sample + half :]
    late = float(np.sum(rest**2))
    drr_db = 10.0 * math.log10(max(direct, 1e-30) / max(late, 1e-30))
    return Response(taps, direct_sample, distance_m, _decay_rt60_s(rest), drr_db)


def measured_response(taps: npt.ArrayLike, rate_hz: int, *, drr_db: float | None = None) -> Response:
    """A response that was measured in a real room, resampled to 16 kHz and optionally moved to another DRR.

    The direct sound is the largest peak. Scaling it against the rest imitates another distance in the same room, after
    Bryan, "Impulse response data augmentation and deep neural networks for blind room acoustic parameter estimation"
    (ICASSP 2020).

    Args:
        taps: ``(samples,)`` one channel.
        rate_hz: its sampling rate.
        drr_db: the direct-to-reverberant ratio to give it, or None to leave it as measured.
    """
    import soxr

    x = np.asarray(taps, dtype=np.float64)
    if rate_hz != SAMPLE_RATE_HZ:
        x = np.asarray(soxr.resample(x, rate_hz, SAMPLE_RATE_HZ), dtype=np.float64)
    peak = int(np.argmax(np.abs(x)))
    x = x[max(0, peak - SIMULATOR_DELAY_SAMPLES) :] / abs(x[peak])
    peak = min(peak, SIMULATOR_DELAY_SAMPLES)
    # What precedes the direct sound in a measurement is noise or a sweep's artefact; what follows the point where the
    # decay meets the noise floor is noise, too, and would ring on after every word.
    x = x * _noise_floor_fade(x, peak)
    now = measure(x, peak, math.nan)
    if drr_db is not None:
        half = round(_DIRECT_HALF_WINDOW_S * SAMPLE_RATE_HZ)
        x = x.copy()
        x[: peak + half] *= 10.0 ** ((drr_db - now.drr_db) / 20.0)
        now = measure(x, peak, math.nan)
    return now


def _noise_floor_fade(x: FloatArray, direct_sample: int) -> FloatArray:
    block = SAMPLE_RATE_HZ // 50
    count = len(x) // block
    gain = np.ones(len(x))
    if count < 6:
        return gain
    energy_db = 10.0 * np.log10(np.mean(x[: count * block].reshape(count, block) ** 2, axis=1) + 1e-20)
    floor_db = float(np.median(energy_db[-max(2, count // 8) :]))
    first = direct_sample // block + 1
    quiet = np.nonzero(energy_db[first:] < floor_db + 5.0)[0]
    if len(quiet) == 0:
        return gain
    start = (first + int(quiet[0])) * block
    fade = np.exp(-np.arange(len(x) - start) / (0.02 * SAMPLE_RATE_HZ))
    gain[start:] = fade
    return gain


def _eyring_rt60_s(volume_m3: float, areas_m2: FloatArray, absorption: FloatArray) -> FloatArray:
    surface = float(areas_m2.sum())
    mean = (areas_m2[:, None] * absorption).sum(axis=0) / surface
    constant = 24.0 * math.log(10.0) / SPEED_OF_SOUND_M_S
    return np.asarray(constant * volume_m3 / (-surface * np.log1p(-mean)), dtype=np.float64)


def _decay_rt60_s(late: FloatArray) -> float:
    """RT60 from a straight line through -5 to -25 dB of the backward-integrated energy (Schroeder, 1965)."""
    from scipy.signal import butter, sosfilt

    if len(late) < SAMPLE_RATE_HZ // 50:
        return math.nan
    middle = butter(3, (354.0, 1414.0), btype="bandpass", fs=SAMPLE_RATE_HZ, output="sos")
    energy = np.cumsum(sosfilt(middle, late)[::-1] ** 2)[::-1]
    if energy[0] <= 0:
        return math.nan
    level_db = 10.0 * np.log10(energy / energy[0] + 1e-12)
    inside = np.nonzero((level_db <= -5.0) & (level_db >= -25.0))[0]
    if len(inside) < SAMPLE_RATE_HZ // 200 or level_db[-1] > -25.0:
        return math.nan
    slope_db_s = np.polyfit(inside / SAMPLE_RATE_HZ, level_db[inside], 1)[0]
    return float(-60.0 / slope_db_s) if slope_db_s < 0 else math.nan


def _bands() -> Any:
    import pyroomacoustics as pra

    return pra.acoustics.OctaveBandsFactory(base_frequency=BANDS_HZ[0], fs=SAMPLE_RATE_HZ, n_fft=512)


def _with_diffuse_tail(taps: FloatArray, room: Room, order: int, rng: np.random.Generator) -> FloatArray:
    """Replace what lies beyond the last complete reflection order by decaying noise of matched level."""
    # All images nearer than order * (smallest dimension) are present.
    mix_s = order * min(room.dims_m) / SPEED_OF_SOUND_M_S
    rt60_s = room.eyring_rt60_s()
    mix = SIMULATOR_DELAY_SAMPLES + round(mix_s * SAMPLE_RATE_HZ)
    fade = round(0.02 * SAMPLE_RATE_HZ)
    length = mix + round(1.1 * float(rt60_s.max()) * SAMPLE_RATE_HZ)
    bank = _bands()
    early = np.zeros(mix)
    early[: min(mix, len(taps))] = taps[:mix]
    early_bands = bank.analysis(early)
    noise = bank.analysis(rng.standard_normal(length - mix + fade))
    time_s = np.arange(length - mix + fade) / SAMPLE_RATE_HZ
    match = round(0.025 * SAMPLE_RATE_HZ)
    tail = np.zeros(length - mix + fade)
    for band in range(len(BANDS_HZ)):
        decay = np.exp(-3.0 * math.log(10.0) * time_s / rt60_s[band])
        shaped = noise[:, band] * decay
        want = float(np.mean(early_bands[-match:, band] ** 2))
        have = float(np.mean(shaped[:match] ** 2))
        tail += shaped * math.sqrt(want / max(have, 1e-30))
    out = np.zeros(length)
    out[:mix] = early
    ramp = 0.5 - 0.5 * np.cos(np.pi * np.arange(fade) / fade)
    out[mix - fade : mix] *= np.sqrt(1.0 - ramp)
    tail[:fade] *= np.sqrt(ramp)
    out[mix - fade :] += tail
    return out


def _turned_away(taps: FloatArray, direct_sample: int, angle_deg: float) -> FloatArray:
    """Take from direct and reverberant sound what a talker's head takes when it looks away."""
    from scipy.signal import fftconvolve, firwin2

    away = (1.0 - math.cos(math.radians(angle_deg))) / 2.0
    direct_loss_db = away * _BACKWARD_LOSS_DB
    # Power average of the same pattern over all directions: what the reverberant field loses.
    nepers = _BACKWARD_LOSS_DB * math.log(10.0) / 10.0
    late_loss_db = -10.0 * np.log10((1.0 - np.exp(-nepers)) / nepers)
    half = round(_DIRECT_HALF_WINDOW_S * SAMPLE_RATE_HZ)
    window = np.zeros(len(taps))
    window[: direct_sample + half] = 1.0
    ramp = np.arange(half) / half
    window[direct_sample + half : direct_sample + 2 * half] = 1.0 - ramp[: max(0, len(taps) - direct_sample - half)]
    out = np.zeros(len(taps))
    freqs = np.array([0.0, *BANDS_HZ]) / (SAMPLE_RATE_HZ / 2)
    for part, loss_db in ((taps * window, direct_loss_db), (taps * (1.0 - window), late_loss_db)):
        gain = 10.0 ** (-np.array([loss_db[0], *loss_db]) / 20.0)
        out += fftconvolve(part, firwin2(65, freqs, gain), mode="same")
    return out
