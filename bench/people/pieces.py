"""Recordings that are made of the users' own: cuts of a stated length, and the same through a measured room.

A cut lies between silences as quiet as the recording's own background, since a recording that begins in the middle of a
word has no start that a detector could find. A far version is convolved with an impulse response measured in a real
room, left at the direct-to-reverberant ratio that it was measured with, and brought to the level of the near one, so
that nothing but the room tells them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from bench.build.recordings import read_recording
from bench.people.clips import Clip
from gate.span import SAMPLE_RATE_HZ
from models.training import corpus, rooms
from models.training.corpus import Part
from models.word_edges import HOP_SAMPLES, active_frames, loudness_db

LEAD_S = 0.5
TAIL_S = 0.3
FAR_BELOW_DRR_DB = 4.0
"""More direct sound than this is no far talker's: the bound of far in the training of the proximity network."""
_FADE_SAMPLES = SAMPLE_RATE_HZ // 100
_QUIET_SHARE = 2
"""Percentile of the recording's level that counts as its background: some recordings hardly have a pause."""
_MOST_PEAK = 0.9

Signal = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Piece:
    """A cut between two silences.

    Attributes:
        samples: float64 ``(samples,)`` at 16 kHz.
        start_s: where the cut begins in it.
        end_s: where it ends.
    """

    samples: Signal = field(repr=False)
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class MeasuredRoom:
    """A response of a real room.

    Attributes:
        name: file and channel.
        response: it, at 16 kHz.
    """

    name: str
    response: rooms.Response = field(repr=False)


def voiced(clip: Clip) -> Signal:
    """A recording from its first sound to its last, float64 ``(samples,)`` at 16 kHz; all of it where there is none."""
    audio = read_recording(clip.path)
    sounding = np.flatnonzero(active_frames(loudness_db(audio)))
    if not sounding.size:
        return audio.astype(np.float64)
    return audio[int(sounding[0]) * HOP_SAMPLES : (int(sounding[-1]) + 1) * HOP_SAMPLES].astype(np.float64)


def cut(clip: Clip, speech_s: float, random: np.random.Generator) -> Piece | None:
    """A stretch of a recording of the length asked for, drawn anywhere between its first and last sound.

    Args:
        clip: the recording.
        speech_s: how long.
        random: where.

    Returns:
        The piece, or None when the recording is too short.
    """
    audio, wanted = voiced(clip), round(speech_s * SAMPLE_RATE_HZ)
    if audio.size < wanted:
        return None
    start = int(random.integers(0, audio.size - wanted + 1))
    middle = audio[start : start + wanted].copy()
    edge = np.sin(np.linspace(0.0, np.pi / 2, _FADE_SAMPLES)) ** 2
    middle[:_FADE_SAMPLES] *= edge
    middle[-_FADE_SAMPLES:] *= edge[::-1]
    whole = read_recording(clip.path)
    floor = 10.0 ** (float(np.percentile(loudness_db(whole), _QUIET_SHARE)) / 20.0)
    lead, tail = (floor * random.standard_normal(round(s * SAMPLE_RATE_HZ)) for s in (LEAD_S, TAIL_S))
    return Piece(np.concatenate([lead, middle, tail]), LEAD_S, LEAD_S + speech_s)


def far_rooms(data: Path) -> list[MeasuredRoom]:
    """Measured rooms that no network was trained with, in which the reverberation is at least about as strong as the
    direct sound; empty where the folder has none."""
    found = []
    for recording in corpus.measured_rooms(data, Part.TEST):
        samples, rate_hz = corpus.read_all_channels(recording.path)
        for channel in range(samples.shape[1]):
            response = rooms.measured_response(samples[:, channel], rate_hz)
            if response.drr_db <= FAR_BELOW_DRR_DB:
                found.append(MeasuredRoom(f"{recording.path.stem}#{channel}", response))
    return found


def in_room(near: Signal, room: MeasuredRoom) -> Signal:
    """A near recording as the room's microphone hears it, with the decay at its end, as loud as it was."""
    wet = rooms.convolve(near, room.response, keep_decay=True)
    power, wanted = float(np.mean(wet[: near.size] ** 2)), float(np.mean(near**2))
    return wet * np.sqrt(wanted / power) if power > 0 else wet


def joined(clips: Sequence[Clip]) -> Signal:
    """Recordings of one person one after the other, each as it is."""
    return np.concatenate([read_recording(clip.path).astype(np.float64) for clip in clips])


def write(path: Path, samples: Signal) -> None:
    """Write 16 bits at 16 kHz, quieter where it would clip."""
    peak = float(np.abs(samples).max()) if samples.size else 0.0
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples * min(1.0, _MOST_PEAK / max(peak, 1e-9)), SAMPLE_RATE_HZ, subtype="PCM_16")
