"""The channel rule: how several channels become the one that is listened to.

The rule, the same for file, pipe and microphone: the mean of the *live* channels. A channel is live when its level
(without DC) is within 30 dB of the loudest one's. When that mean is more than 20 dB below the loudest channel, the
channels cancel each other (opposite phase), and the loudest channel is taken alone. A channel set by hand overrides
the rule.

A file is measured as a whole before it is played. A live stream cannot be: it starts with the mean of all channels and
judges stretches of half a second, counted in samples, so the size of the driver's blocks never changes the outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Block = npt.NDArray[np.float32]
"""float32 ``(samples, channels)`` at the source's native rate."""

LIVE_WITHIN_DB = 30.0
CANCELS_BELOW_DB = 20.0


class ChannelStatistics:
    """Running second-order statistics of all channels, from which any mix's level follows."""

    def __init__(self, channels: int) -> None:
        self.samples = 0.0
        self._sum = np.zeros(channels)
        self._products = np.zeros((channels, channels))

    def add(self, block: Block) -> None:
        """Take in one block of finite samples."""
        wide = block.astype(np.float64)
        self.samples += block.shape[0]
        self._sum += np.ones(block.shape[0]) @ wide  # many times faster than a sum along the long axis
        self._products += wide.T @ wide

    def fade(self, factor: float) -> None:
        """Let what was seen so far count less."""
        self.samples *= factor
        self._sum *= factor
        self._products *= factor

    def covariance(self) -> npt.NDArray[np.float64]:
        """Covariance of the channels, ``(channels, channels)``; zeros when nothing was seen."""
        if not self.samples:
            return np.zeros_like(self._products)
        mean = self._sum / self.samples
        return self._products / self.samples - np.outer(mean, mean)


@dataclass(frozen=True, slots=True, eq=False)
class ChannelChoice:
    """How the channels are mixed.

    Attributes:
        weights: float32 ``(channels,)``.
        rule: the choice in words, for the log.
        unusual: True when it is not simply all channels, so that a person should hear of it.
    """

    weights: npt.NDArray[np.float32]
    rule: str
    unusual: bool = False


