"""Which recordings train, which choose thresholds and which test: split by speaker, noise file, piece of music and
room.

The folder is found by ``--data`` or the environment variable ``VOICEGATE_DATA`` and holds ``audio/manifest.tsv``, one
recording a line with its set, speaker, condition, licence and source.
"""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

SAMPLE_RATE_HZ = 16_000

FloatArray = npt.NDArray[np.float32]


class Part(StrEnum):
    """What a recording is used for."""

    TRAIN = "train"
    DEV = "dev"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Recording:
    """One line of the manifest, with the part it was assigned to."""

    path: Path
    set_name: str
    speaker: str
    condition: str
    duration_s: float
    part: Part

    def read(self) -> FloatArray:
        """Samples as float32 ``(samples,)`` at 16 kHz; the first channel when there are several."""
        return _read(self.path)


# Read speech and self-recorded devices train; everything else is only ever tested on.
_SPEECH_SHARES = {
    "librispeech_cohort": (0.80, 0.10),
    "alphanumeric": (0.50, 0.15),
    "picovoice_speech_to_intent": (0.50, 0.15),
    "cmu_arctic": (1.0, 0.0),
}
"""Shares of speakers for training and for dev."""

_NOISE_PARTS = {
    "doing_the_dishes": Part.TRAIN,
    "exercise_bike": Part.TRAIN,
    "city": Part.TRAIN,
    "storm": Part.TRAIN,
    "kitchen": Part.TRAIN,
    "noise1": Part.TRAIN,
    "noise3": Part.TRAIN,
    "noise5": Part.TRAIN,
    "coffee-shop": Part.DEV,
    "noise2": Part.DEV,
    "train": Part.TEST,
    "wind": Part.TEST,
    "background_noise": Part.TEST,
    "noise4": Part.TEST,
}

_MUSIC_PARTS = {"Hungarian": Part.TRAIN, "Karissa": Part.TRAIN, "Kevin": Part.TEST}

_ROOM_PARTS = {
    "living_room_1": Part.TRAIN,
    "rir1": Part.TRAIN,
    "rir3": Part.TRAIN,
    "Genesis_6_Studio_Live_Room": Part.TEST,
    "rir_clap": Part.TEST,
    "rir4": Part.TEST,
}
"""Measured impulse responses. Left out: simulated ones, one cut after 0.1 s, and one whose direct sound dwarfs its
room."""


def data_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder of recordings.

    Raises:
        FileNotFoundError: when neither the argument nor ``VOICEGATE_DATA`` names a folder with ``audio/manifest.tsv``.
    """
    name = given if given is not None else os.environ.get("VOICEGATE_DATA")
    if not name:
        raise FileNotFoundError("no folder of recordings: pass --data or set VOICEGATE_DATA")
    folder = Path(name)
    if not (folder / "audio" / "manifest.tsv").is_file():
        raise FileNotFoundError(f"{folder} holds no audio/manifest.tsv")
    return folder


@lru_cache(maxsize=4)
def recordings(folder: Path) -> tuple[Recording, ...]:
    """Every recording of the manifest, in the manifest's order, with its part."""
    audio = folder / "audio"
    groups = same_voice_groups(audio / "alphanumeric" / "suspect_same_voice.tsv")
    out = []
    with (audio / "manifest.tsv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            path = audio / row["path"]
            part = _part(row["set"], groups.get(row["speaker"], row["speaker"]), path.stem)
            out.append(Recording(path, row["set"], row["speaker"], row["condition"], float(row["duration_s"]), part))
    return tuple(out)


def speech(folder: Path, part: Part, sets: Sequence[str] = tuple(_SPEECH_SHARES)) -> tuple[Recording, ...]:
    """Close-talk speech of one part."""
    return tuple(r for r in recordings(folder) if r.set_name in sets and r.part is part)


def noises(folder: Path, part: Part) -> tuple[Recording, ...]:
    """Noise recordings of one part."""
    return tuple(r for r in recordings(folder) if r.set_name == "noise" and r.part is part)


def music(folder: Path, part: Part) -> tuple[Recording, ...]:
    """Pieces of music of one part. There are three in all, so dev uses the training pieces."""
    return tuple(r for r in recordings(folder) if r.set_name == "music" and r.part is part)


def measured_rooms(folder: Path, part: Part) -> tuple[Recording, ...]:
    """Measured impulse responses of one part."""
    return tuple(r for r in recordings(folder) if r.set_name == "rir" and r.part is part)


def read_all_channels(path: Path) -> tuple[npt.NDArray[np.float64], int]:
    """A file as float64 ``(samples, channels)`` with its own rate."""
    import soundfile

    samples, rate = soundfile.read(path, always_2d=True)
    return np.asarray(samples, dtype=np.float64), int(rate)


def voiced_frames(audio: FloatArray, range_db: float = 30.0) -> npt.NDArray[np.bool_]:
    """Which 10 ms frames of a *clean* recording hold speech: those within ``range_db`` of its loud frames."""
    count = len(audio) // 160
    energy = 10.0 * np.log10(np.mean(audio[: count * 160].reshape(count, 160).astype(np.float64) ** 2, axis=1) + 1e-12)
    if count == 0:
        return np.zeros(0, dtype=np.bool_)
    return np.asarray(energy > np.percentile(energy, 95) - range_db, dtype=np.bool_)


@lru_cache(maxsize=600)
def _read(path: Path) -> FloatArray:
    import soundfile
    import soxr

    samples, rate = soundfile.read(path, always_2d=True, dtype="float32")
    mono = np.ascontiguousarray(samples[:, 0])
    if rate != SAMPLE_RATE_HZ:
        mono = np.asarray(soxr.resample(mono, rate, SAMPLE_RATE_HZ), dtype=np.float32)
    mono.setflags(write=False)
    return mono


def _part(set_name: str, speaker: str, stem: str) -> Part:
    named = {"noise": _NOISE_PARTS, "rir": _ROOM_PARTS}.get(set_name)
    if named is not None:
        # A recording that no table names is not used: dev asks for no rooms.
        return named.get(stem, Part.DEV)
    if set_name == "music":
        return next((part for start, part in _MUSIC_PARTS.items() if start in stem), Part.TEST)
    train, dev = _SPEECH_SHARES.get(set_name, (0.0, 0.0))
    draw = int.from_bytes(hashlib.sha256(f"{set_name}/{speaker}".encode()).digest()[:8], "big") / 2**64
    return Part.TRAIN if draw < train else Part.DEV if draw < train + dev else Part.TEST


def same_voice_groups(path: Path) -> dict[str, str]:
    """Speakers who are likely one person, mapped to their cluster, so that a voice never falls into two parts."""
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as lines:
        return {row["response_id"]: row["cluster"] for row in csv.DictReader(lines, delimiter="\t")}
