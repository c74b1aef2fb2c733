"""The stream resampler: no clicks at block seams, no drift, no aliases."""

from __future__ import annotations

import numpy as np
import pytest
import soxr

from agent.resample import StreamResampler

RATES_HZ = [8_000, 11_025, 22_050, 32_000, 44_100, 48_000, 96_000]


def run(signal: np.ndarray, rate_hz: int, size: int) -> np.ndarray:
    resampler = StreamResampler(rate_hz)
    parts = [resampler.push(signal[i : i + size]) for i in range(0, len(signal), size)]
    return np.concatenate([*parts, resampler.finish()])


def tone(frequency_hz: float, rate_hz: int, seconds: float) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * frequency_hz * np.arange(round(rate_hz * seconds)) / rate_hz)).astype(np.float32)


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_blocks_of_10_ms_give_what_the_whole_gives_so_no_seam_clicks(rate_hz: int) -> None:
    signal = tone(1_000, rate_hz, 1.0)
    blocks = run(signal, rate_hz, rate_hz // 100)
    whole = soxr.resample(signal, rate_hz, 16_000)
    assert abs(len(blocks) - len(whole)) <= 1
    shared = min(len(blocks), len(whole))
    assert np.abs(blocks[:shared] - whole[:shared]).max() < 1e-3
    ideal = tone(1_000, 16_000, 1.0)
    middle = slice(1_600, -1_600)
    assert np.abs(blocks[: len(ideal)][middle] - ideal[: len(blocks)][middle]).max() < 1e-3


@pytest.mark.parametrize("rate_hz", [44_100, 48_000, 8_000])
def test_a_minute_stays_a_minute(rate_hz: int) -> None:
    signal = np.random.default_rng(1).uniform(-0.1, 0.1, 60 * rate_hz).astype(np.float32)
    assert abs(len(run(signal, rate_hz, rate_hz // 100)) - 960_000) <= 1


@pytest.mark.parametrize("rate_hz", [44_100, 48_000, 96_000])
def test_a_10_khz_tone_does_not_come_back_as_a_voice_band_alias(rate_hz: int) -> None:
    heard = run(tone(10_000, rate_hz, 1.0), rate_hz, 441)[1_600:-1_600]
    level_db = 20 * np.log10(np.sqrt(np.mean(heard**2)) / (0.5 / np.sqrt(2)))
    assert level_db <= -50


@pytest.mark.parametrize("rate_hz", [16_000, *RATES_HZ])
def test_the_result_does_not_depend_on_the_block_size(rate_hz: int) -> None:
    signal = np.random.default_rng(2).uniform(-0.5, 0.5, rate_hz // 4).astype(np.float32)
    expected = run(signal, rate_hz, len(signal))
    for size in (7, 441, 1_024):
        assert np.array_equal(run(signal, rate_hz, size), expected)


def test_what_the_filter_holds_back_stays_under_41_ms_from_common_microphone_rates() -> None:
    for rate_hz in (44_100, 48_000):
        resampler = StreamResampler(rate_hz)
        block = np.zeros(rate_hz // 100, np.float32)
        given = out = 0
        for _ in range(200):
            given += len(block)
            out += len(resampler.push(block))
            assert given / rate_hz - out / 16_000 < 0.041


def test_after_the_end_another_stream_begins_clean() -> None:
    resampler = StreamResampler(48_000)
    signal = tone(300, 48_000, 0.1)
    first = np.concatenate([resampler.push(signal), resampler.finish()])
    second = np.concatenate([resampler.push(signal), resampler.finish()])
    assert np.array_equal(first, second)


@pytest.mark.parametrize("rate_hz", [0, -1, 3_999, 768_001])
def test_an_impossible_rate_is_refused(rate_hz: int) -> None:
    with pytest.raises(ValueError, match="cannot resample"):
        StreamResampler(rate_hz)
