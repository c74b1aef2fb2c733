"""The semantic-acoustic masking protocol of *Pardon?* (section 3.2) on any recording whose words have times.

*Semantic-degrading*: the words of the answer are replaced, so that nobody can answer. *Semantic-invariant*: one
function word is replaced, so that everybody still can. A replaced stretch sounds at the level of the speech around it
(or is silent), fades over 5 ms at both ends, and every other sample stays what and where it was.

``+wide`` expands the window around an answer by half a second on either side (section 5.3). An invariant mask is never
widened: it would take words that carry meaning, and would not be invariant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, get_args

import numpy as np

from bench.build.answers import says
from bench.build.fillers import Fillers, MaskKind, speech_level
from bench.build.phrases import find_phrase
from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import Audio

MASK_KINDS: Final[tuple[MaskKind, ...]] = get_args(MaskKind)

FADE_S: Final = 0.005
GUARD_S: Final = 0.03
"""How far an answer's mask reaches into its neighbours, where no pause is between: told edges err by about that."""
REACH_S: Final = 0.12
"""How far a mask reaches into a pause beside its words: a release or a breath still tells."""
WIDE_S: Final = 0.5
CLEAR_S: Final = 0.4
"""A mask this close before an answer can hide it from a listener, too."""
MIN_FUNCTION_WORD_S: Final = 0.05
"""Shorter is an alignment error."""


class MaskingError(ValueError):
    """A recording cannot be masked this way. The message says why."""


@dataclass(frozen=True, slots=True)
class MaskSpec:
    """Which mask.

    Attributes:
        kind: what replaces the words.
        wide: whether the window is expanded.
    """

    kind: MaskKind
    wide: bool = False

    @property
    def name(self) -> str:
        """As conditions spell it: ``noise``, ``noise+wide``."""
        return f"{self.kind}+wide" if self.wide else self.kind


@dataclass(frozen=True, slots=True)
class Window:
    """What is replaced: a stretch of samples and the words in it that it is meant for.

    Attributes:
        span: the samples that are replaced altogether; the fades lie outside.
        words: indices of the words.
    """

    span: Span
    words: range


def seeded(seed: int, *names: str) -> np.random.Generator:
    """A generator for one thing, which does not depend on what else is drawn, or in what order."""
    digest = hashlib.sha256("\0".join((str(seed), *names)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))


def answer_windows(
    words: Sequence[Word], answers: Sequence[str], samples: int, *, guard_s: float = GUARD_S, wide: bool = False
) -> tuple[Window, ...]:
    """Where answers are spoken: what a semantic-degrading mask replaces.

    Args:
        words: of the whole recording, in order.
        answers: as they are spoken.
        samples: length of the recording.
        guard_s: how far a window reaches beyond its words at least.
        wide: whether to expand the windows.

    Returns:
        One window for each time that one of them is said, in order; none for an answer within another.

    Raises:
        MaskingError: when one is not said, or one of its words has no time.
    """
    said = [word.text for word in words]
    places: list[range] = []
    for answer in answers:
        found = find_phrase(said, answer)
        if not found:
            raise MaskingError(f"the answer {answer!r} is not said in the recording")
        places.extend(found)
    if not places:
        raise MaskingError("there is no answer to mask")
    wide_s = WIDE_S if wide else 0.0
    return tuple(
        word_window(words, place, samples, guard_s=guard_s, wide_s=wide_s)
        for place in sorted(set(places), key=lambda place: (place[0], -len(place)))
        if not any(place != other and set(place) <= set(other) for other in places)
    )


def check_gone(words: Sequence[str], windows: Sequence[Window], accepted: Sequence[str]) -> None:
    """Make sure that nothing that is left tells the answer: "twelve" is masked, and "a dozen" is said elsewhere.

    Args:
        words: of the whole recording, in order.
        windows: what is replaced.
        accepted: everything that counts as the answer.

    Raises:
        MaskingError: when an answer is said outside the windows.
    """
    gone = {index for window in windows for index in window.words}
    stretches: list[list[str]] = [[]]
    for index, word in enumerate(words):
        if index in gone:
            stretches.append([])  # what stands before a mask and what stands after it make no phrase
        else:
            stretches[-1].append(word)
    for answer in accepted:
        if any(says(stretch, answer) for stretch in stretches):
            raise MaskingError(f"{answer!r} counts as the answer and is said elsewhere, too: name it as one to mask")


