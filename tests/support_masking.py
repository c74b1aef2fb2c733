"""Speech made of tones, one pitch a word: what a mask does to it can be measured, and a small ear can read it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bench.build.phrases import bare, spoken_words
from bench.build.voices import Voice
from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio, Heard, ModelId

WORD_SAMPLES = SAMPLE_RATE_HZ // 4
PAUSE_SAMPLES = SAMPLE_RATE_HZ // 20
LEAD_SAMPLES = SAMPLE_RATE_HZ // 2
_STEP_HZ = 40
_LOOK_SAMPLES = 1600
_PURE = 0.9
_FUNCTION_WORDS = frozenset({"i", "the", "my", "is", "of", "to", "and", "it", "in", "a", "you"})


class Whistler:
    """A synthesiser, and the ear for it. Words get their pitch as they first come."""

    identity = "whistler-1"
    model = ModelId("whistler", "0" * 64)

    def __init__(self) -> None:
        self.pitch_hz: dict[str, int] = {}

    def say(self, text: str, voice: Voice | None = None, speed: float = 1.0) -> tuple[Audio, tuple[Word, ...]]:
        """Whistle a text."""
        out, words, at = [np.zeros(LEAD_SAMPLES, np.float32)], [], LEAD_SAMPLES
        for word in spoken_words(text):
            hz = self.pitch_hz.setdefault(bare(word), 400 + _STEP_HZ * len(self.pitch_hz))
            tone = 0.3 * np.sin(2 * np.pi * hz * np.arange(WORD_SAMPLES) / SAMPLE_RATE_HZ)
            out += [tone.astype(np.float32), np.zeros(PAUSE_SAMPLES, np.float32)]
            words.append(Word(word, Span(at, at + WORD_SAMPLES), 1.0))
            at += WORD_SAMPLES + PAUSE_SAMPLES
        out.append(np.zeros(LEAD_SAMPLES, np.float32))
        return np.concatenate(out), tuple(words)

    def hear(self, audio: Audio) -> Heard:
        """Read whistled words back; what is covered, or no pure tone, is not heard."""
        words: list[Word] = []
        text_of: Mapping[int, str] = {hz: text for text, hz in self.pitch_hz.items()}
        for start in range(0, len(audio) - _LOOK_SAMPLES + 1, _LOOK_SAMPLES // 2):
            piece = audio[start : start + _LOOK_SAMPLES] * np.hanning(_LOOK_SAMPLES)
            power = np.abs(np.fft.rfft(piece)) ** 2
            peak = int(np.argmax(power))
            if power.sum() < 1.0 or power[max(0, peak - 2) : peak + 3].sum() < _PURE * power.sum():
                continue
            text = text_of.get(round(peak * SAMPLE_RATE_HZ / _LOOK_SAMPLES / _STEP_HZ) * _STEP_HZ)
            span = Span(start, start + _LOOK_SAMPLES)
            if text and words and words[-1].text == text and words[-1].span.end_sample > start:
                words[-1] = Word(text, words[-1].span.cover(span), 1.0)
            elif text:
                words.append(Word(text, span, 1.0))
        return Heard(tuple(words), "" if words else "no speech")


class ListTagger:
    """A tagger that knows ten function words."""

    def tags(self, text: str) -> tuple[frozenset[str], ...]:
        """See :meth:`bench.build.function_words.Tagger.tags`."""
        return tuple(frozenset({"DET" if bare(word) in _FUNCTION_WORDS else "NOUN"}) for word in spoken_words(text))


def times(words: Sequence[Word]) -> list[list[object]]:
    """Words as a manifest's ``word_times`` has them."""
    return [[word.text, word.span.start_s, word.span.end_s] for word in words]
