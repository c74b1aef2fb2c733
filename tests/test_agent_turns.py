from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.frames import FRAME_MS, FRAME_SAMPLES, Reframer
from agent.turns import (
    Discarded,
    DiscardReason,
    TurnClosed,
    TurnDetector,
    TurnEnd,
    TurnEvent,
    TurnOpened,
    TurnProvisional,
    TurnResumed,
    TurnSettings,
    split_turn,
)
from agent.vad import WebRtcVad, level_dbfs, make_vad
from gate.span import SAMPLE_RATE_HZ, Span

Audio = npt.NDArray[np.float32]

PLAIN = TurnSettings(
    start_frames=2,
    start_window_frames=3,
    pre_roll_ms=100,
    min_speech_ms=80,
    provisional_pause_ms=100,
    hangover_ms=200,
    min_hangover_ms=100,
    max_hangover_ms=400,
    tail_ms=60,
    max_turn_s=1.0,
    max_bridged_gap_ms=40,
    discard_report_s=0.5,
)
"""Short lengths, so that patterns stay readable: 5 frames pause, 10 hangover, 3 tail, 50 maximum."""


def at(frame: int) -> int:
    """First sample of a frame."""
    return frame * FRAME_SAMPLES


def ramp(start_sample: int, size: int) -> Audio:
    """Samples that carry their own position, so that a lost, doubled or moved one shows."""
    return np.arange(start_sample + 1, start_sample + size + 1, dtype=np.float32)


def feed(detector: TurnDetector, pattern: str, level: float | None = None) -> list[TurnEvent]:
    """Push one frame a character: ``#`` speech, anything else not. Blanks are ignored."""
    events: list[TurnEvent] = []
    for mark in pattern.replace(" ", ""):
        start = detector.position
        events += detector.push(start, ramp(start, FRAME_SAMPLES), mark == "#", level)
    return events


def run(pattern: str, settings: TurnSettings = PLAIN, level: float | None = None) -> list[TurnEvent]:
    detector = TurnDetector(settings)
    return feed(detector, pattern, level) + detector.flush()


def closed(events: Iterable[TurnEvent]) -> list[TurnClosed]:
    return [event for event in events if isinstance(event, TurnClosed)]


def discarded(events: Iterable[TurnEvent]) -> list[Discarded]:
    return [event for event in events if isinstance(event, Discarded)]


def only(events: Iterable[TurnEvent]) -> TurnClosed:
    turns = closed(events)
    assert len(turns) == 1
    return turns[0]


def kinds(events: Iterable[TurnEvent]) -> list[str]:
    return [type(event).__name__ for event in events if not isinstance(event, Discarded)]


# --- where a turn starts -------------------------------------------------------------------------------------------


def test_the_turn_starts_at_trigger_minus_pre_roll_exactly_so_the_first_syllable_is_kept() -> None:
    settings = TurnSettings()
    silence = "." * 50
    events = run(silence + "#" * 40 + "." * 50, settings)
    opened = next(event for event in events if isinstance(event, TurnOpened))
    turn = only(events)
    assert opened.trigger_sample == SAMPLE_RATE_HZ
    assert opened.start_sample == turn.span.start_sample == SAMPLE_RATE_HZ - 300 * 16
    assert len(turn.samples) == turn.span.samples
    np.testing.assert_array_equal(turn.samples, ramp(turn.span.start_sample, turn.span.samples))


def test_the_trigger_is_the_first_speech_frame_of_the_window_also_when_a_frame_between_was_missed() -> None:
    opened = next(e for e in run("....... #.# ####### ..........") if isinstance(e, TurnOpened))
    assert opened.trigger_sample == at(7)
    assert opened.start_sample == at(2)


def test_the_pre_roll_is_clamped_at_the_start_of_the_stream() -> None:
    assert only(run(".. ######## ..........")).span.start_sample == 0
    detector = TurnDetector(PLAIN, first_sample=at(1000))
    assert only(feed(detector, ".. ######## ..........")).span.start_sample == at(1000)


def test_the_pre_roll_is_clamped_at_the_end_of_the_previous_turn_so_no_sample_is_in_two() -> None:
    settings = replace(PLAIN, pre_roll_ms=300)
    first, second = closed(run("######## .......... ######## ..........", settings))
    assert first.span == Span(0, at(11))
    assert second.span.start_sample == first.span.end_sample


def test_turns_are_numbered_in_order_of_opening_and_rejected_sounds_use_no_number() -> None:
    events = run("######## .......... ## .......... ######## ..........")
    assert [turn.turn_id for turn in closed(events)] == ["t0001", "t0002"]


# --- too little speech ---------------------------------------------------------------------------------------------


