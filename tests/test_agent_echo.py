"""How much of a microphone signal our own playback explains: over delays, levels, rooms and clocks that drift."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.echo import AHEAD_SAMPLES, LEAD_SAMPLES, MIN_SAMPLES, EchoEstimate, estimate_echo, explained
from gate.span import SAMPLE_RATE_HZ, Span
from tests.echo_harness import echo_of, room_taps

RATE = SAMPLE_RATE_HZ
SECONDS = 2.5
COUNT = round(SECONDS * RATE)


def talk(seed: int, seconds: float = SECONDS) -> np.ndarray:
    """Noise in the long-term spectrum and the syllables of speech, at about -23 dBFS."""
    rng = np.random.default_rng(seed)
    count = round(seconds * RATE)
    spectrum = np.fft.rfft(rng.standard_normal(count))
    hz = np.fft.rfftfreq(count, 1 / RATE)
    shaped = np.fft.irfft(spectrum * (hz / 200) / (1 + (hz / 400) ** 2), count)
    time_s = np.arange(count) / RATE
    syllables = np.abs(np.sin(2 * np.pi * 2.2 * time_s + rng.uniform(0, 6))) ** 1.5
    out = shaped * syllables
    return (0.07 * out / np.sqrt(np.mean(out**2))).astype(np.float32)


def noise(seed: int, level: float = 1e-3) -> np.ndarray:
    return (level * np.random.default_rng(seed).standard_normal(COUNT)).astype(np.float32)


def estimate(microphone: np.ndarray, played: np.ndarray, played_at: int = 0) -> EchoEstimate:
    """``played`` begins ``played_at`` samples after the microphone audio."""
    reference = np.zeros(LEAD_SAMPLES + microphone.size + AHEAD_SAMPLES, np.float32)
    start = LEAD_SAMPLES + played_at
    end = min(reference.size, start + played.size)
    reference[start:end] = played[: end - start]
    return estimate_echo(microphone, reference)


def heard(played: np.ndarray, delay_s: float, gain_db: float, seed: int = 7) -> np.ndarray:
    return echo_of(played, round(delay_s * RATE), gain_db, room_taps(seed, 0.3))[:COUNT]


def share(found: EchoEstimate, start_s: float = 0.0, end_s: float = SECONDS) -> float:
    value = found.share(Span.from_seconds(start_s, end_s))
    assert value is not None
    return value


@pytest.mark.parametrize(
    ("delay_s", "gain_db", "least"),
    [(0.0, -5.0, 0.85), (0.12, -10.0, 0.85), (0.27, -20.0, 0.85), (0.4, -10.0, 0.85), (0.12, -30.0, 0.75)],
)
def test_an_echo_alone_is_explained_whatever_its_delay_and_level(delay_s: float, gain_db: float, least: float):
    played = talk(1)
    found = estimate(heard(played, delay_s, gain_db) + noise(2), played)
    assert share(found, delay_s, SECONDS) > least
    assert found.path is not None
    assert found.path.delay_samples / RATE == pytest.approx(delay_s, abs=0.025)


@pytest.mark.parametrize("drift_ppm", [-150.0, 120.0])
def test_an_echo_between_two_clocks_that_drift_is_still_explained(drift_ppm: float):
    # One fixed filter explains 0.6 to 0.7 of it; following the drift, 0.99.
    played = talk(1)
    echo = heard(played, 0.12, -10.0).astype(np.float64)
    places = np.arange(COUNT) * (1.0 - drift_ppm * 1e-6)
    fine = np.fft.irfft(np.fft.rfft(echo), 8 * COUNT) * 8
    drifted = np.interp(places * 8, np.arange(8 * COUNT), fine).astype(np.float32)
    found = estimate(drifted + noise(2), played)
    assert found.path is not None
    assert found.path.drift_ppm == pytest.approx(drift_ppm, abs=20.0)
    assert share(found, 0.2) > 0.95


def test_an_echo_through_a_distorting_loudspeaker_is_explained_for_the_most_part():
    played = talk(1)
    peak = float(np.abs(played).max())
    driven = (np.tanh(2.0 * played / peak) / 2.0 * peak).astype(np.float32)
    assert share(estimate(heard(driven, 0.12, -10.0) + noise(2), played), 0.2) > 0.75


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_speech_that_is_not_our_playback_is_not_explained_so_the_wearer_is_not_muted(seed: int):
    found = estimate(talk(seed) + noise(2), talk(1))
    assert share(found) < 0.05
    for start_s in np.arange(0.0, 2.1, 0.3):
        assert share(found, start_s, start_s + 0.3) < 0.15


@pytest.mark.parametrize("near_db", [0.0, 10.0, 20.0])
def test_speech_over_an_echo_is_explained_by_the_echos_part_of_the_sum(near_db: float):
    played = talk(1)
    echo = heard(played, 0.12, -10.0)
    near = talk(11)
    near *= 10 ** (near_db / 20) * float(np.sqrt(np.mean(echo**2) / np.mean(near**2)))
    truth = float(np.sum(echo**2) / np.sum((echo + near) ** 2))
    assert share(estimate(echo + near + noise(2), played)) == pytest.approx(truth, abs=0.12)


def test_words_before_and_after_an_echo_are_told_from_it():
    played = talk(1, 1.0)
    microphone = noise(2)
    microphone += np.concatenate([echo_of(played, RATE * 7 // 10, -12.0), np.zeros(COUNT, np.float32)])[:COUNT]
    microphone[: RATE // 2] += talk(11, 0.5)
    microphone[2 * RATE :] += talk(12, 0.5)
    found = estimate(microphone, played, RATE * 6 // 10 - RATE // 10)
    assert share(found, 0.0, 0.5) < 0.1
    assert share(found, 1.3, 2.0) > 0.85
    assert share(found, 2.05, 2.5) < 0.1


@settings(max_examples=6, deadline=None)
@given(gain_db=st.floats(-40.0, 20.0), delay_ms=st.integers(0, 400))
def test_neither_gain_nor_delay_changes_what_is_explained(gain_db: float, delay_ms: int):
    played = talk(1)
    mixed = heard(played, delay_ms / 1000, -10.0) + noise(2)
    plain = share(estimate(mixed, played), 0.5, 2.5)
    scaled = share(estimate((mixed * 10 ** (gain_db / 20)).astype(np.float32), played), 0.5, 2.5)
    assert scaled == pytest.approx(plain, abs=0.02)
    assert plain > 0.85


def test_silence_is_no_echo():
    silent = np.zeros(COUNT, np.float32)
    nothing_played = estimate(talk(11), silent)
    assert nothing_played.path is None
    assert share(nothing_played) == 0.0
    assert estimate(silent, talk(1)).share(Span(0, COUNT)) is None
    assert explained(0.0, 0.0) is None


def test_spans_at_and_beyond_the_edges_are_measured_on_what_there_is():
    found = estimate(talk(11) + noise(2), talk(1))
    assert found.energy(Span(0, 0))[0] >= 0.0
    assert found.energy(Span(COUNT, COUNT + 5000))[0] >= 0.0
    assert found.energy(Span(0, COUNT))[0] == pytest.approx(float(found.power.sum()))


@pytest.mark.parametrize("size", [MIN_SAMPLES, MIN_SAMPLES + 1, MIN_SAMPLES + 127, 20_011])
def test_any_length_from_half_a_second_on_is_measured(size: int):
    played = talk(1)
    echo = heard(played, 0.0, -10.0) + noise(2)
    found = estimate(echo[:size], played)
    assert found.samples == size
    assert share(found, 0.0, size / RATE) > 0.6


@pytest.mark.parametrize(
    ("microphone", "reference"),
    [
        (np.zeros(MIN_SAMPLES - 1, np.float32), np.zeros(LEAD_SAMPLES + MIN_SAMPLES - 1 + AHEAD_SAMPLES, np.float32)),
        (np.zeros(RATE, np.float32), np.zeros(RATE, np.float32)),
        (np.full(RATE, np.nan, np.float32), np.zeros(LEAD_SAMPLES + RATE + AHEAD_SAMPLES, np.float32)),
        (np.zeros(RATE, np.float32), np.full(LEAD_SAMPLES + RATE + AHEAD_SAMPLES, np.inf, np.float32)),
    ],
)
def test_what_cannot_be_compared_is_refused(microphone: np.ndarray, reference: np.ndarray):
    with pytest.raises(ValueError, match="cannot compare"):
        estimate_echo(microphone, reference)