def word_window(
    words: Sequence[Word], place: range, samples: int, *, guard_s: float = 0.0, wide_s: float = 0.0
) -> Window:
    """The window of some neighbouring words.

    Args:
        words: of the whole recording, in order.
        place: indices of the words to replace.
        samples: length of the recording.
        guard_s: how far it reaches beyond the words at least.
        wide_s: how much further it reaches on both sides.

    Raises:
        MaskingError: when one of the words has no time.
    """
    for index in place:
        if words[index].probability == 0.0 or words[index].span.samples == 0:
            raise MaskingError(f"it is not known when {words[index].text!r} is said")
    start, end = words[place[0]].span.start_sample, words[place[-1]].span.end_sample
    pause_before = start - (words[place[0] - 1].span.end_sample if place[0] else 0)
    pause_after = (words[place[-1] + 1].span.start_sample if place[-1] + 1 < len(words) else samples) - end
    share = 1.0 if guard_s else 0.5
    reach = [
        max(_samples(guard_s), min(_samples(REACH_S), round(share * pause))) + _samples(wide_s)
        for pause in (pause_before, pause_after)
    ]
    return Window(Span(max(0, start - reach[0]), min(samples, end + reach[1])), place)


def function_word_window(
    words: Sequence[Word], candidates: Sequence[int], keep: Sequence[Window], samples: int, rng: np.random.Generator
) -> Window:
    """One function word, drawn: what a semantic-invariant mask replaces.

    Args:
        words: of the whole recording, in order.
        candidates: which of them are function words (``bench.build.function_words``).
        keep: what must stay whole, with the words within ``CLEAR_S`` of it: where the answer is spoken.
        samples: length of the recording.
        rng: draws the word.

    Raises:
        MaskingError: when there is no function word away from ``keep``.
    """
    fit = [
        index
        for index in candidates
        if words[index].probability > 0.0
        and words[index].span.duration_s >= MIN_FUNCTION_WORD_S
        and all(_apart(words[index].span, window.span) >= _samples(CLEAR_S) for window in keep)
    ]
    if not fit:
        raise MaskingError("the recording has no function word away from the answer")
    drawn = fit[int(rng.integers(len(fit)))]
    return word_window(words, range(drawn, drawn + 1), samples)


def masked(
    audio: Audio, windows: Sequence[Window], kind: MaskKind, fillers: Fillers, rng: np.random.Generator
) -> Audio:
    """The recording with some stretches replaced.

    Args:
        audio: float32 ``(samples,)`` at 16 kHz.
        windows: what to replace.
        kind: by what.
        fillers: material for it.
        rng: draws from the material.

    Returns:
        float32 ``(samples,)``. Outside the windows and 5 ms around them nothing is changed.

    Raises:
        FillerError: when there is no material for ``kind``.
    """
    out = audio.astype(np.float64)
    fade = _samples(FADE_S)
    for window in windows:
        first, last = max(0, window.span.start_sample - fade), min(audio.size, window.span.end_sample + fade)
        weight = _trapezium(np.arange(first, last), window.span, fade)
        filler = fillers.draw(kind, rng, last - first)
        filler = filler * speech_level(audio, window.span.start_sample, window.span.end_sample)
        peak = float(np.abs(filler).max(initial=0.0))
        filler /= max(1.0, peak)  # full scale is loud enough
        out[first:last] = out[first:last] * (1.0 - weight) + filler * weight
    changed = out.astype(np.float32)
    untouched = np.ones(audio.size, dtype=np.bool_)
    for window in windows:
        untouched[max(0, window.span.start_sample - fade) : window.span.end_sample + fade] = False
    changed[untouched] = audio[untouched]
    return changed


def _trapezium(at: np.ndarray, span: Span, fade: int) -> np.ndarray:
    """1 inside the span, falling to 0 over ``fade`` samples on either side."""
    before = (at - (span.start_sample - fade)) / fade
    after = (span.end_sample + fade - 1 - at) / fade
    return np.clip(np.minimum(before, after), 0.0, 1.0)


def _apart(one: Span, other: Span) -> int:
    """How many samples lie between two spans; negative where they overlap."""
    return max(one.start_sample, other.start_sample) - min(one.end_sample, other.end_sample)


def _samples(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE_HZ)
