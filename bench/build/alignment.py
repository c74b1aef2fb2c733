"""When each word of a known transcript is spoken: one protocol, three ways.

- ``GivenTimes``: the times are known, from the synthesiser that made the speech or from a corpus.
- ``SphinxAligner``: forced alignment with PocketSphinx (Huggins-Daines et al., "PocketSphinx: a free, real-time
  continuous speech recognition system for hand-held devices", 2006), which ships its English acoustic model and
  dictionary; words that the dictionary lacks get a rough pronunciation.
- ``WhisperAligner``: the speech ear hears the recording, and the transcript's words take the times of the words heard.
  For text that forced alignment refuses (digits), and less exact.

Align the clean recording and mask it afterwards: noise moves the times.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from bench.build.phrases import bare, spoken_words
from bench.build.pronunciation import pronounce
from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, SpeechEar
from models.word_edges import HOP_SAMPLES, active_frames, loudness_db

PAD_S = 0.3
"""Silence put around the recording: the aligner places the first and last word better with some."""
PAUSE_FRAMES = 12
"""120 ms without sound is a pause between words, not a closure inside one."""
REMNANT_FRAMES = 8
"""80 ms: sound this short before a pause is the end of the word before."""

_FRAME_SAMPLES = SAMPLE_RATE_HZ // 100
_ROOM_TONE = 1e-4
_PART_RE = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*['\u2019]?", re.UNICODE)
_SPOKEN_SYMBOLS = {"&": "and", "%": "percent", "+": "plus"}


class AlignmentError(ValueError):
    """The words cannot be placed. The message says which word, and what to do."""


class Aligner(Protocol):
    """Gives the words of a transcript their times."""

    @property
    def name(self) -> str:
        """What aligns, for the record."""
        ...

    @property
    def error_s(self) -> float:
        """What nine of ten word onsets err by at most; a mask reaches that much beyond its words."""
        ...

    def align(self, audio: Audio, text: str) -> tuple[Word, ...]:
        """Place the words.

        Args:
            audio: float32 ``(samples,)`` at 16 kHz.
            text: what is said in it.

        Returns:
            The text's words in order, as written, with their spans in ``audio``, not overlapping. The probability is 0
            where a word could not be placed and its span is only between its neighbours', else 1.

        Raises:
            AlignmentError: when the words cannot be placed; names the cure.
        """
        ...


class GivenTimes:
    """Times that are known already; ``align`` checks that they are of this text and this recording.

    Args:
        words: in order.
    """

    name = "given"
    error_s = 0.03

    def __init__(self, words: Sequence[Word]) -> None:
        self._words = tuple(words)

    def align(self, audio: Audio, text: str) -> tuple[Word, ...]:
        """See :meth:`Aligner.align`."""
        told = [bare(word.text) for word in self._words]
        said = [bare(word) for word in spoken_words(text)]
        if told != said:
            at = next((i for i, pair in enumerate(zip(told, said, strict=False)) if pair[0] != pair[1]), None)
            where = f"{len(told)} words for {len(said)}" if at is None else f"{told[at]!r} for {said[at]!r}"
            raise AlignmentError(f"the times are of other words: {where}")
        for word, after in pairwise(self._words):
            if after.span.start_sample < word.span.end_sample:
                raise AlignmentError(f"the times of {word.text!r} and {after.text!r} overlap")
        if self._words and self._words[-1].span.end_sample > audio.size:
            raise AlignmentError(f"{self._words[-1].text!r} ends after the recording")
        return self._words


class SphinxAligner:
    """Forced alignment. Keeps a decoder once it was needed; use it from one thread."""

    name = "pocketsphinx"
    error_s = 0.03

    def align(self, audio: Audio, text: str) -> tuple[Word, ...]:
        """See :meth:`Aligner.align`. Numbers must be written in words: digits can be read in several ways.

        Raises:
            AlignmentError: also when PocketSphinx is not installed.
        """
        words = spoken_words(text)
        if not words:
            raise AlignmentError("there is no word to align")
        parts = [(index, part) for index, word in enumerate(words) for part in self._parts(word)]
        spans = self._decode(audio, [part for _, part in parts])
        placed: dict[int, Span] = {}
        for (index, _), span in zip(parts, spans, strict=True):
            placed[index] = placed[index].cover(span) if index in placed else span
        aligned = [Word(word, placed[index], 1.0) for index, word in enumerate(words)]
        return without_pauses(audio, aligned)

    @functools.cached_property
    def _decoder(self) -> Any:
        try:
            pocketsphinx = importlib.import_module("pocketsphinx")
        except ImportError as error:
            raise AlignmentError("it is not installed: pip install 'voicegate[bench]'") from error
        return pocketsphinx.Decoder(samprate=SAMPLE_RATE_HZ, lm=None, loglevel="FATAL")

    def _parts(self, word: str) -> list[str]:
        """The dictionary words that a written word is spoken as ("twenty-one": two)."""
        if any(char.isdigit() for char in word):
            raise AlignmentError(f"{word!r} holds digits, which can be read in several ways: write it in words")
        for symbol, spoken in _SPOKEN_SYMBOLS.items():
            word = word.replace(symbol, f" {spoken} ")
        parts = [part.casefold().replace("\u2019", "'") for part in _PART_RE.findall(word)]
        if not parts:
            raise AlignmentError(f"{word!r} is not written in letters: write it in words")
        return [self._known(part) for part in parts]

    def _known(self, part: str) -> str:
        """``part`` as the dictionary has it, added to it where it is missing."""
        for spelling in (part, part.strip("'")):
            if self._decoder.lookup_word(spelling) is not None:
                return spelling
        sounds = pronounce(part, self._decoder.lookup_word)
        if sounds is None:
            raise AlignmentError(f"{part!r} is not in a script that can be aligned; give its times")
        self._decoder.add_word(part, sounds, True)
        return part

    def _decode(self, audio: Audio, parts: Sequence[str]) -> list[Span]:
        pad = round(PAD_S * SAMPLE_RATE_HZ)
        padded = np.pad(audio.astype(np.float64), pad)
        # Digital silence has no spectrum to compare.
        padded += np.random.default_rng(0).normal(0.0, _ROOM_TONE, padded.size)
        pcm = (np.clip(padded, -1.0, 1.0) * 32767.0).astype("<i2").tobytes()
        self._decoder.set_align_text(" ".join(parts))
        self._decoder.start_utt()
        self._decoder.process_raw(pcm, full_utt=True)
        self._decoder.end_utt()
        found = [] if self._decoder.hyp() is None else list(self._decoder.seg())
        said = [segment for segment in found if segment.word[0] not in "<["]
        if [segment.word.split("(")[0] for segment in said] != list(parts):
            raise AlignmentError(
                f"only {len(said)} of {len(parts)} words could be placed: is it the transcript of this recording?"
            )
        return [self._span(segment, audio.size, pad) for segment in said]

    @staticmethod
    def _span(segment: Any, samples: int, pad: int) -> Span:
        edges = (segment.start_frame * _FRAME_SAMPLES - pad, (segment.end_frame + 1) * _FRAME_SAMPLES - pad)
        start, end = (min(max(edge, 0), samples) for edge in edges)
        return Span(start, end)


class WhisperAligner:
    """The words that the speech ear hears, matched to the transcript's.

    Args:
        load: loads the ear; called when it is first needed, which for most recordings is never.
    """

    name = "whisper"
    error_s = 0.07

    def __init__(self, load: Callable[[], SpeechEar]) -> None:
        self._load = load

    def align(self, audio: Audio, text: str) -> tuple[Word, ...]:
        """See :meth:`Aligner.align`. Words that were not heard as written have probability 0."""
        words = spoken_words(text)
        heard = self._ear.hear(audio)
        matcher = SequenceMatcher(
            None, [bare(word.text) for word in heard.words], [bare(word) for word in words], autojunk=False
        )
        placed = {
            block.b + step: heard.words[block.a + step].span
            for block in matcher.get_matching_blocks()
            for step in range(block.size)
        }
        if not placed:
            why = heard.note or "other words were heard"
            raise AlignmentError(
                f"no word of the transcript was heard ({why}): is it the transcript of this recording?"
            )
        return with_guesses(words, placed, audio.size)

    @functools.cached_property
    def _ear(self) -> SpeechEar:
        return self._load()


@dataclass(frozen=True, slots=True)
class Alignment:
    """Words with their times.

    Attributes:
        words: as :meth:`Aligner.align` gives them.
        name: of the aligner that placed them.
        error_s: of that aligner.
    """

    words: tuple[Word, ...]
    name: str
    error_s: float


def align_with_first(aligners: Sequence[Aligner], audio: Audio, text: str) -> Alignment:
    """Place words with the first of several aligners that can.

    Args:
        aligners: the best first.
        audio: float32 ``(samples,)`` at 16 kHz.
        text: what is said in it.

    Raises:
        AlignmentError: when none of them can; tells why of each.
    """
    problems: list[str] = []
    for aligner in aligners:
        try:
            return Alignment(aligner.align(audio, text), aligner.name, aligner.error_s)
        except AlignmentError as error:
            problems.append(f"{aligner.name}: {error}")
    raise AlignmentError("; ".join(problems) or "there is nothing to align with")


def without_pauses(audio: Audio, words: Sequence[Word]) -> tuple[Word, ...]:
    """Give pauses back that an aligner has counted to a word.

    A pause at a word's beginning or end belongs to no word; what sounds for less than 80 ms before one is the end of
    the word before it.

    Args:
        audio: what the words were aligned in.
        words: in order, not overlapping.

    Returns:
        The same words, in order, not overlapping.
    """
    active = active_frames(loudness_db(audio))
    spans = [[word.span.start_sample, word.span.end_sample] for word in words]
    for index, span in enumerate(spans):
        first, last = span[0] // HOP_SAMPLES, min(active.size, -(-span[1] // HOP_SAMPLES))
        runs = _runs(active[first:last], first)
        if not runs:
            continue  # too soft to tell
        if len(runs) > 1 and runs[0][0] <= first + 1 and runs[0][1] - runs[0][0] <= REMNANT_FRAMES:
            remnant = runs.pop(0)
            if index and spans[index - 1][1] >= span[0]:
                spans[index - 1][1] = remnant[1] * HOP_SAMPLES
            span[0] = runs[0][0] * HOP_SAMPLES
        elif runs[0][0] - first >= PAUSE_FRAMES:
            span[0] = runs[0][0] * HOP_SAMPLES
        if last - runs[-1][1] >= PAUSE_FRAMES:
            span[1] = runs[-1][1] * HOP_SAMPLES
        if index:
            span[0] = max(span[0], spans[index - 1][1])
        span[1] = max(span)
    return tuple(
        Word(word.text, Span(start, end), word.probability) for word, (start, end) in zip(words, spans, strict=True)
    )


def _runs(active: np.ndarray, offset: int) -> list[tuple[int, int]]:
    """Sounding stretches in frames, those closer than a pause joined; half-open, shifted by ``offset``."""
    steps = np.flatnonzero(np.diff(np.concatenate([[False], active, [False]]).astype(np.int8)))
    out: list[tuple[int, int]] = []
    for start, end in zip(steps[::2] + offset, steps[1::2] + offset, strict=True):
        if out and start - out[-1][1] < PAUSE_FRAMES:
            out[-1] = (out[-1][0], int(end))
        else:
            out.append((int(start), int(end)))
    return out


def with_guesses(words: Sequence[str], placed: Mapping[int, Span], samples: int) -> tuple[Word, ...]:
    """All words; those without a place share what lies between their neighbours.

    Args:
        words: as written, in order.
        placed: spans by the index of their word; those that are missing are guessed.
        samples: length of the recording.

    Returns:
        The words, those that were guessed with probability 0.
    """
    out: list[Word] = []
    index = 0
    while index < len(words):
        if index in placed:
            out.append(Word(words[index], placed[index], 1.0))
            index += 1
            continue
        end = next((later for later in range(index, len(words)) if later in placed), len(words))
        left = out[-1].span.end_sample if out else 0
        right = placed[end].start_sample if end in placed else samples
        edges = np.linspace(left, max(left, right), end - index + 1).round().astype(int)
        out.extend(
            Word(word, Span(int(a), int(b)), 0.0)
            for word, a, b in zip(words[index:end], edges, edges[1:], strict=False)
        )
        index = end
    return tuple(out)
