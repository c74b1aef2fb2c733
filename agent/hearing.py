"""From one turn's audio to segments with evidence: who, how near, which words, what was covered.

Pure arithmetic on what the ears returned. Spans inside are relative to the turn's first sample until ``Segment`` is
made, which is in the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent.turns import split_turn
from gate.catalogue import ToolCall
from gate.correction import correct
from gate.evidence import DamageKind, DamageStretch, Word
from gate.grounding import ground_number, ground_text
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import MASK_MARK, DamageEar, OverlapEar, ProximityEar, SpeakerEar, SpeechEar
from models.speech_presence import PresenceEar

MIN_SEGMENT_SAMPLES = SAMPLE_RATE_HZ * 6 // 10
"""A voice change nearer than this to another, or to the turn's edge, is not split off: nothing could be told of it."""

_CHANGE_REACH_SAMPLES = SAMPLE_RATE_HZ * 6 // 10
"""How far a change of voice is moved at most."""
_LONGEST_PAUSE_SAMPLES = SAMPLE_RATE_HZ * 6 // 10
_SENTENCE_WORTH_SAMPLES = SAMPLE_RATE_HZ * 15 // 100

_MARKABLE = frozenset({DamageKind.NOISE, DamageKind.SILENCE, DamageKind.MUSIC, DamageKind.VOICES, DamageKind.GAP})


@dataclass(frozen=True, slots=True)
class Ears:
    """The ears of a session. The ones for overlap, which hears commands only, and presence may be left out."""

    speech: SpeechEar
    speaker: SpeakerEar
    proximity: ProximityEar
    damage: DamageEar
    overlap: OverlapEar | None = None
    presence: PresenceEar | None = None


@dataclass(frozen=True, slots=True)
class Segment:
    """One person's stretch of a turn, in the stream.

    Attributes:
        span: its samples.
        voice: the part of it from the first to the last word; what speaker and distance are measured on.
        words: words that came through, as they read after self-corrections; those that lie under damage are left out.
        marked: the same with ``MASK_MARK`` where damage stands.
        heard: the words that came through, as they were heard.
        corrections: the samples of each self-correction.
        damage: damaged stretches inside, or None when not measured.
        gap_before_s: silence since the segment before it, in seconds.
    """

    span: Span
    voice: Span
    words: tuple[Word, ...]
    marked: tuple[Word, ...]
    heard: tuple[Word, ...]
    corrections: tuple[Span, ...]
    damage: tuple[DamageStretch, ...] | None
    gap_before_s: float


def segments_of(
    turn: Span,
    words: Sequence[Word],
    changes: Sequence[int],
    damage: Sequence[DamageStretch] | None,
    previous_end_sample: int | None,
) -> tuple[Segment, ...]:
    """Cut a turn where the voice changes.

    Args:
        turn: the turn, in the stream.
        words: recognised words, relative to the turn.
        changes: samples at which the voice changes, relative to the turn.
        damage: damaged stretches, relative to the turn, or None.
        previous_end_sample: where the last segment of the session ended, in the stream, or None.

    Returns:
        The segments in order; together they cover the turn.
    """
    pieces = split_turn(Span(0, turn.samples), _between_words(changes, words), MIN_SEGMENT_SAMPLES)
    out: list[Segment] = []
    for piece in pieces:
        inside = [word for word in words if piece.start_sample <= _middle(word.span) < piece.end_sample]
        hurt = None if damage is None else [d for d in damage if d.span.overlap(piece)]
        kept = [word for word in inside if not _covered(word, hurt or ())]
        # Marks first: no correction may reach over what was covered.
        corrected = correct(_with_marks(kept, hurt or ()))
        standing = [word for word in corrected.words if word.text != MASK_MARK]
        voice = inside[0].span.cover(inside[-1].span) if inside else piece
        span = piece.shifted(turn.start_sample)
        gap = 0.0 if previous_end_sample is None else max(0, span.start_sample - previous_end_sample) / SAMPLE_RATE_HZ
        offset = turn.start_sample
        out.append(
            Segment(
                span,
                voice.shifted(offset),
                tuple(_shift(word, offset) for word in standing),
                tuple(_shift(word, offset) for word in corrected.words),
                tuple(_shift(word, offset) for word in kept),
                tuple(correction.shifted(offset) for correction in corrected.spans),
                None if hurt is None else tuple(_shift_damage(stretch, offset) for stretch in hurt),
                gap,
            )
        )
        previous_end_sample = span.end_sample
    return tuple(out)


