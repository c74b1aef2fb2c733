"""Word edges from attention, moved to where the sound is.

The times that a recogniser's cross-attention gives lie early by some 45 ms, and a word takes the pause before it
for its own: attention moves on to the next word while nobody speaks. Both are put right from the loudness of the
audio. Nothing here looks at the words' text.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from gate.evidence import Word
from gate.span import Span
from models.protocols import Audio

HOP_SAMPLES = 160
"""10 ms: the step of the loudness curve, and so of the edges."""

_WINDOW_SAMPLES = 400
_SMOOTH_FRAMES = 3
_ATTENTION_LEAD_FRAMES = 4.5
"""How early attention is, in frames of 10 ms; the median over 700 words whose times were known."""
_ABOVE_FLOOR_DB = 7.0
_BELOW_LOUD_DB = 30.0
_AT_MOST_BELOW_LOUD_DB = 10.0
_PAUSE_FRAMES = 12
"""120 ms: shorter gaps are closures inside a word ("kitchen"), not pauses between words."""
_MIN_RUN_FRAMES = 8
_MAX_REMNANT_FRAMES = 40


def loudness_db(audio: Audio) -> npt.NDArray[np.float32]:
    """Level of 25 ms windows around the middle of each 10 ms, in dB relative to full scale.

    Args:
        audio: float32 ``(samples,)`` at 16 kHz.

    Returns:
        float32 ``(samples // 160,)``, at least -100.
    """
    frames = audio.size // HOP_SAMPLES
    if frames == 0:
        return np.zeros(0, dtype=np.float32)
    side = (_WINDOW_SAMPLES - HOP_SAMPLES) // 2
    padded = np.pad(audio.astype(np.float64), side)
    # A running sum costs the same whatever the window.
    total = np.concatenate([[0.0], np.cumsum(padded * padded)])
    starts = np.arange(frames) * HOP_SAMPLES
    power = np.maximum(total[starts + _WINDOW_SAMPLES] - total[starts], 0.0) / _WINDOW_SAMPLES
    level_db: npt.NDArray[np.float32] = (10.0 * np.log10(power + 1e-10)).astype(np.float32)
    return level_db


def active_frames(level_db: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Which 10 ms steps sound, against this recording's own floor and its own loud parts."""
    if level_db.size == 0:
        return np.zeros(0, dtype=np.bool_)
    kernel = np.ones(_SMOOTH_FRAMES) / _SMOOTH_FRAMES
    smooth = np.convolve(np.pad(level_db, _SMOOTH_FRAMES // 2, mode="edge"), kernel, "valid")
    floor, loud = np.percentile(smooth, [10, 95])
    threshold = min(max(floor + _ABOVE_FLOOR_DB, loud - _BELOW_LOUD_DB), loud - _AT_MOST_BELOW_LOUD_DB)
    active: npt.NDArray[np.bool_] = smooth > threshold
    return active


def settle_edges(audio: Audio, words: Sequence[Word]) -> tuple[Word, ...]:
    """Move the edges of words to the sound that they are.

    Args:
        audio: what the words were recognised in.
        words: in order, each ending where the next begins, spans relative to ``audio``.

    Returns:
        The same words, in order, not overlapping; pauses belong to none of them.
    """
    if not words:
        return ()
    active = active_frames(loudness_db(audio))
    frames = active.size
    marks = [word.span.start_sample for word in words] + [words[-1].span.end_sample]
    edges = [min(frames, round(mark / HOP_SAMPLES + _ATTENTION_LEAD_FRAMES)) for mark in marks]
    spans: list[list[int]] = []
    for start, end in pairwise(edges):
        runs = _runs(active[start:end], start)
        if not runs:
            spans.append([start, end])
            continue
        later = [run for run in runs[1:] if run[1] - run[0] >= _MIN_RUN_FRAMES]
        remnant = runs[0]
        if spans and later and remnant[0] <= start + 1 and remnant[1] - remnant[0] < _MAX_REMNANT_FRAMES:
            # Sound that goes on from the word before, then a pause: it was that word's end.
            if remnant[0] - spans[-1][1] < _PAUSE_FRAMES:
                spans[-1][1] = max(spans[-1][1], remnant[1])
            runs = later
        longest = max(runs, key=lambda run: run[1] - run[0])
        spans.append([longest[0], longest[1]])
    return tuple(
        Word(word.text, _samples(span, audio.size), word.probability) for word, span in zip(words, spans, strict=True)
    )


def _runs(active: npt.NDArray[np.bool_], offset: int) -> list[tuple[int, int]]:
    """Active stretches, those closer than a pause joined; half-open, shifted by ``offset``."""
    steps = np.flatnonzero(np.diff(np.concatenate([[False], active, [False]]).astype(np.int8)))
    out: list[tuple[int, int]] = []
    for start, end in zip(steps[::2] + offset, steps[1::2] + offset, strict=True):
        if out and start - out[-1][1] < _PAUSE_FRAMES:
            out[-1] = (out[-1][0], int(end))
        else:
            out.append((int(start), int(end)))
    return out


def _samples(span: list[int], limit: int) -> Span:
    end = min(limit, span[1] * HOP_SAMPLES)
    return Span(min(span[0] * HOP_SAMPLES, end), end)
