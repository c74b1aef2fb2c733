"""What stands between a talker's mouth and the samples when a speaker ear is measured: rooms, noise, devices.

Each is drawn from a seed, so every network hears the same. Voices of the development half meet the rooms and noises
that train, those of the test half the ones that test (``models.training.corpus``).
"""

from __future__ import annotations

import hashlib
import math
from enum import StrEnum
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from models.training import corpus, devices, rooms, sounds
from models.training.corpus import Part
from models.training.proximity import FAR_FROM_M, NEAR_M, BankEntry, measured_bank, room_bank

FloatArray = npt.NDArray[np.float64]

SCENES = 4
_ROOMS = 12
_FAR_DRR_DB = -3.0
_SEED = 29


class Condition(StrEnum):
    """How a recording is heard."""

    CLEAN = "as recorded"
    UNCLEAN = "unclean"
    """One of :data:`SCENES` situations: the mouth 0.1 to 0.5 m from the microphone in a simulated room, noise 5 to 20
    dB below, and a drawn device. A voice keeps its situation, and whoever is compared in one shares it, as the wearer
    and a bystander do."""
    NEAR_ROOM = "0.1-0.5 m, simulated room"
    FAR_SIMULATED = "2-4 m, simulated room"
    FAR_MEASURED = "measured room"
    """A measured impulse response, its direct sound set 3 dB below the rest."""
    SNR_20 = "noise, 20 dB"
    SNR_10 = "noise, 10 dB"
    SNR_5 = "noise, 5 dB"
    SNR_0 = "noise, 0 dB"


_SNR_DB = {Condition.SNR_20: 20.0, Condition.SNR_10: 10.0, Condition.SNR_5: 5.0, Condition.SNR_0: 0.0}
_DISTANCE_M = {Condition.NEAR_ROOM: NEAR_M, Condition.FAR_SIMULATED: (2.0, 4.0)}


def scene_of(voice: str) -> int:
    """Which of the unclean situations a voice is in."""
    return seed_of("scene", voice) % SCENES


def seed_of(*words: str) -> int:
    """A seed from names, the same on every machine."""
    return int.from_bytes(hashlib.sha256("\0".join(words).encode()).digest()[:7], "big")


class Scenes:
    """Renders recordings of one half. What is drawn depends on names and seeds alone, not on the order of calls."""

    def __init__(self, folder: Path, *, development: bool) -> None:
        self._folder = folder
        self._part = Part.TRAIN if development else Part.TEST
        self._half = int(development)

    def render(self, audio: npt.NDArray[np.float32], condition: Condition, voice: str, name: str) -> FloatArray:
        """A clean recording as it is heard under a condition.

        Args:
            audio: ``(samples,)`` at 16 kHz, of speech and little else.
            condition: under which.
            voice: whose; decides the unclean situation.
            name: the recording's; decides all else.

        Returns:
            ``(samples,)``, aligned with the input.
        """
        x = np.asarray(audio, dtype=np.float64)
        rng = np.random.default_rng([_SEED, self._half, seed_of(condition, name)])
        if condition is Condition.CLEAN:
            return x
        if condition is Condition.UNCLEAN:
            return self._unclean(x, scene_of(voice), rng)
        if condition in _SNR_DB:
            heard = mixed(x, sounds.excerpt(rng, self._noises, len(x)), _SNR_DB[condition])
        elif condition is Condition.FAR_MEASURED:
            taps, rate_hz = self._measured[int(rng.integers(len(self._measured)))]
            heard = rooms.convolve(x, rooms.measured_response(taps, rate_hz, drr_db=_FAR_DRR_DB))
        else:
            heard = through_room(x, draw_entry(self._bank, _DISTANCE_M[condition], rng))
        # At the level of the recording, so that nothing but the condition differs.
        return devices.to_level(heard, 10.0 * math.log10(float(np.mean(x**2)) + 1e-20))

    def _unclean(self, x: FloatArray, scene: int, rng: np.random.Generator) -> FloatArray:
        shared = np.random.default_rng([_SEED, self._half, scene])
        x = through_room(x, draw_entry(self._bank, NEAR_M, shared))
        snr_db = shared.uniform(5.0, 20.0)
        noise = self._noises[int(shared.integers(len(self._noises)))]
        x = mixed(x, sounds.excerpt(rng, [noise], len(x)), snr_db)
        return devices.through_device(x, shared)

    @cached_property
    def _noises(self) -> list[npt.NDArray[np.float32]]:
        return [recording.read() for recording in corpus.noises(self._folder, self._part)]

    @cached_property
    def _bank(self) -> list[BankEntry]:
        return room_bank(_ROOMS, _SEED + self._half, rooms.Method.HYBRID)

    @cached_property
    def _measured(self) -> list[tuple[FloatArray, int]]:
        return measured_bank(self._folder, self._part)


def draw_entry(bank: list[BankEntry], distance_m: tuple[float, float], rng: np.random.Generator) -> BankEntry:
    """A response of a bank whose microphone stands at such a distance; any far one where none does."""
    low_m, high_m = distance_m
    fitting = [entry for entry in bank if low_m <= entry.distance_m <= high_m]
    fitting = fitting or [entry for entry in bank if entry.distance_m >= FAR_FROM_M]
    return fitting[int(rng.integers(len(fitting)))]


def through_room(x: FloatArray, entry: BankEntry) -> FloatArray:
    """The same words through a room, aligned and as long as before."""
    response = rooms.Response(
        entry.taps.astype(np.float64), entry.direct_sample, entry.distance_m, entry.rt60_s, entry.drr_db
    )
    return rooms.convolve(x, response)


def mixed(x: FloatArray, noise: FloatArray, snr_db: float) -> FloatArray:
    """Speech with noise under it, by the power of the frames that hold speech.

    Args:
        x: speech, ``(samples,)``.
        noise: as long; silence leaves the speech as it is.
        snr_db: how far the noise lies below.
    """
    voiced = corpus.voiced_frames(x.astype(np.float32))
    frames = x[: len(voiced) * 160].reshape(-1, 160)
    power = float(np.mean(frames[voiced] ** 2)) if voiced.any() else float(np.mean(x**2))
    return np.asarray(x + sounds.unit_power(noise) * math.sqrt(power) * 10.0 ** (-snr_db / 20.0), dtype=np.float64)
