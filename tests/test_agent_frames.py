"""Frames and the re-framer: no sample is lost, doubled, moved or wrapped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.frames import FRAME_SAMPLES, Frame, Reframer, SourceGap, to_int16
from gate.span import Span


def ramp(count: int, start: int = 0) -> np.ndarray:
    """Samples that say where they stand; exact in float32."""
    return np.arange(start, start + count, dtype=np.float32) / 2**20


def heard(frames: list[Frame]) -> np.ndarray:
    return np.concatenate([frame.samples for frame in frames]) if frames else np.zeros(0, np.float32)


@pytest.mark.parametrize("size", [1, 160, 319, 320, 321, 441, 1024, 4800])
def test_any_callback_size_gives_the_same_frames_so_the_driver_never_changes_a_decision(size: int) -> None:
    signal = ramp(10_000)
    reframer = Reframer()
    frames = [frame for i in range(0, len(signal), size) for frame in reframer.push(signal[i : i + size])]
    frames += reframer.finish()
    assert [frame.start_sample for frame in frames] == list(range(0, 10_240, FRAME_SAMPLES))
    assert np.array_equal(heard(frames)[:10_000], signal)
    assert [frame.padded_samples for frame in frames] == [0] * 31 + [240]
    assert not heard(frames)[10_000:].any()


@given(st.lists(st.one_of(st.integers(0, 1_000), st.integers(0, 3_000).map(lambda n: -n)), max_size=25))
@settings(max_examples=150, deadline=None)
def test_every_sample_stands_where_it_was_spoken_whatever_is_lost_between(steps: list[int]) -> None:
    """A positive step delivers that many samples, a negative one loses them; the samples name their own place."""
    reframer = Reframer()
    items: list[Frame | SourceGap] = []
    position = 0
    real = np.zeros(sum(map(abs, steps)) + FRAME_SAMPLES, bool)
    for step in steps:
        if step > 0:
            items += reframer.push(ramp(step, position))
            real[position : position + step] = True
        else:
            items += reframer.skip(-step)
        position += abs(step)
        assert reframer.position == position
    items += reframer.finish()

    next_sample = 0
    lost = 0
    found = np.zeros_like(real)
    for item in items:
        assert item.start_sample == next_sample
        next_sample = item.end_sample
        if isinstance(item, SourceGap):
            assert item.lost_samples % FRAME_SAMPLES == 0
            lost += item.lost_samples + item.zeroed_samples
            continue
        places = np.arange(item.start_sample, item.end_sample)
        expected = np.where(real[places], places / 2**20, 0).astype(np.float32)
        assert np.array_equal(item.samples, expected)
        found[places] = real[places]
    assert np.array_equal(found, real)
    assert lost == sum(-step for step in steps if step < 0)
    assert sum(isinstance(item, SourceGap) for item in items) == sum(step <= 0 for step in steps)


def test_a_night_of_sleep_is_one_gap_and_not_a_night_of_zeros() -> None:
    reframer = Reframer()
    reframer.push(ramp(100))
    items = reframer.skip(8 * 3600 * 16_000)
    assert len(items) == 2
    assert isinstance(items[1], SourceGap)
    assert items[1].lost_samples == 8 * 3600 * 16_000 - 320


def test_a_loss_of_unknown_length_is_said_and_moves_nothing() -> None:
    reframer = Reframer()
    reframer.push(ramp(100))
    assert reframer.skip(0) == [SourceGap(0, 0, 0)]
    assert reframer.position == 100


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(320, np.float64),
        np.zeros(320, np.int16),
        np.zeros(319, np.float32),
        np.zeros((320, 1), np.float32),
        np.zeros((320, 2), np.float32),
    ],
)
def test_another_type_or_shape_is_refused_because_a_voice_detector_would_take_it(
    samples: np.ndarray,
) -> None:
    with pytest.raises(ValueError, match="not a frame"):
        Frame(0, samples)


@pytest.mark.parametrize(("start", "padded"), [(-320, 0), (1, 0), (0, -1), (0, 320)])
def test_a_frame_off_the_grid_is_refused(start: int, padded: int) -> None:
    with pytest.raises(ValueError, match="not"):
        Frame(start, np.zeros(320, np.float32), padded)


def test_a_consumer_cannot_alter_what_the_next_one_hears() -> None:
    (frame,) = Reframer().push(ramp(320))
    with pytest.raises(ValueError, match="read-only"):
        frame.samples[0] = 1.0
    assert frame.span == Span(0, 320)


def test_a_negative_gap_is_refused() -> None:
    with pytest.raises(ValueError, match="not a gap"):
        SourceGap(0, -1)


def test_full_scale_is_clipped_and_does_not_wrap_into_a_click() -> None:
    samples = np.array([1.0, 1.5, 0.99999, -1.0, -1.5, 0.0, 0.5], np.float32)
    assert to_int16(samples).tolist() == [32767, 32767, 32767, -32768, -32768, 0, 16384]


def test_16_bit_audio_comes_back_bit_for_bit() -> None:
    values = np.arange(-32768, 32768, dtype=np.int16)
    assert np.array_equal(to_int16(values.astype(np.float32) / 32768), values)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_sample_that_is_no_number_is_refused_because_its_integer_is_undefined(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        to_int16(np.array([0.0, bad], np.float32))
