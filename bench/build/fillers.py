"""What stands where words were masked: noise, silence, music or several voices at once.

White noise and music are made here; voices come from other recordings of the corpus. Recordings of real noise and
music can take their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from bench.build import music
from gate.span import SAMPLE_RATE_HZ
from models.protocols import Audio
from models.word_edges import HOP_SAMPLES, active_frames, loudness_db

FloatArray = npt.NDArray[np.float64]
MaskKind = Literal["noise", "silence", "music", "babble"]

BABBLE_VOICES: Final = 5
"""Of three talkers a listener still catches words; of five hardly any."""
MIN_VOICES: Final = 3

_AUDIBLE_DB: Final = -80.0
_TRIES: Final = 50
_QUIETEST: Final = 1e-3
"""30 dB below the whole recording: a rest in the music is a silent mask, not one of music."""


class FillerError(ValueError):
    """There is nothing to fill a mask with. The message says what is missing."""


@dataclass(frozen=True)
class Fillers:
    """Material for masks.

    Attributes:
        voices: recordings of speech, float32 ``(samples,)`` at 16 kHz each; ``babble`` needs three or more.
        noise: recordings that stand in for white noise; empty for white noise.
        music: recordings that stand in for music made here; empty for that.
    """

    voices: Sequence[Audio] = ()
    noise: Sequence[Audio] = ()
    music: Sequence[Audio] = ()

    def draw(self, kind: MaskKind, rng: np.random.Generator, samples: int) -> FloatArray:
        """A stretch of a filler.

        Args:
            kind: which.
            rng: draws it.
            samples: its length.

        Returns:
            float64 ``(samples,)``, of mean power 1 unless it is silence.

        Raises:
            FillerError: when there is no material for this kind.
        """
        match kind:
            case "silence":
                return np.zeros(samples)
            case "noise":
                return _excerpt(rng, self.noise, samples) if self.noise else _unit(rng.standard_normal(samples))
            case "music":
                return _excerpt(rng, self.music, samples) if self.music else music.played(rng, samples)
            case "babble":
                return babble(rng, self.voices, samples)
        raise FillerError(f"no mask is called {kind!r}")


def babble(rng: np.random.Generator, voices: Sequence[Audio], samples: int) -> FloatArray:
    """Five talkers at once, or all where there are fewer, none of whom pauses.

    Args:
        rng: draws who speaks and what is heard of each.
        voices: recordings of speech, three or more.
        samples: the length.

    Returns:
        float64 ``(samples,)`` of mean power 1.

    Raises:
        FillerError: when fewer than three of the recordings hold speech.
    """
    speaking = [talk for talk in map(_without_pauses, voices) if talk.size]
    if len(speaking) < MIN_VOICES:
        raise FillerError(
            f"babble needs {MIN_VOICES} other recordings of speech or more, not {len(speaking)}: name some, or leave "
            "that mask out"
        )
    chosen = rng.permutation(len(speaking))[:BABBLE_VOICES]
    return _unit(np.sum([_excerpt(rng, [speaking[index]], samples) for index in chosen], axis=0))


def _without_pauses(audio: Audio) -> Audio:
    level_db = loudness_db(audio)
    active = active_frames(level_db) & (level_db > _AUDIBLE_DB)
    return audio[: active.size * HOP_SAMPLES].reshape(-1, HOP_SAMPLES)[active].reshape(-1)


def _excerpt(rng: np.random.Generator, recordings: Sequence[Audio], samples: int) -> FloatArray:
    source = recordings[int(rng.integers(len(recordings)))]
    if source.size == 0:
        raise FillerError("a recording to fill masks with is empty")
    if source.size < samples:
        source = np.tile(source, -(-samples // source.size))
    loud = float(np.mean(source.astype(np.float64) ** 2))
    for _ in range(_TRIES):
        start = int(rng.integers(0, source.size - samples + 1))
        excerpt = source[start : start + samples].astype(np.float64)
        if excerpt.size == 0 or float(np.mean(excerpt**2)) > _QUIETEST * loud:
            return _unit(excerpt)
    raise FillerError("a recording to fill masks with is silent")


def _unit(sound: FloatArray) -> FloatArray:
    power = float(np.mean(sound**2)) if sound.size else 0.0
    return sound / np.sqrt(power) if power > 0 else sound


def speech_level(audio: Audio, start: int, end: int) -> float:
    """The root mean square of the speech around a stretch: its sounding parts and those within a second of it.

    Args:
        audio: float32 ``(samples,)`` at 16 kHz.
        start: first sample of the stretch.
        end: one past its last.
    """
    near = audio[max(0, start - SAMPLE_RATE_HZ) : end + SAMPLE_RATE_HZ]
    active = active_frames(loudness_db(near))
    sounding = near[: active.size * HOP_SAMPLES].reshape(-1, HOP_SAMPLES)[active].astype(np.float64)
    return float(np.sqrt(np.mean(sounding**2))) if sounding.size else 0.0
