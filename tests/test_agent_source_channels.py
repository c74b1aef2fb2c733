"""The channel rule: a voice on one channel keeps its level, and channels that cancel never cancel unseen."""

from __future__ import annotations

import re

import numpy as np
import pytest

from agent.source_channels import (
    ChannelStatistics,
    FixedMixer,
    LiveMixer,
    by_hand,
    choose,
    mixer_for,
    plain_mean,
)

RATE_HZ = 48_000


def voice(seconds: float = 1.0, level: float = 0.1, seed: int = 3) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(round(RATE_HZ * seconds)) * level).astype(np.float32)


def stack(*channels: np.ndarray | float) -> np.ndarray:
    longest = max(len(channel) for channel in channels if isinstance(channel, np.ndarray))
    full = [
        channel if isinstance(channel, np.ndarray) else np.full(longest, channel, np.float32) for channel in channels
    ]
    return np.stack(full, axis=1).astype(np.float32)


def judged(block: np.ndarray) -> tuple[list[float], str, bool]:
    statistics = ChannelStatistics(block.shape[1])
    for i in range(0, len(block), 1_000):
        statistics.add(block[i : i + 1_000])
    choice = choose(statistics.covariance())
    return [round(float(weight), 3) for weight in choice.weights], choice.rule, choice.unusual


V = voice()
W = voice(seed=4)


@pytest.mark.parametrize(
    ("block", "weights", "rule", "unusual"),
    [
        (stack(V), [1.0], "mono, as it is", False),
        (stack(V, V), [0.5, 0.5], "mean of 2 channels", False),
        (stack(V, W), [0.5, 0.5], "mean of 2 channels", False),
        (stack(0.0, V), [0.0, 1.0], "channel 1 of 0 to 1: the others are more than 30 dB below", True),
        (stack(W * 0.01, V), [0.0, 1.0], "channel 1 of 0 to 1: the others are more than 30 dB below", True),
        (stack(0.5, V), [0.0, 1.0], "channel 1 of 0 to 1: the others are more than 30 dB below", True),
        (stack(V, -V), [1.0, 0.0], "channel 0 alone: the mean of channels 0, 1 is .* dB below it", True),
        (stack(V, -0.9 * V), [1.0, 0.0], "opposite phase", True),
        (stack(V, 0, 0, 0, 0, 0), [1.0, 0, 0, 0, 0, 0], "channel 0 of 0 to 5", True),
        (stack(0, V, 0, W), [0, 0.5, 0, 0.5], "mean of channels 1, 3 of 0 to 3", True),
        (stack(np.zeros(100, np.float32), 0.0), [0.5, 0.5], "mean of 2 channels", False),
    ],
)
def test_the_rule(block: np.ndarray, weights: list[float], rule: str, unusual: bool) -> None:
    got_weights, got_rule, got_unusual = judged(block)
    assert got_weights == weights
    assert re.search(rule, got_rule), got_rule
    assert got_unusual is unusual


def test_nothing_seen_is_the_plain_mean_and_no_division_by_zero() -> None:
    assert choose(ChannelStatistics(2).covariance()).rule == "mean of 2 channels"


def level_db(signal: np.ndarray, reference: np.ndarray) -> float:
    return float(20 * np.log10(np.sqrt(np.mean(signal**2)) / np.sqrt(np.mean(reference**2))))


@pytest.mark.parametrize("silent", [1, 3, 31])
def test_a_live_voice_on_one_channel_of_many_gets_its_full_level_within_half_a_second(silent: int) -> None:
    signal = voice(1.0)
    mixer = LiveMixer(silent + 1, RATE_HZ)
    heard = mixer.push(stack(signal, *[0.0] * silent))
    assert level_db(heard[: RATE_HZ // 2], signal[: RATE_HZ // 2]) == pytest.approx(-20 * np.log10(silent + 1), abs=0.1)
    late = slice(RATE_HZ // 2 + RATE_HZ // 100, None)
    assert np.array_equal(heard[late], signal[late])


def test_live_channels_that_cancel_are_heard_and_said() -> None:
    signal = voice(1.0)
    mixer = LiveMixer(2, RATE_HZ)
    heard = mixer.push(stack(signal, -signal))
    assert not heard[: RATE_HZ // 2].any()
    assert level_db(heard[RATE_HZ // 2 :], signal[RATE_HZ // 2 :]) > -0.2
    assert "opposite phase" in mixer.choice.rule


@pytest.mark.parametrize("size", [1, 160, 441, 1_024, 4_800])
def test_the_size_of_the_driver_s_blocks_never_changes_the_mix(size: int) -> None:
    block = stack(0.0, voice(0.6 if size == 1 else 2.2), 0.0)
    expected = LiveMixer(3, RATE_HZ).push(block)
    mixer = LiveMixer(3, RATE_HZ)
    parts = [mixer.push(block[i : i + size]) for i in range(0, len(block), size)]
    assert np.array_equal(np.concatenate(parts), expected)


def test_a_change_of_channels_fades_and_does_not_click() -> None:
    slow = (0.3 * np.sin(2 * np.pi * 50 * np.arange(RATE_HZ) / RATE_HZ + 0.7)).astype(np.float32)
    heard = LiveMixer(2, RATE_HZ).push(stack(slow, 0.0))
    assert np.abs(np.diff(heard)).max() < 2 * np.abs(np.diff(slow)).max()


def test_a_noise_floor_does_not_choose_the_channel() -> None:
    mixer = LiveMixer(2, RATE_HZ)
    mixer.push(stack(voice(2.0, level=1e-4), 0.0))
    assert mixer.choice.rule == "mean of 2 channels"


def test_a_talker_between_two_microphones_does_not_make_the_choice_flip() -> None:
    mixer = LiveMixer(2, RATE_HZ)
    rules = set()
    for i in range(12):
        near, far = voice(0.5, seed=i), voice(0.5, level=0.06, seed=50 + i)
        mixer.push(stack(near, far) if i % 2 else stack(far, near))
        rules.add(mixer.choice.rule)
    assert rules == {"mean of 2 channels"}


def test_a_channel_that_dies_is_left_for_the_one_that_lives() -> None:
    mixer = LiveMixer(2, RATE_HZ)
    mixer.push(stack(voice(1.0), 0.0))
    assert mixer.choice.rule.startswith("channel 0")
    mixer.push(stack(0.0, voice(20.0)))
    assert mixer.choice.rule.startswith("channel 1")


def test_a_channel_set_by_hand_is_never_argued_with() -> None:
    mixer = mixer_for(3, RATE_HZ, channel=2)
    assert np.array_equal(mixer.push(stack(V, W, 0.0)), np.zeros(len(V), np.float32))
    assert mixer.choice.rule == "channel 2 of 0 to 2, set by hand"
    assert by_hand(3, 2).weights.tolist() == [0, 0, 1]


def test_mono_is_left_alone() -> None:
    mixer = mixer_for(1, RATE_HZ, channel=None)
    assert isinstance(mixer, FixedMixer)
    assert np.array_equal(mixer.push(stack(V)), V)
    assert plain_mean(1).rule == "mono, as it is"