def test_a_click_opens_nothing_and_is_accounted_for_as_too_short() -> None:
    events = run("....." + "###" + "." * 20)
    assert kinds(events) == []
    short = [event for event in discarded(events) if event.reason is DiscardReason.BELOW_MIN_SPEECH]
    assert [(event.span, event.speech_samples) for event in short] == [(Span(at(5), at(8)), at(3))]


def test_the_shortest_sound_that_starts_a_candidate_is_accounted_for_whole() -> None:
    short = [event for event in discarded(run("....##......")) if event.reason is DiscardReason.BELOW_MIN_SPEECH]
    assert [event.span for event in short] == [Span(at(4), at(6))]


def test_speech_of_exactly_the_minimum_passes_and_one_frame_less_does_not() -> None:
    assert only(run(".....####..........")).speech_samples == at(4)
    assert closed(run(".....###..........")) == []


def test_a_stop_of_a_quarter_second_passes_with_the_default_settings() -> None:
    quarter_second = "#" * 12
    turn = only(run("." * 30 + quarter_second + "." * 40, TurnSettings()))
    assert turn.speech_samples == at(12)


def test_single_frames_of_speech_start_nothing() -> None:
    assert kinds(run("#....#....#....#....#....#")) == []


def test_a_rejected_sound_is_still_there_for_the_next_turns_pre_roll() -> None:
    # A soft onset scored as two frames, a pause, then the word: the pre-roll reaches back into the rejected part.
    settings = replace(PLAIN, pre_roll_ms=200)
    events = run("." * 10 + "##" + "." * 5 + "########" + "." * 10, settings)
    turn = only(events)
    assert turn.span.start_sample == at(17 - 10)
    assert not [event for event in discarded(events) if event.reason is DiscardReason.BELOW_MIN_SPEECH]


# --- where a turn ends ---------------------------------------------------------------------------------------------


def test_the_provisional_turn_holds_the_samples_of_the_final_one_so_early_work_stays_valid() -> None:
    events = run("..... ######## ............")
    assert kinds(events) == ["TurnOpened", "TurnProvisional", "TurnClosed"]
    provisional = next(event for event in events if isinstance(event, TurnProvisional))
    turn = only(events)
    assert provisional.revision == turn.same_as_revision == 1
    assert provisional.span == turn.span == Span(0, at(16))
    assert provisional.speech_end_sample == turn.speech_end_sample == at(13)
    assert turn.samples is provisional.samples
    assert (provisional.decided_sample, turn.decided_sample) == (at(18), at(23))
    assert turn.reason is TurnEnd.SILENCE


def test_speech_that_goes_on_says_which_revision_to_throw_away() -> None:
    events = run("######## ...... ######## ..........")
    assert kinds(events) == ["TurnOpened", "TurnProvisional", "TurnResumed", "TurnProvisional", "TurnClosed"]
    resumed = next(event for event in events if isinstance(event, TurnResumed))
    assert (resumed.revision, resumed.decided_sample) == (1, at(16))
    turn = only(events)
    assert turn.same_as_revision == 2
    assert turn.span == Span(0, at(25))
    assert turn.speech_samples == at(16)
    np.testing.assert_array_equal(turn.samples, ramp(0, at(25)))


def test_a_stray_speech_frame_in_the_closing_silence_does_not_keep_the_turn_open() -> None:
    turn = only(run("######## .....#.... ....."))
    assert turn.decided_sample == at(18)
    assert turn.same_as_revision == 1


def test_speech_just_before_the_turn_closes_belongs_to_the_next_turn() -> None:
    first, second = closed(run("######## .........# ######### .........."))
    assert first.span == Span(0, at(11))
    assert second.span.start_sample == at(12)
    assert second.speech_samples == at(10)


def test_samples_are_read_only_and_copied_so_a_reused_driver_buffer_cannot_change_a_turn() -> None:
    detector = TurnDetector(PLAIN)
    buffer = np.zeros(FRAME_SAMPLES, np.float32)
    events: list[TurnEvent] = []
    for frame in range(20):
        buffer[:] = frame
        events += detector.push(detector.position, buffer, frame < 8)
    turn = only(events)
    np.testing.assert_array_equal(turn.samples[::FRAME_SAMPLES], np.arange(11))
    with pytest.raises(ValueError, match="read-only"):
        turn.samples[0] = 1.0


def test_a_short_stop_and_the_next_sentence_are_two_turns_both_closed_on_time() -> None:
    settings = TurnSettings()
    stop, pause, sentence = "#" * 12, "." * 45, "#" * 80
    first, second = closed(run("." * 50 + stop + pause + sentence + "." * 40, settings))
    hangover = 600 * 16
    assert first.speech_end_sample == at(62)
    assert first.decided_sample == first.speech_end_sample + hangover
    assert second.speech_end_sample == at(187)
    assert second.decided_sample == second.speech_end_sample + hangover
    assert second.span.start_sample == at(107) - 300 * 16