def mean_of(channels: int, members: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """The weights of the mean of some channels."""
    weights = np.zeros(channels, np.float32)
    weights[list(members)] = 1.0 / len(members)
    return weights


def by_hand(channels: int, channel: int) -> ChannelChoice:
    """One channel, chosen by the person; channels count from 0."""
    return ChannelChoice(mean_of(channels, (channel,)), f"channel {channel} of 0 to {channels - 1}, set by hand")


def plain_mean(channels: int) -> ChannelChoice:
    """All channels alike."""
    everyone = tuple(range(channels))
    rule = f"mean of {channels} channels" if channels > 1 else "mono, as it is"
    return ChannelChoice(mean_of(channels, everyone), rule)


def choose(covariance: npt.NDArray[np.float64]) -> ChannelChoice:
    """Apply the channel rule to measured channels.

    Args:
        covariance: float64 ``(channels, channels)``.
    """
    channels = covariance.shape[0]
    power = np.diag(covariance).clip(min=0.0)
    loudest = int(power.argmax())
    if channels == 1 or not power[loudest] > 0.0:
        return plain_mean(channels)
    live = tuple(int(i) for i in np.flatnonzero(power >= power[loudest] * 10 ** (-LIVE_WITHIN_DB / 10)))
    weights = mean_of(channels, live)
    below_db = -10 * np.log10(max(mix_power(covariance, weights) / power[loudest], 1e-12))
    if below_db > CANCELS_BELOW_DB:
        rule = f"channel {loudest} alone: the mean of {_name(live)} is {below_db:.0f} dB below it (opposite phase)"
        return ChannelChoice(mean_of(channels, (loudest,)), rule, unusual=True)
    if len(live) == channels:
        return plain_mean(channels)
    rule = f"{_name(live)} of 0 to {channels - 1}: the others are more than {LIVE_WITHIN_DB:.0f} dB below"
    return ChannelChoice(weights, rule if len(live) == 1 else f"mean of {rule}", unusual=True)


def mix_power(covariance: npt.NDArray[np.float64], weights: npt.NDArray[np.float32]) -> float:
    """Mean square of the mix, without DC."""
    wide = weights.astype(np.float64)
    return max(0.0, float(wide @ covariance @ wide))


def _name(channels: tuple[int, ...]) -> str:
    return f"channel{'s' if len(channels) > 1 else ''} {', '.join(map(str, channels))}"


def mix(block: Block, weights: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Weighted sum of the channels, float32 ``(samples,)``.

    Summed channel by channel: a matrix product may round differently for another block size.
    """
    mono = np.zeros(block.shape[0], np.float32)
    for channel in np.flatnonzero(weights):
        mono += weights[channel] * block[:, channel]
    return mono


class Mixer(Protocol):
    """Makes one channel of several."""

    @property
    def choice(self) -> ChannelChoice:
        """How it mixes now."""
        ...

    def push(self, block: Block) -> npt.NDArray[np.float32]:
        """Mix a block, ``(samples, channels)`` to ``(samples,)``."""
        ...


class FixedMixer:
    """Mixes by a choice that never changes."""

    def __init__(self, choice: ChannelChoice) -> None:
        self.choice = choice

    def push(self, block: Block) -> npt.NDArray[np.float32]:
        """Mix a block."""
        return mix(block, self.choice.weights)


class LiveMixer:
    """Mixes a live stream by the channel rule, which it applies anew after every half second of sound.

    It is slow to change its mind: only a choice that would be at least 3 dB louder than the present one replaces it,
    so a talker between two good microphones never makes it flip. A change is faded over 10 ms.

    Args:
        channels: how many the blocks have.
        rate_hz: the blocks' rate.
    """

    _AUDIBLE_POWER = 1e-6
    """-60 dBFS: the channels' noise floors say nothing about which one carries the voice."""
    _LOUDER_BY_DB = 3.0
    _FADE_PER_STRETCH = 0.8

    def __init__(self, channels: int, rate_hz: int) -> None:
        self.choice = plain_mean(channels)
        self._before: npt.NDArray[np.float32] | None = None
        self._statistics = ChannelStatistics(channels)
        self._stretch = np.zeros((rate_hz // 2, channels), np.float32)
        self._filled = 0
        self._ramp = np.linspace(0.0, 1.0, rate_hz // 100, dtype=np.float32)

    def push(self, block: Block) -> npt.NDArray[np.float32]:
        """Mix a block of any length."""
        parts: list[npt.NDArray[np.float32]] = []
        taken = 0
        while taken < block.shape[0]:
            count = min(self._stretch.shape[0] - self._filled, block.shape[0] - taken)
            part = block[taken : taken + count]
            parts.append(self._mix(part))
            self._stretch[self._filled : self._filled + count] = part
            self._filled += count
            taken += count
            if self._filled == self._stretch.shape[0]:
                self._judge()
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def _mix(self, part: Block) -> npt.NDArray[np.float32]:
        mono = mix(part, self.choice.weights)
        if self._before is not None and self._filled < self._ramp.shape[0]:
            ramp = self._ramp[self._filled : self._filled + part.shape[0]]
            count = ramp.shape[0]
            mono[:count] = mono[:count] * ramp + mix(part[:count], self._before) * (1.0 - ramp)
        return mono

    def _judge(self) -> None:
        """Judge the stretch that is now whole; the next one is mixed by the outcome."""
        self._filled = 0
        self._before = None
        if float(self._stretch.var(axis=0).max()) < self._AUDIBLE_POWER:
            return
        self._statistics.fade(self._FADE_PER_STRETCH)
        self._statistics.add(self._stretch)
        covariance = self._statistics.covariance()
        best = choose(covariance)
        power = mix_power(covariance, self.choice.weights)
        if mix_power(covariance, best.weights) > power * 10 ** (self._LOUDER_BY_DB / 10):
            self._before = self.choice.weights
            self.choice = best


def mixer_for(channels: int, rate_hz: int, channel: int | None) -> Mixer:
    """The mixer of a live stream: fixed for mono and for a channel set by hand, else by the rule."""
    if channel is not None:
        return FixedMixer(by_hand(channels, channel))
    return FixedMixer(plain_mean(1)) if channels == 1 else LiveMixer(channels, rate_hz)
