"""Word edges: a command is cut out of a turn by them, so a word may neither swallow a pause nor lose its sound."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ, Span
from models.word_edges import HOP_SAMPLES, active_frames, loudness_db, settle_edges

RATE = SAMPLE_RATE_HZ


def sound(*stretches: tuple[float, float], total_s: float) -> np.ndarray:
    """Noise at -20 dBFS in the stretches given in seconds, at -70 dBFS elsewhere."""
    random = np.random.default_rng(0)
    audio = 10 ** (-70 / 20) * random.standard_normal(round(total_s * RATE))
    for start_s, end_s in stretches:
        span = slice(round(start_s * RATE), round(end_s * RATE))
        audio[span] += 0.1 * random.standard_normal(len(audio[span]))
    return audio.astype(np.float32)


def words(*edges_s: float) -> list[Word]:
    """Words that touch each other, as attention gives them."""
    return [
        Word(str(index), Span.from_seconds(start, end), 0.9) for index, (start, end) in enumerate(pairwise(edges_s))
    ]


def edges(settled: tuple[Word, ...]) -> list[tuple[float, float]]:
    return [(word.span.start_s, word.span.end_s) for word in settled]


def test_pause_between_words_belongs_to_neither_so_a_command_span_holds_no_one_elses_breath() -> None:
    audio = sound((0.5, 1.0), (1.6, 2.0), total_s=2.5)
    first, second = edges(settle_edges(audio, words(0.1, 0.95, 2.4)))
    assert first == pytest.approx((0.5, 1.0), abs=0.03)
    assert second == pytest.approx((1.6, 2.0), abs=0.03)


def test_end_of_a_word_that_attention_gave_to_the_next_one_is_given_back() -> None:
    audio = sound((0.2, 1.0), (1.5, 1.9), total_s=2.2)
    first, second = edges(settle_edges(audio, words(0.15, 0.75, 1.9)))
    assert first == pytest.approx((0.2, 1.0), abs=0.03)
    assert second == pytest.approx((1.5, 1.9), abs=0.03)


def test_short_closure_inside_a_word_does_not_cut_it() -> None:
    audio = sound((0.3, 0.6), (0.68, 1.0), total_s=1.5)
    assert edges(settle_edges(audio, words(0.25, 1.2))) == [pytest.approx((0.3, 1.0), abs=0.03)]


def test_attention_runs_ahead_of_sound_and_is_put_back() -> None:
    audio = sound((0.2, 1.4), total_s=1.6)
    first, second = edges(settle_edges(audio, words(0.15, 0.75, 1.4)))
    assert first[1] == second[0] == pytest.approx(0.795, abs=0.011)


def test_no_words_stay_no_words() -> None:
    assert settle_edges(sound(total_s=0.5), []) == ()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3 * RATE), min_size=2, max_size=8),
    st.lists(st.tuples(st.floats(0, 2.5), st.floats(0.01, 0.8)), max_size=4),
)
def test_words_stay_in_order_inside_the_audio_and_apart_whatever_attention_says(
    marks: list[int], loud: list[tuple[float, float]]
) -> None:
    audio = sound(*((start, start + length) for start, length in loud), total_s=3.0)
    rising = sorted(marks)
    given_words = [Word(str(i), Span(a, b), 0.5) for i, (a, b) in enumerate(pairwise(rising))]
    settled = settle_edges(audio, given_words)
    assert [(w.text, w.probability) for w in settled] == [(w.text, w.probability) for w in given_words]
    flat = [sample for word in settled for sample in (word.span.start_sample, word.span.end_sample)]
    assert flat == sorted(flat)
    assert not flat or flat[-1] <= len(audio)


def test_loudness_of_a_full_scale_sine_is_minus_three_decibels() -> None:
    sine = np.sin(2 * np.pi * 400 * np.arange(RATE) / RATE).astype(np.float32)
    level = loudness_db(sine)
    assert level.shape == (RATE // HOP_SAMPLES,)
    assert level[5:-5] == pytest.approx(-3.01, abs=0.05)


def test_activity_does_not_depend_on_level_so_a_quiet_talker_keeps_her_words() -> None:
    audio = sound((0.5, 1.0), total_s=1.5)
    loud, quiet = (active_frames(loudness_db(audio * np.float32(gain))) for gain in (1.0, 0.2))
    assert np.array_equal(loud, quiet)


@pytest.mark.parametrize("samples", [0, 1, 159])
def test_less_than_a_hop_has_no_loudness(samples: int) -> None:
    assert loudness_db(np.zeros(samples, np.float32)).size == 0
    assert active_frames(np.zeros(0, np.float32)).size == 0