# --- hard maximum --------------------------------------------------------------------------------------------------


def test_endless_speech_is_cut_at_the_maximum_and_the_next_turn_begins_without_a_hole() -> None:
    turns = closed(run("#" * 175))
    assert [turn.span for turn in turns] == [
        Span(0, at(50)), Span(at(50), at(100)), Span(at(100), at(150)), Span(at(150), at(175))
    ]  # fmt: skip
    assert [turn.reason for turn in turns] == [TurnEnd.MAX] * 3 + [TurnEnd.END_OF_STREAM]
    assert turns[0].same_as_revision is None


def test_a_turn_that_reaches_the_maximum_in_a_pause_keeps_its_provisional_samples() -> None:
    settings = replace(PLAIN, hangover_ms=400, max_hangover_ms=400)
    turn = only(run("#" * 40 + "." * 30, settings))
    assert (turn.reason, turn.decided_sample) == (TurnEnd.MAX, at(50))
    assert (turn.span, turn.same_as_revision) == (Span(0, at(43)), 1)


def test_white_noise_yields_at_most_one_turn_per_maximum_though_every_frame_scores_as_speech() -> None:
    noise = np.clip(np.random.default_rng(0).normal(0, 1, 60 * SAMPLE_RATE_HZ), -1, 1).astype(np.float32)
    vad, detector = WebRtcVad(), TurnDetector()
    events: list[TurnEvent] = []
    speech_frames = 0
    for start in range(0, len(noise), FRAME_SAMPLES):
        frame = noise[start : start + FRAME_SAMPLES]
        speech = vad.is_speech(frame)
        speech_frames += speech
        events += detector.push(start, frame, speech, level_dbfs(frame))
    events += detector.flush()
    assert speech_frames > 2_900
    assert 1 <= len(closed(events)) <= 4
    assert all(turn.span.duration_s <= 15.0 for turn in closed(events))


# --- gaps of the source --------------------------------------------------------------------------------------------


def test_a_short_loss_is_bridged_with_zeros_and_flagged() -> None:
    detector = TurnDetector(PLAIN)
    events = feed(detector, "########")
    events += detector.gap(at(8), 500)
    events += feed(detector, "######## ..........")
    turn = only(events)
    assert turn.source_gap
    assert turn.reason is TurnEnd.SILENCE
    assert turn.span == Span(0, at(19) + 500)
    np.testing.assert_array_equal(turn.samples[at(8) : at(8) + 500], np.zeros(500))
    assert turn.samples[at(8) + 500] == at(8) + 501
    assert turn.speech_samples == at(16)


def test_an_overflow_of_unknown_length_flags_the_open_turn_and_moves_nothing() -> None:
    detector = TurnDetector(PLAIN)
    feed(detector, "########")
    assert detector.gap(at(8)) == []
    turn = only(feed(detector, "##.........."))
    assert turn.source_gap
    assert (turn.reason, turn.span) == (TurnEnd.SILENCE, Span(0, at(13)))


@pytest.mark.parametrize(
    ("lost", "stopped"), [(641, False), (0, True), (320, True), (16_000 * 3600 * 10, False)], ids=str
)
def test_a_long_loss_or_a_stopped_source_closes_the_turn_so_that_nothing_is_executed_from_it(
    lost: int, stopped: bool
) -> None:
    detector = TurnDetector(PLAIN)
    feed(detector, "########")
    events = detector.gap(at(8), lost, stopped=stopped)
    turn = only(events)
    assert (turn.reason, turn.source_gap, turn.span) == (TurnEnd.SOURCE_GAP, True, Span(0, at(8)))
    assert detector.position == at(8) + lost
    reasons = [(event.span, event.reason) for event in discarded(events)]
    assert reasons == ([(Span(at(8), at(8) + lost), DiscardReason.SOURCE_GAP)] if lost else [])
    assert detector.totals.held_samples == 0


def test_a_loss_in_the_closing_silence_flags_the_turn_because_speech_may_have_gone_on_there() -> None:
    detector = TurnDetector(PLAIN)
    events = feed(detector, "######## ......")
    events += detector.gap(detector.position, 320)
    events += feed(detector, "....")
    turn = only(events)
    assert turn.source_gap
    assert turn.same_as_revision == 1
    assert turn.reason is TurnEnd.SILENCE


def test_the_pre_roll_does_not_reach_across_a_loss_and_the_turn_says_so() -> None:
    detector = TurnDetector(PLAIN)
    events = feed(detector, "..........")
    events += detector.gap(at(10), 0)
    events += feed(detector, ".. ######## ..........")
    turn = only(events)
    assert turn.span.start_sample == at(10)
    assert turn.source_gap


