"""What was played when, as the reference for recognising an echo; and the earcons."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent import earcon
from agent.playback import KEEP_SAMPLES, STOP_MARGIN_SAMPLES, PlaybackRecord, Sound
from gate.span import SAMPLE_RATE_HZ, Span

RATE = SAMPLE_RATE_HZ


def ramp(samples: int, first: float = 0.1) -> np.ndarray:
    return np.linspace(first, 0.9, samples, dtype=np.float32)


def test_the_reference_lies_where_the_sound_began_and_is_silent_elsewhere():
    record = PlaybackRecord()
    record.start(ramp(100), "hello", 1000)
    reference = record.reference(950, 200)
    assert reference.dtype == np.float32
    assert reference[:50].tolist() == [0.0] * 50
    assert np.array_equal(reference[50:150], ramp(100))
    assert reference[150:].tolist() == [0.0] * 50


@settings(max_examples=60, deadline=None)
@given(
    starts=st.lists(st.integers(0, 400), max_size=4),
    window=st.tuples(st.integers(-200, 500), st.integers(0, 300)),
)
def test_any_window_is_the_sum_of_all_that_was_played_in_it(starts: list[int], window: tuple[int, int]):
    record = PlaybackRecord()
    whole = np.zeros(1200, np.float32)
    for index, start in enumerate(starts):
        sound = ramp(50 + 20 * index)
        record.start(sound, "", start)
        whole[200 + start : 200 + start + sound.size] += sound
    first, samples = window
    assert np.allclose(record.reference(first, samples), whole[200 + first : 200 + first + samples])


def test_what_a_stop_cut_off_is_no_reference_but_what_the_driver_had_taken_is():
    record = PlaybackRecord()
    entry = record.start(np.ones(3 * RATE, np.float32), "one two three four five six", 0)
    record.stop(entry, RATE)
    end = RATE + STOP_MARGIN_SAMPLES
    reference = record.reference(0, 3 * RATE)
    assert reference[:end].all()
    assert not reference[end:].any()
    assert not record.within(Span(end, 3 * RATE))
    (cut,) = record.within(Span(0, RATE))
    assert cut.text == "one two three four"  # words that can have been said


def test_a_stop_after_the_end_changes_nothing():
    record = PlaybackRecord()
    entry = record.start(ramp(RATE), "hello", 0)
    record.stop(entry, 5 * RATE)
    assert record.within(Span(0, 1)) == (entry,)


def test_a_sound_stopped_before_it_began_by_the_streams_count_leaves_only_the_margin():
    record = PlaybackRecord()
    entry = record.start(np.ones(3 * RATE, np.float32), "hello", 2 * RATE)
    record.stop(entry, 0)
    assert not record.within(Span(2 * RATE + STOP_MARGIN_SAMPLES, 9 * RATE))


def test_old_sounds_are_forgotten_so_memory_stays_flat():
    record = PlaybackRecord()
    for index in range(200):
        record.start(ramp(RATE), "hello", index * 2 * RATE)
    assert len(record._played) <= KEEP_SAMPLES // (2 * RATE) + 2
    record.clear()
    assert not record.reference(398 * RATE, RATE).any()


@pytest.mark.parametrize(
    ("samples", "rate_hz"),
    [
        (np.zeros(0, np.float32), RATE),
        (np.zeros((10, 1), np.float32), RATE),
        (np.zeros(10, np.float64), RATE),
        (np.full(10, np.nan, np.float32), RATE),
        (np.zeros(10, np.float32), 0),
    ],
)
def test_what_is_no_sound_is_refused_so_the_driver_never_gets_it(samples: np.ndarray, rate_hz: int):
    with pytest.raises(ValueError, match="not a sound"):
        Sound(samples, rate_hz)


def test_a_sound_keeps_its_length_and_its_pitch_at_another_rate():
    time_s = np.arange(24_000) / 24_000
    sound = Sound(np.sin(2 * np.pi * 440 * time_s).astype(np.float32), 24_000)
    slow = sound.at_rate(RATE)
    assert slow.size == RATE
    assert np.argmax(np.abs(np.fft.rfft(slow))) == 440
    assert sound.at_rate(24_000) is sound.samples


@pytest.mark.parametrize("sound", [earcon.pardon(), earcon.done()])
def test_earcons_are_short_quiet_and_without_clicks(sound: Sound):
    assert 0.15 < sound.duration_s < 0.4
    assert np.abs(sound.samples).max() == pytest.approx(earcon.PEAK, rel=0.01)
    assert abs(float(sound.samples.mean())) < 1e-3
    # A click is a jump; the steepest slope of a smooth note is its own.
    assert np.abs(np.diff(sound.samples)).max() < 0.15
    assert max(abs(float(sound.samples[0])), abs(float(sound.samples[-1]))) < 1e-3


def test_the_two_earcons_cannot_be_mistaken_for_each_other():
    # The question rises, the other one falls, and they share no note.
    def notes(sound: Sound) -> list[float]:
        halves = np.array_split(sound.samples, 2)
        return [np.argmax(np.abs(np.fft.rfft(half, 24_000))) for half in halves]

    asked, settled = notes(earcon.pardon()), notes(earcon.done())
    assert asked[0] < asked[1]
    assert settled[0] > settled[1]
    assert max(asked) < min(settled)
