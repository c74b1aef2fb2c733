"""Speech from text, made once: a cache on disk before a synthesiser, resumable and filled by several processes.

A file of the cache is named by everything that its samples depend on: the synthesiser with its model's hash, voice,
speed and text. So a run that was cut off goes on where it stopped, and a changed sentence is the only one made anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import platformdirs
import soundfile

from bench.build.voices import Voice
from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span

FORMAT_VERSION: Final = "2"
"""Part of every file's name; raised when what is stored, or how word times are found, changes."""

_BLOCK_SAMPLES: Final = SAMPLE_RATE_HZ // 100
_SOUNDS_ABOVE_DB: Final = -35.0
"""A word sounds where its level is no further below that of the loud parts; breath and the model's own noise are."""


@dataclass(frozen=True, slots=True)
class SpokenText:
    """One sentence, spoken.

    Attributes:
        samples: float32 ``(samples,)`` at 16 kHz, dry.
        words: the text's words with their samples, probability 1.
    """

    samples: npt.NDArray[np.float32] = field(repr=False)
    words: tuple[Word, ...]

    def trimmed(self, edge_samples: int = SAMPLE_RATE_HZ // 20) -> SpokenText:
        """Without the silence before the first word and after the last, but for an edge on either side."""
        first = max(0, self.words[0].span.start_sample - edge_samples)
        last = min(self.samples.size, self.words[-1].span.end_sample + 2 * edge_samples)
        words = tuple(Word(word.text, word.span.shifted(-first), word.probability) for word in self.words)
        return SpokenText(self.samples[first:last], words)


@dataclass(frozen=True, slots=True, order=True)
class Request:
    """Something to be spoken."""

    text: str
    voice: str
    speed: float = 1.0


class Synthesiser(Protocol):
    """Text to samples and word times; deterministic."""

    identity: str
    """Names model and version."""

    def say(self, text: str, voice: Voice, speed: float = 1.0) -> tuple[npt.NDArray[np.float32], tuple[Word, ...]]:
        """Speak one text: float32 ``(samples,)`` at 16 kHz, and its words."""
        ...


def speak(synthesiser: Synthesiser, text: str, voice: Voice, speed: float = 1.0) -> SpokenText:
    """Speak one text, with word times that end where the sound does.

    A synthesiser gives the pause after a phrase to its last word: Kokoro places the end of a sentence 90 to 370 ms
    after its sound is gone, which would make every latency from there look shorter than it is.

    Args:
        synthesiser: speaks.
        text: what to say.
        voice: who says it.
        speed: 1 is the voice's own.
    """
    samples, words = synthesiser.say(text, voice, speed)
    return SpokenText(samples, sounding(samples, words))


def sounding(samples: npt.NDArray[np.float32], words: Sequence[Word]) -> tuple[Word, ...]:
    """Words without the silence at their edges.

    Args:
        samples: float32 ``(samples,)`` at 16 kHz, dry and without noise.
        words: spans within it.

    Returns:
        The same words, each span shrunk to its first and last 10 ms that sound; one that does not sound at all is
        as it was.
    """
    power = _block_power(samples)
    least = 10 ** (_SOUNDS_ABOVE_DB / 10) * np.percentile(power, 95) if power.size else 0.0
    out = []
    for word in words:
        # Blocks of the word's own: one that reaches over its edge would hear its neighbour.
        heard = np.flatnonzero(_block_power(samples[word.span.start_sample : word.span.end_sample]) > least)
        if heard.size:
            start = word.span.start_sample + int(heard[0]) * _BLOCK_SAMPLES
            end = min(word.span.end_sample, word.span.start_sample + (int(heard[-1]) + 1) * _BLOCK_SAMPLES)
            word = Word(word.text, Span(start, end), word.probability)
        out.append(word)
    return tuple(out)


def _block_power(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Mean power of every 10 ms, the last of them filled up with silence."""
    blocks = np.pad(samples.astype(np.float64), (0, -samples.size % _BLOCK_SAMPLES)).reshape(-1, _BLOCK_SAMPLES)
    return np.asarray(np.mean(np.square(blocks), axis=1), np.float64)


def cache_folder() -> Path:
    """Where built corpora and speech lie: ``VOICEGATE_BENCH``, or the user's cache folder by the XDG rule."""
    named = os.environ.get("VOICEGATE_BENCH")
    return Path(named) if named else platformdirs.user_cache_path("voicegate") / "bench"


class Speech:
    """A synthesiser behind the cache.

    Args:
        synthesiser: makes what is not there yet.
        folder: the cache; None for ``cache_folder() / "speech"``.
    """

    def __init__(self, synthesiser: Synthesiser, folder: Path | None = None) -> None:
        self._synthesiser = synthesiser
        self._folder = folder or cache_folder() / "speech"

    @property
    def identity(self) -> str:
        """Names the synthesiser's model and version."""
        return self._synthesiser.identity

    def say(self, text: str, voice: str, speed: float = 1.0) -> SpokenText:
        """Speak one text, or take it from the cache.

        Args:
            text: what to say.
            voice: a voice or a blend, by name (``bench.build.voices``).
            speed: 1 is the voice's own.
        """
        request = Request(text, voice, speed)
        path = self._path(request)
        with contextlib.suppress(FileNotFoundError, soundfile.LibsndfileError, json.JSONDecodeError):
            return _read(path)
        spoken = speak(self._synthesiser, text, Voice(voice), speed)
        _write(path, spoken.samples, spoken.words)
        return _read(path)

    def has(self, request: Request) -> bool:
        """Whether it is in the cache."""
        return self._path(request).with_suffix(".json").exists()

    def _path(self, request: Request) -> Path:
        named = [FORMAT_VERSION, self._synthesiser.identity, request.voice, f"{request.speed:.3f}", request.text]
        digest = hashlib.sha256("\0".join(named).encode()).hexdigest()
        return self._folder / digest[:2] / digest


def _read(path: Path) -> SpokenText:
    # The words are written last: where they are, the samples are whole.
    listed = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    samples, _ = soundfile.read(path.with_suffix(".flac"), dtype="float32")
    return SpokenText(samples, tuple(Word(text, Span(start, end), 1.0) for text, start, end in listed))


def _write(path: Path, samples: npt.NDArray[np.float32], words: Sequence[Word]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mine = path.with_suffix(f".{os.getpid()}.tmp")
    soundfile.write(mine, np.clip(samples, -1.0, 1.0), SAMPLE_RATE_HZ, format="FLAC", subtype="PCM_16")
    mine.replace(path.with_suffix(".flac"))
    listed = [[word.text, word.span.start_sample, word.span.end_sample] for word in words]
    mine.write_text(json.dumps(listed, ensure_ascii=False), encoding="utf-8")
    mine.replace(path.with_suffix(".json"))