def test_the_pre_roll_does_not_reach_across_a_loss_inside_a_rejected_sound() -> None:
    detector = TurnDetector(replace(PLAIN, pre_roll_ms=300))
    events = feed(detector, "....##")
    events += detector.gap(at(6), 320)
    events += feed(detector, ".... ######## ..........")
    turn = only(events)
    assert turn.span.start_sample == at(7)
    assert turn.source_gap
    before = [(event.span, event.reason) for event in discarded(events)]
    assert before == [
        (Span(0, at(4)), DiscardReason.SILENCE),
        (Span(at(4), at(6)), DiscardReason.BELOW_MIN_SPEECH),
        (Span(at(6), at(7)), DiscardReason.SOURCE_GAP),
    ]


def test_a_loss_that_would_take_a_turn_past_its_maximum_closes_it() -> None:
    detector = TurnDetector(replace(PLAIN, max_bridged_gap_ms=100))
    events = feed(detector, "#" * 47) + detector.gap(at(47), at(4))
    turn = only(events)
    assert (turn.reason, turn.span) == (TurnEnd.SOURCE_GAP, Span(0, at(47)))


def test_one_stray_frame_after_a_bridged_loss_does_not_resume_with_speech_from_before_it() -> None:
    detector = TurnDetector(replace(PLAIN, max_bridged_gap_ms=100))
    events = feed(detector, "########") + detector.gap(at(8), at(5))
    events += feed(detector, "#....")
    assert kinds(events) == ["TurnOpened", "TurnProvisional", "TurnClosed"]


def test_a_turn_well_after_a_loss_is_not_flagged() -> None:
    detector = TurnDetector(PLAIN)
    events = feed(detector, "....") + detector.gap(at(4), 5_000)
    events += feed(detector, ".......... ######## .......... ######## ..........")
    assert [turn.source_gap for turn in closed(events)] == [False, False]


def test_a_start_of_speech_that_a_stop_cuts_off_opens_nothing() -> None:
    detector = TurnDetector(PLAIN)
    events = feed(detector, "......###") + detector.gap(at(9), stopped=True)
    assert kinds(events) == []
    assert discarded(events)[-1].reason is DiscardReason.BELOW_MIN_SPEECH
    assert detector.totals.held_samples == 0


def test_frames_that_do_not_follow_each_other_are_refused_until_the_loss_is_said() -> None:
    detector = TurnDetector(PLAIN)
    feed(detector, "..")
    for wrong in (at(1), at(3)):
        with pytest.raises(ValueError, match="expected 640"):
            detector.push(wrong, ramp(0, FRAME_SAMPLES), False)
    with pytest.raises(ValueError, match="expected 640"):
        detector.gap(at(3), 10)
    with pytest.raises(ValueError, match="lost_samples"):
        detector.gap(at(2), -1)
    detector.gap(at(2), 320)
    detector.push(at(3), ramp(0, FRAME_SAMPLES), False)


# --- end of stream -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("silence", "end", "revision"), [(0, 8, None), (2, 10, None), (4, 11, None), (5, 11, 1), (9, 11, 1)]
)
def test_the_end_of_the_stream_closes_the_open_turn(silence: int, end: int, revision: int | None) -> None:
    turn = only(run("########" + "." * silence))
    assert (turn.reason, turn.span, turn.same_as_revision) == (TurnEnd.END_OF_STREAM, Span(0, at(end)), revision)


def test_the_last_samples_that_fill_no_frame_stay_in_the_turn() -> None:
    detector = TurnDetector(PLAIN)
    events = feed(detector, "########")
    events += detector.push(at(8), ramp(at(8), 100), False)
    with pytest.raises(ValueError, match="shorter"):
        detector.push(at(8) + 100, ramp(0, FRAME_SAMPLES), False)
    events += detector.flush()
    assert only(events).span == Span(0, at(8) + 100)


def test_nothing_may_follow_the_end_of_the_stream() -> None:
    detector = TurnDetector(PLAIN)
    assert detector.flush() == []
    for call in (detector.flush, lambda: detector.push(0, ramp(0, 320), False), lambda: detector.gap(0)):
        with pytest.raises(RuntimeError, match="flushed"):
            call()


@pytest.mark.parametrize(
    "samples",
    [np.zeros(320), np.zeros(0, np.float32), np.zeros(321, np.float32), np.zeros((320, 1), np.float32), [0.0] * 320],
)
def test_anything_but_a_float32_frame_is_refused(samples: object) -> None:
    with pytest.raises(ValueError, match=r"samples|a frame holds"):
        TurnDetector(PLAIN).push(0, samples, False)  # type: ignore[arg-type]


# --- a hangover that follows advice --------------------------------------------------------------------------------


