"""The steps that all sources share: what is counted, limited, refused and said."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.frames import Frame, SourceGap
from agent.source_channels import mixer_for
from agent.source_pipeline import SourcePipeline
from agent.sources import ErrorCode, NoticeCode, SourceError, SourceItem, SourceNotice


def pipeline(rate_hz: int = 16_000, channels: int = 1, *, is_live: bool = True) -> SourcePipeline:
    return SourcePipeline(rate_hz, mixer_for(channels, rate_hz, None), is_live=is_live)


def block(*values: float, times: int = 1) -> np.ndarray:
    return np.tile(np.array(values, np.float32), times)[:, None]


def notices(items: list[SourceItem], code: NoticeCode) -> list[SourceNotice]:
    return [item for item in items if isinstance(item, SourceNotice) and item.code is code]


def gaps(items: list[SourceItem]) -> list[SourceGap]:
    return [item for item in items if isinstance(item, SourceGap)]


def heard(items: list[SourceItem]) -> np.ndarray:
    return np.concatenate([item.samples for item in items if isinstance(item, Frame)])


@given(
    st.sampled_from([8_000, 16_000, 44_100, 48_000]),
    st.integers(1, 3),
    st.lists(st.integers(1, 5_000), min_size=1, max_size=12),
)
@settings(max_examples=40, deadline=None)
def test_samples_are_conserved_and_blocks_do_not_matter(rate_hz: int, channels: int, sizes: list[int]) -> None:
    total = sum(sizes)
    signal = np.random.default_rng(total).uniform(-0.5, 0.5, (total, channels)).astype(np.float32)
    at_once = pipeline(rate_hz, channels)
    expected = at_once.push(signal) + at_once.finish()
    in_parts = pipeline(rate_hz, channels)
    items: list[SourceItem] = []
    start = 0
    for size in sizes:
        items += in_parts.push(signal[start : start + size])
        start += size
    items += in_parts.finish()
    frames = [item for item in items if isinstance(item, Frame)]
    delivered = sum(320 - frame.padded_samples for frame in frames)
    assert abs(delivered - total * 16_000 / rate_hz) <= 1
    if frames:
        assert np.array_equal(heard(items), heard(expected))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_sample_that_is_no_number_is_a_counted_loss_so_no_score_is_built_on_it(bad: float, channels: int) -> None:
    signal = np.full((2_000, channels), 0.25, np.float32)
    signal[1_000:1_010, 0] = bad
    stream = pipeline(channels=channels)
    items = stream.push(signal) + stream.finish()
    assert [(gap.start_sample, gap.lost_samples + gap.zeroed_samples) for gap in gaps(items)] == [(960, 10)]
    assert notices(items, NoticeCode.NOT_FINITE)[0].numbers == {"samples": 10}
    sound = heard(items)
    assert np.isfinite(sound).all()
    assert not sound[1_000:1_010].any()
    assert (sound[:1_000] == 0.25).all()
    assert (sound[1_010:2_000] == 0.25).all()


def test_a_stream_of_nan_is_said_now_and_then_and_not_a_thousand_times() -> None:
    stream = pipeline()
    items: list[SourceItem] = []
    for _ in range(1_500):
        items += stream.push(block(np.nan, times=320))
    items += stream.finish()
    assert 3 <= len(notices(items, NoticeCode.NOT_FINITE)) <= 5
    assert notices(items, NoticeCode.NOT_FINITE)[-1].numbers == {"samples": 480_000}
    assert not any(isinstance(item, Frame) for item in items)
    assert sum(gap.lost_samples for gap in gaps(items)) == 480_000


@pytest.mark.parametrize("peak", [1.5, 2.6, -2.6, 8.0])
def test_samples_beyond_full_scale_are_clipped_and_counted(peak: float) -> None:
    stream = pipeline()
    items = stream.push(block(0.0, peak, times=320)) + stream.finish()
    assert heard(items).max() <= 1.0
    assert heard(items).min() >= -1.0
    assert [notice.numbers for notice in notices(items, NoticeCode.OVER_RANGE)] == [{"samples": 320}]


@pytest.mark.parametrize("peak", [8.1, 6_600.0, -32_768.0, 1e37])
def test_integers_stored_as_floats_are_refused_because_clipped_they_would_be_noise(peak: float) -> None:
    with pytest.raises(SourceError, match=r"not in \[-1, 1\]") as caught:
        pipeline().push(block(0.0, peak))
    assert caught.value.code is ErrorCode.OVER_RANGE


def test_the_filter_s_overshoot_on_clipped_speech_stays_within_full_scale() -> None:
    square = np.sign(np.sin(np.arange(48_000) / 20)).astype(np.float32)[:, None]
    stream = pipeline(48_000)
    assert np.abs(heard(stream.push(square) + stream.finish())).max() <= 1.0


def test_five_seconds_of_perfect_zeros_are_one_warning_because_that_is_how_a_missing_permission_looks() -> None:
    stream = pipeline()
    early = [item for _ in range(249) for item in stream.push(block(0.0, times=320))]
    assert not notices(early, NoticeCode.ONLY_ZEROS)
    late = [item for _ in range(2_000) for item in stream.push(block(0.0, times=320))]
    assert len(notices(late, NoticeCode.ONLY_ZEROS)) == 1
    assert "permission or muted?" in notices(late, NoticeCode.ONLY_ZEROS)[0].message
    stream.push(block(1e-6))
    again = [item for _ in range(251) for item in stream.push(block(0.0, times=320))]
    assert len(notices(again, NoticeCode.ONLY_ZEROS)) == 1


def test_the_quietest_real_microphone_is_not_called_muted() -> None:
    stream = pipeline()
    items = [item for _ in range(20) for item in stream.push(block(*[0.0] * 15_999, 1 / 32_768))]
    assert not notices(items, NoticeCode.ONLY_ZEROS)


def test_a_recording_with_silence_in_it_is_not_called_muted() -> None:
    assert not notices(pipeline(is_live=False).push(block(0.0, times=160_000)), NoticeCode.ONLY_ZEROS)


def test_a_loss_lets_out_what_was_heard_before_it_and_nothing_is_smeared_across() -> None:
    stream = pipeline(48_000)
    before = stream.push(np.full((48_000, 1), 0.5, np.float32))
    items = before + stream.lose(16_000)
    assert stream.position == 32_000
    items += stream.push(np.full((48_000, 1), -0.5, np.float32)) + stream.finish()
    frames = [item for item in items if isinstance(item, Frame)]
    assert [frame.start_sample for frame in frames] == [*range(0, 16_000, 320), *range(32_000, 48_000, 320)]
    assert (frames[49].samples > 0).all()
    assert (frames[50].samples < 0).all()


def test_a_channel_change_is_said() -> None:
    stream = pipeline(channels=2)
    voice = np.random.default_rng(5).uniform(-0.3, 0.3, 16_000).astype(np.float32)
    items = stream.push(np.stack([np.zeros_like(voice), voice], axis=1))
    (notice,) = notices(items, NoticeCode.CHANNELS)
    assert "channel 1" in notice.message
    assert "channel 1" in stream.channel_rule


def test_another_device_goes_on_in_the_same_stream() -> None:
    stream = pipeline(16_000)
    stream.push(block(0.1, times=1_600))
    stream.lose(3_200)
    stream.retune(48_000, mixer_for(1, 48_000, None))
    items = stream.push(block(0.1, times=4_800)) + stream.finish()
    assert [item.start_sample for item in items if isinstance(item, Frame)] == [4_800, 5_120, 5_440, 5_760, 6_080]
