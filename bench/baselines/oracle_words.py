"""The gate with a perfect recogniser: the words are the labels', with their times; everything else is the product's.

What a trial still gets wrong here is not the recogniser's doing. Words that the trial says were masked are not among
them: nobody could have heard those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from agent.assemble import Parts
from bench.contestants import Contestant, Setup
from bench.stream import HeardStream
from bench.trials import Segment, Trial
from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, Heard, ModelId, SpeechEar

NOTE = "the labelled words"


@dataclass(frozen=True, slots=True)
class OracleSpeechEar:
    """A speech ear that reads the labels.

    Attributes:
        ear: the real one; its encoder states are passed on.
        words: the trial's words, in the stream.
        heard: the session's stream, in which a turn's samples are looked up.
    """

    ear: SpeechEar
    words: tuple[Word, ...]
    heard: HeardStream

    @property
    def model(self) -> ModelId:
        """The real ear's."""
        return self.ear.model

    def hear(self, audio: Audio) -> Heard:
        """The labelled words whose middle lies in this stretch.

        Raises:
            LookupError: when the stretch is not of this session: its words would be another's.
        """
        start = self.heard.find(audio)
        if start is None:
            raise LookupError("the turn is not in the trial's audio, so its labels cannot be found")
        inside = [word for word in self.words if start <= _middle(word.span) < start + len(audio)]
        words = tuple(Word(word.text, _within(word.span.shifted(-start), len(audio)), 1.0) for word in inside)
        return replace(self.ear.hear(audio), words=words, note="" if words else "no labelled words")


def labelled_words(trial: Trial) -> tuple[Word, ...]:
    """The words of a trial that could be heard, in the order of time.

    Where a segment lists its ``words`` (each with ``word``, ``start`` and ``end`` in seconds) those are taken;
    otherwise its text is laid evenly over it, by the letter. Words under a segment's ``mask`` (``start`` and ``end`` in
    seconds, one or a list of them) are left out.
    """
    words = [
        word
        for segment in trial.segments
        for word in _words_of(segment)
        if not any(start <= _middle(word.span) < end for start, end in _masks_of(segment))
    ]
    return tuple(sorted(words, key=lambda word: word.span.start_sample))


def _words_of(segment: Segment) -> Iterator[Word]:
    listed: Any = getattr(segment, "words", None)
    if listed:
        for item in listed:
            yield Word(item["word"], Span(_samples(item["start"]), _samples(item["end"])), 1.0)
        return
    parts = segment.text.split()
    letters = len(" ".join(parts))
    done = 0
    for part in parts:
        edges = [segment.start + (segment.end - segment.start) * count / letters for count in (done, done + len(part))]
        yield Word(part, Span(_samples(edges[0]), _samples(edges[1])), 1.0)
        done += len(part) + 1


def _masks_of(segment: Segment) -> Iterator[tuple[int, int]]:
    masks: Any = getattr(segment, "mask", None) or ()
    for mask in [masks] if isinstance(masks, dict) else masks:
        yield _samples(mask["start"]), _samples(mask["end"])


def _samples(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE_HZ)


def _middle(span: Span) -> int:
    return (span.start_sample + span.end_sample) // 2


def _within(span: Span, samples: int) -> Span:
    return Span(max(0, span.start_sample), min(samples, span.end_sample))


def with_labelled_words(parts: Parts, trial: Trial, heard: HeardStream) -> Parts:
    """The parts with an ear that knows what is said in this trial."""
    return replace(
        parts, ears=replace(parts.ears, speech=OracleSpeechEar(parts.ears.speech, labelled_words(trial), heard))
    )


def load(setup: Setup) -> Contestant:
    """Load the product's ears and policy; each trial gets its own speech ear."""
    return Contestant(setup.parts(), setup.catalogue, parts_for=with_labelled_words)