def test_a_longer_hangover_lets_an_unfinished_sentence_go_on() -> None:
    detector = TurnDetector(PLAIN)
    feed(detector, "######## .....")
    assert detector.set_hangover_ms("t0001", 400, revision=1) == []
    assert closed(feed(detector, "." * 14)) == []
    assert only(feed(detector, ".")).decided_sample == at(28)


def test_a_shorter_hangover_closes_at_once_when_the_silence_is_long_enough_already() -> None:
    detector = TurnDetector(PLAIN)
    feed(detector, "######## ......")
    turn = only(detector.set_hangover_ms("t0001", 120))
    assert (turn.decided_sample, turn.span, turn.same_as_revision) == (at(14), Span(0, at(11)), 1)


def test_advice_on_one_pause_does_not_outlive_it() -> None:
    detector = TurnDetector(PLAIN)
    feed(detector, "######## .....")
    detector.set_hangover_ms("t0001", 400, revision=1)
    events = feed(detector, "...... ######## ..........")
    assert only(events).decided_sample == at(37)


def test_advice_while_the_person_speaks_holds_for_the_next_pause() -> None:
    detector = TurnDetector(PLAIN)
    feed(detector, "########")
    detector.set_hangover_ms("t0001", 100)
    assert only(feed(detector, ".....")).decided_sample == at(13)


def test_late_advice_is_ignored_because_losing_a_race_is_no_error() -> None:
    detector = TurnDetector(PLAIN)
    assert detector.set_hangover_ms("t0001", 100) == []
    feed(detector, "######## ...... ########")
    assert detector.set_hangover_ms("t0001", 400, revision=1) == []
    feed(detector, ".....")
    assert detector.set_hangover_ms("t0001", 400, revision=1) == []
    assert only(feed(detector, "." * 5)).decided_sample == at(32)
    assert detector.set_hangover_ms("t0001", 100) == []


@pytest.mark.parametrize("hangover_ms", [0, 80, 420])
def test_a_hangover_out_of_range_is_refused(hangover_ms: int) -> None:
    with pytest.raises(ValueError, match="100 to 400"):
        TurnDetector(PLAIN).set_hangover_ms("t0001", hangover_ms)


# --- what is discarded ---------------------------------------------------------------------------------------------


def test_long_silence_is_reported_in_stretches_and_all_of_it() -> None:
    events = discarded(run("." * 130))
    assert all(event.reason is DiscardReason.SILENCE for event in events)
    assert [event.span for event in events] == [
        Span(0, at(25)), Span(at(25), at(50)), Span(at(50), at(75)), Span(at(75), at(100)), Span(at(100), at(125)),
        Span(at(125), at(130)),
    ]  # fmt: skip


def test_a_whisper_that_the_detector_refuses_is_counted_with_its_level() -> None:
    detector = TurnDetector(replace(PLAIN, discard_report_s=10.0))
    events = feed(detector, "." * 50, level=-70.0) + feed(detector, "." * 60, level=-47.0)
    events += feed(detector, "." * 50, level=-70.0) + detector.flush()
    (event,) = discarded(events)
    assert event.reason is DiscardReason.BELOW_VAD
    assert event.below_vad_samples == at(60)
    assert event.below_vad_level_dbfs == pytest.approx(-47.0)


def test_a_short_noise_that_the_detector_refuses_leaves_the_stretch_silence_but_is_counted() -> None:
    detector = TurnDetector(replace(PLAIN, discard_report_s=10.0))
    events = feed(detector, "." * 20, level=-70.0) + feed(detector, "...", level=-40.0)
    events += feed(detector, "." * 20, level=-70.0) + detector.flush()
    (event,) = discarded(events)
    assert (event.reason, event.below_vad_samples) == (DiscardReason.SILENCE, at(3))


def test_a_steady_background_is_silence_at_any_level() -> None:
    rng = np.random.default_rng(0)
    detector = TurnDetector(PLAIN)
    events: list[TurnEvent] = []
    for _ in range(200):
        start = detector.position
        events += detector.push(start, ramp(start, 320), False, -40.0 + rng.uniform(-3, 3))
    assert {event.reason for event in discarded(events + detector.flush())} == {DiscardReason.SILENCE}


@pytest.mark.parametrize("level", [None, float("nan"), float("-inf")])
def test_an_unknown_level_counts_as_nothing(level: float | None) -> None:
    (event,) = discarded(run("." * 20, level=level))
    assert (event.below_vad_samples, event.below_vad_level_dbfs) == (0, None)


def test_what_is_held_back_stays_small_however_long_the_silence() -> None:
    detector = TurnDetector()
    frame = np.zeros(FRAME_SAMPLES, np.float32)
    held = []
    for _ in range(5_000):
        detector.push(detector.position, frame, False, -80.0)
        held.append(detector.totals.held_samples)
    pre_roll_and_window = (300 + 5 * FRAME_MS) * 16
    assert max(held) <= pre_roll_and_window + 10 * SAMPLE_RATE_HZ