def command_span(call: ToolCall, words: Sequence[Word]) -> Span | None:
    """The samples of the words that license a call: the sentences that carry its arguments, or the last sentence.

    Args:
        call: the proposed call.
        words: the segment's words, as they read.

    Returns:
        The span, or None when there are no words.
    """
    if not words:
        return None
    carriers: list[Word] = []
    for value in call.params.values():
        if isinstance(value, str):
            carriers.extend(ground_text(value, words) or ())
        elif isinstance(value, int | float) and not isinstance(value, bool):
            carriers.extend(ground_number(float(value), words) or ())
    sentences = _sentences(words)
    chosen = [sentence for sentence in sentences if any(word in carriers for word in sentence)] or sentences[-1:]
    # A correction may have put a word before one that was said earlier.
    licensing = [word.span for sentence in chosen for word in sentence]
    return Span(min(span.start_sample for span in licensing), max(span.end_sample for span in licensing))


def _sentences(words: Sequence[Word]) -> list[list[Word]]:
    out: list[list[Word]] = [[]]
    for word in words:
        out[-1].append(word)
        if word.text.endswith((".", "?", "!")):
            out.append([])
    return [sentence for sentence in out if sentence]


def _middle(span: Span) -> int:
    return (span.start_sample + span.end_sample) // 2


def _between_words(changes: Sequence[int], words: Sequence[Word]) -> tuple[int, ...]:
    """Move each change to the likeliest place between two words nearby: no word has two speakers.

    A voice ear places a change to within a few tenths of a second. People mostly begin after a pause or after a
    sentence, so a pause is worth moving for, up to as far as twice its length; without one the nearest gap is taken.
    """
    gaps = [
        (
            (before.span.end_sample + after.span.start_sample) // 2,
            min(max(0, after.span.start_sample - before.span.end_sample), _LONGEST_PAUSE_SAMPLES)
            + (_SENTENCE_WORTH_SAMPLES if before.text.endswith((".", "?", "!")) else 0),
        )
        for before, after in pairwise(words)
    ]
    out: list[int] = []
    for change in changes:
        near = [gap for gap in gaps if abs(gap[0] - change) <= _CHANGE_REACH_SAMPLES]
        best = max(near, key=lambda gap: gap[1] - abs(gap[0] - change) // 2, default=None)
        out.append(_out_of_word(change, words) if best is None else best[0])
    return tuple(sorted(set(out)))


def _out_of_word(change: int, words: Sequence[Word]) -> int:
    """The nearer edge of the word that a change falls into; the change itself between words."""
    for word in words:
        if word.span.start_sample < change < word.span.end_sample:
            near_start = change - word.span.start_sample < word.span.end_sample - change
            return word.span.start_sample if near_start else word.span.end_sample
    return change


def _covered(word: Word, damage: Sequence[DamageStretch]) -> bool:
    hidden = sum(stretch.span.overlap(word.span) for stretch in damage if stretch.kind in _MARKABLE)
    return word.span.samples > 0 and hidden * 2 >= word.span.samples


def _with_marks(words: Sequence[Word], damage: Sequence[DamageStretch]) -> list[Word]:
    marks = [Word(MASK_MARK, stretch.span, 0.0) for stretch in damage if stretch.kind in _MARKABLE]
    return sorted([*words, *marks], key=lambda word: (word.span.start_sample, word.span.end_sample))


def _shift(word: Word, samples: int) -> Word:
    return Word(word.text, word.span.shifted(samples), word.probability)


def _shift_damage(stretch: DamageStretch, samples: int) -> DamageStretch:
    return DamageStretch(stretch.span.shifted(samples), stretch.kind, stretch.probability)
