"""Segments and command spans: whose words are judged, and which words came through at all."""

from __future__ import annotations

from agent.hearing import command_span, segments_of
from gate.catalogue import ToolCall
from gate.evidence import DamageKind, DamageStretch, Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.protocols import MASK_MARK

S = SAMPLE_RATE_HZ


def words(*timed: tuple[str, float, float]) -> list[Word]:
    return [Word(text, Span.from_seconds(start, end), 0.9) for text, start, end in timed]


SAID = words(("Hello", 0.2, 0.6), ("there.", 0.6, 1.0), ("Call", 1.4, 1.7), ("Ben.", 1.7, 2.2))


def test_one_voice_is_one_segment_in_stream_positions():
    (segment,) = segments_of(Span(S, S * 4), SAID, (), (), previous_end_sample=S // 2)
    assert segment.span == Span(S, S * 4)
    assert segment.words[0].span.start_sample == S + round(0.2 * S)
    assert segment.gap_before_s == 0.5
    assert segment.voice == Span(S + round(0.2 * S), S + round(2.2 * S))


def test_a_voice_change_splits_between_words_and_no_sample_is_lost():
    inside_call = round(1.5 * S)
    first, second = segments_of(Span(0, 3 * S), SAID, (inside_call,), (), None)
    assert (first.span.end_sample, second.span.start_sample) == (round(1.2 * S), round(1.2 * S))
    assert [word.text for word in second.words] == ["Call", "Ben."]
    assert first.span.samples + second.span.samples == 3 * S


def test_a_change_heard_a_little_early_is_moved_to_the_pause_so_the_last_word_stays_its_speakers():
    early = round(0.62 * S)
    first, second = segments_of(Span(0, 3 * S), SAID, (early,), (), None)
    assert [word.text for word in first.words] == ["Hello", "there."]
    assert [word.text for word in second.words] == ["Call", "Ben."]


def test_a_change_without_a_pause_goes_to_the_nearest_gap_between_words():
    on_and_on = words(("so", 0.0, 0.5), ("we", 0.5, 1.0), ("went", 1.0, 1.5), ("out", 1.5, 2.0), ("call", 2.0, 2.5))
    first, second = segments_of(Span(0, 3 * S), on_and_on, (round(1.45 * S),), (), None)
    assert [word.text for word in first.words] == ["so", "we", "went"]
    assert second.span.start_sample == round(1.5 * S)


def test_a_change_far_from_any_gap_is_only_moved_out_of_its_word():
    drawn_out = words(("yes", 0.0, 0.7), ("well", 0.7, 2.2), ("no", 2.2, 2.9))
    first, _ = segments_of(Span(0, 3 * S), drawn_out, (round(1.45 * S),), (), None)
    assert first.span.end_sample in (round(0.7 * S), round(2.2 * S))


def test_a_word_under_a_mask_is_no_evidence_and_leaves_a_mark():
    damage = (DamageStretch(Span.from_seconds(1.65, 2.25), DamageKind.NOISE, 0.9),)
    (segment,) = segments_of(Span(0, 3 * S), SAID, (), damage, None)
    assert [word.text for word in segment.words] == ["Hello", "there.", "Call"]
    assert [word.text for word in segment.marked] == ["Hello", "there.", "Call", MASK_MARK]
    assert segment.damage == damage


def test_clipping_is_damage_but_hides_no_words():
    damage = (DamageStretch(Span.from_seconds(1.65, 2.25), DamageKind.CLIPPING, 0.9),)
    (segment,) = segments_of(Span(0, 3 * S), SAID, (), damage, None)
    assert len(segment.words) == 4
    assert all(word.text != MASK_MARK for word in segment.marked)


def test_unmeasured_damage_stays_unknown():
    (segment,) = segments_of(Span(0, 3 * S), SAID, (), None, None)
    assert segment.damage is None


def test_the_command_span_is_the_sentence_that_carries_the_arguments():
    span = command_span(ToolCall("make_call", {"contact": "Ben"}), SAID)
    assert span == Span.from_seconds(1.4, 2.2)


def test_the_command_span_without_grounded_arguments_is_the_last_sentence():
    assert command_span(ToolCall("make_call", {"contact": "Zoe"}), SAID) == Span.from_seconds(1.4, 2.2)


def test_no_words_have_no_command_span():
    assert command_span(ToolCall("make_call", {}), ()) is None