@pytest.mark.slow
def test_two_hours_of_silence_and_two_of_noise_need_no_more_memory_than_a_minute() -> None:
    detector = TurnDetector()
    frame = np.zeros(FRAME_SAMPLES, np.float32)

    def hours(count: float, speech: bool) -> int:
        for _ in range(int(count * 3600 * 50)):
            detector.push(detector.position, frame, speech, -60.0)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        hours(1 / 60, speech=True)
        after_a_minute = hours(1 / 60, speech=False)
        assert hours(2, speech=False) < after_a_minute + 20_000
        hours(2, speech=True)
        assert hours(1 / 60, speech=False) < after_a_minute + 20_000
    finally:
        tracemalloc.stop()


# --- properties ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frames:
    count: int
    speech: bool


@dataclass(frozen=True)
class Gap:
    lost: int
    stopped: bool
    partial: int


@dataclass(frozen=True)
class Advice:
    hangover_ms: int


STEPS = st.lists(
    st.one_of(
        st.builds(Frames, st.integers(1, 14), st.just(True)),
        st.builds(Frames, st.integers(1, 14), st.just(False)),
        st.builds(Frames, st.integers(1, 2), st.booleans()),
        st.builds(Gap, st.integers(0, 1_500), st.booleans(), st.integers(0, 319)),
        st.builds(Advice, st.sampled_from([100, 150, 200, 400])),
    ),
    max_size=40,
)
SETTINGS = st.builds(
    replace,
    st.just(PLAIN),
    pre_roll_ms=st.sampled_from([0, 100, 300]),
    tail_ms=st.sampled_from([0, 60, 100]),
    min_speech_ms=st.sampled_from([40, 80, 160]),
    max_bridged_gap_ms=st.sampled_from([0, 40, 80]),
    max_turn_s=st.sampled_from([1.2, 3.0]),
    discard_report_s=st.sampled_from([0.1, 1.0]),
)


@given(settings_=SETTINGS, steps=STEPS, rest=st.integers(0, 319))
@settings(max_examples=120, deadline=None)
def test_every_sample_is_in_exactly_one_turn_or_one_discarded_span(
    settings_: TurnSettings, steps: list[Frames | Gap | Advice], rest: int
) -> None:
    detector = TurnDetector(settings_)
    events: list[TurnEvent] = []
    gaps: list[Span] = []
    received = 0

    def push(size: int, speech: bool) -> None:
        nonlocal received, events
        start = detector.position
        events += detector.push(start, ramp(start, size), speech, -50.0)
        received += size

    for step in steps:
        if isinstance(step, Frames):
            for _ in range(step.count):
                push(FRAME_SAMPLES, step.speech)
        elif isinstance(step, Gap):
            if step.partial:
                push(step.partial, False)
            start = detector.position
            events += detector.gap(start, step.lost, stopped=step.stopped)
            gaps.append(Span(start, start + step.lost))
        else:
            opened = sum(isinstance(event, TurnOpened) for event in events)
            events += detector.set_hangover_ms(f"t{opened:04d}", step.hangover_ms)
        totals = detector.totals
        assert totals.received_samples == received
        assert totals.received_samples + totals.lost_samples == (
            totals.in_turns_samples + totals.discarded_samples + totals.held_samples
        )
    if rest:
        push(rest, False)
    events += detector.flush()

    assert detector.totals.held_samples == 0
    check_cover(events, detector.position)
    check_turns(events, gaps, settings_)


def check_cover(events: list[TurnEvent], end_sample: int) -> None:
    """Turns and discarded spans follow each other from the first sample to the last."""
    position = 0
    for event in events:
        if isinstance(event, TurnClosed | Discarded):
            assert event.span.start_sample == position
            assert event.span.samples > 0
            position = event.span.end_sample
    assert position == end_sample


def check_turns(events: list[TurnEvent], gaps: list[Span], settings_: TurnSettings) -> None:
    opened: TurnOpened | None = None
    provisional: TurnProvisional | None = None
    previous_end = 0
    count = 0
    for event in events:
        match event:
            case TurnOpened():
                assert opened is None
                count += 1
                opened, provisional = event, None
                assert event.turn_id == f"t{count:04d}"
                wanted = event.trigger_sample - settings_.pre_roll_ms * 16
                limits = [wanted, previous_end, *(gap.end_sample for gap in gaps if gap.end_sample <= wanted)]
                crossed = [gap.end_sample for gap in gaps if wanted < gap.end_sample <= event.trigger_sample]
                assert event.start_sample == max(limits + crossed)
            case TurnProvisional():
                assert opened is not None
                assert provisional is None
                assert event.revision >= 1
                assert event.span.samples == len(event.samples)
                provisional = event
            case TurnResumed():
                assert provisional is not None
                assert event.revision == provisional.revision
                provisional = None
            case TurnClosed():
                assert opened is not None
                check_closed(event, opened, provisional, gaps, settings_)
                previous_end, opened = event.span.end_sample, None
            case Discarded():
                lost = event.reason is DiscardReason.SOURCE_GAP
                assert lost == any(gap.overlap(event.span) for gap in gaps)
                assert event.speech_samples + event.below_vad_samples <= event.span.samples
    assert opened is None


def check_closed(
    turn: TurnClosed,
    opened: TurnOpened,
    provisional: TurnProvisional | None,
    gaps: list[Span],
    settings_: TurnSettings,
) -> None:
    assert turn.turn_id == opened.turn_id
    assert turn.span.start_sample == opened.start_sample
    assert opened.trigger_sample < turn.speech_end_sample <= turn.span.end_sample <= turn.decided_sample
    assert turn.span.samples == len(turn.samples) <= settings_.max_turn_s * SAMPLE_RATE_HZ
    assert turn.speech_samples >= settings_.min_speech_ms * 16
    expected = ramp(turn.span.start_sample, turn.span.samples)
    for gap in gaps:
        low = max(gap.start_sample - turn.span.start_sample, 0)
        expected[low : max(gap.end_sample - turn.span.start_sample, 0)] = 0.0
    np.testing.assert_array_equal(turn.samples, expected)
    if turn.same_as_revision is None:
        assert provisional is None
    else:
        assert provisional is not None
        assert turn.same_as_revision == provisional.revision
        assert turn.span == provisional.span
        assert turn.samples is provisional.samples
    if any(opened.start_sample < gap.end_sample and gap.start_sample < turn.span.end_sample for gap in gaps):
        assert turn.source_gap
    if turn.reason is TurnEnd.SOURCE_GAP:
        assert turn.source_gap
    if turn.reason is TurnEnd.SILENCE:
        assert turn.decided_sample - turn.speech_end_sample >= settings_.min_hangover_ms * 16
    if turn.reason is not TurnEnd.MAX:
        assert turn.span.end_sample <= turn.speech_end_sample + settings_.tail_ms * 16


def session_audio() -> Audio:
    """Six seconds: room noise, two buzzes with a pause in one of them, a click."""
    rng = np.random.default_rng(5)
    audio = rng.normal(0, 3e-4, 6 * SAMPLE_RATE_HZ + 123)
    time = np.arange(SAMPLE_RATE_HZ) / SAMPLE_RATE_HZ
    buzz = np.sum([0.1 / k * np.sin(2 * np.pi * 120 * k * time) for k in range(1, 25)], axis=0)
    for start_s, length_s in ((1.0, 0.8), (2.1, 0.5), (4.2, 0.4)):
        start, size = int(start_s * SAMPLE_RATE_HZ), int(length_s * SAMPLE_RATE_HZ)
        audio[start : start + size] += buzz[:size]
    audio[52_000:52_040] += 0.5
    return audio.astype(np.float32)


def decide(audio: Audio, block_sizes: Iterable[int]) -> list[TurnEvent]:
    """The front of the live loop: re-framer, voice detector, turn detector."""
    reframer, vad, detector = Reframer(), make_vad(), TurnDetector()
    events: list[TurnEvent] = []
    position = 0
    blocks = iter(block_sizes)
    while position < len(audio):
        size = next(blocks)
        frames = reframer.push(audio[position : position + size])
        position += size
        if position >= len(audio):
            frames += reframer.finish()
        for frame in frames:
            real = frame.samples[: FRAME_SAMPLES - frame.padded_samples]
            events += detector.push(frame.start_sample, real, vad.is_speech(frame.samples), level_dbfs(frame.samples))
    return events + detector.flush()


def forever(size: int) -> Iterable[int]:
    while True:
        yield size


WHOLE = session_audio()


@pytest.fixture(scope="module")
def reference() -> list[TurnEvent]:
    events = decide(WHOLE, forever(len(WHOLE)))
    assert len(closed(events)) == 2, "the session holds two turns, one of them with a pause"
    assert any(isinstance(event, TurnResumed) for event in events)
    check_cover(events, len(WHOLE))
    return events


@pytest.mark.parametrize("block_ms", [10, 20, 32, 80])
def test_the_block_size_of_the_source_changes_no_decision(block_ms: int, reference: list[TurnEvent]) -> None:
    assert_same(decide(WHOLE, forever(block_ms * 16)), reference)


@given(sizes=st.lists(st.integers(1, 5_000), min_size=1, max_size=20))
@settings(max_examples=8, deadline=None)
def test_no_sequence_of_block_sizes_changes_a_decision(sizes: list[int]) -> None:
    assert_same(decide(WHOLE, (sizes * (len(WHOLE) // sum(sizes) + 1))), decide(WHOLE, forever(len(WHOLE))))


def assert_same(events: list[TurnEvent], reference: list[TurnEvent]) -> None:
    assert events == reference
    for turn, other in zip(closed(events), closed(reference), strict=True):
        np.testing.assert_array_equal(turn.samples, other.samples)


# --- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"pre_roll_ms": 310}, "pre_roll_ms is 310; it must be a multiple of the frame, 20 ms"),
        ({"pre_roll_ms": -20}, "pre_roll_ms"),
        ({"hangover_ms": 610}, "hangover_ms is 610"),
        ({"hangover_ms": 2_000}, "must not decrease"),
        ({"min_hangover_ms": 100}, "must not decrease"),
        ({"max_hangover_ms": 400}, "must not decrease"),
        ({"tail_ms": 220}, "tail_ms is 220; it must not exceed provisional_pause_ms"),
        ({"start_frames": 0}, "start_frames"),
        ({"start_frames": 6}, "start_frames is 6; it must be 1 to start_window_frames"),
        ({"start_window_frames": 11}, "start_window_frames"),
        ({"min_speech_ms": 40}, "min_speech_ms"),
        ({"min_speech_ms": 0}, "min_speech_ms"),
        ({"max_turn_s": float("nan")}, "max_turn_s"),
        ({"max_turn_s": float("inf")}, "max_turn_s"),
        ({"max_turn_s": 1.0}, "max_turn_s is 1.0; a turn can need"),
        ({"max_turn_s": 5.01}, "max_turn_s is 5.01; it must be a multiple"),
        ({"discard_report_s": 0.0}, "discard_report_s"),
        ({"max_bridged_gap_ms": 30}, "max_bridged_gap_ms"),
        ({"audible_floor_dbfs": 1.0}, "audible_floor_dbfs"),
        ({"audible_margin_db": -1.0}, "audible_margin_db"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(change: dict[str, float], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        replace(TurnSettings(), **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["600", True, None, 600.0])
def test_a_length_of_the_wrong_type_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="hangover_ms"):
        replace(TurnSettings(), hangover_ms=value)  # type: ignore[arg-type]


def test_settings_and_events_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TurnSettings().hangover_ms = 400  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        run("....")[0].span = Span(0, 1)  # type: ignore[misc, union-attr]
    assert TurnDetector(PLAIN).settings is PLAIN


def test_a_stream_cannot_start_before_its_first_sample() -> None:
    with pytest.raises(ValueError, match="first_sample"):
        TurnDetector(first_sample=-1)


# --- speaker changes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], [(100, 1000)]),
        ([500], [(100, 500), (500, 1000)]),
        ([700, 400, 700], [(100, 400), (400, 700), (700, 1000)]),
        ([150], [(100, 1000)]),
        ([960], [(100, 1000)]),
        ([100, 1000], [(100, 1000)]),
        ([500, 550], [(100, 500), (500, 1000)]),
        ([200, 900], [(100, 200), (200, 900), (900, 1000)]),
        ([500, 520, 640], [(100, 500), (500, 640), (640, 1000)]),
    ],
)
def test_a_turn_is_split_where_the_voice_changes_and_short_rests_join_what_follows(
    changes: list[int], expected: list[tuple[int, int]]
) -> None:
    assert split_turn(Span(100, 1000), changes, 100) == tuple(Span(*bounds) for bounds in expected)


@given(
    start=st.integers(0, 1_000),
    length=st.integers(0, 5_000),
    places=st.lists(st.floats(0, 1), max_size=30),
    minimum=st.integers(1, 2_000),
)
@settings(max_examples=100)
def test_a_split_neither_loses_nor_doubles_a_sample(start: int, length: int, places: list[float], minimum: int) -> None:
    span = Span(start, start + length)
    changes = [start + int(place * length) for place in places]
    parts = split_turn(span, changes, minimum)
    bounds = [part.start_sample for part in parts] + [parts[-1].end_sample]
    assert bounds == sorted(bounds)
    assert (bounds[0], bounds[-1]) == (span.start_sample, span.end_sample)
    assert sum(part.samples for part in parts) == span.samples
    assert set(bounds[1:-1]) <= set(changes)
    assert len(parts) == 1 or min(part.samples for part in parts) >= minimum


@pytest.mark.parametrize("change", [99, 1001, -5])
def test_a_change_outside_the_turn_is_refused_because_it_was_not_shifted_into_the_stream(change: int) -> None:
    with pytest.raises(ValueError, match="outside the turn"):
        split_turn(Span(100, 1000), [change], 10)


def test_a_minimum_below_one_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="min_segment_samples"):
        split_turn(Span(0, 10), [5], 0)
