"""From a device's or file's native blocks to frames: the steps that every source shares.

Checks that samples are numbers within reason, mixes the channels, resamples with one continuous filter, limits to
[-1, 1], cuts frames and counts every sample. A loss of any kind (driver overflow, sleep, samples that are not
numbers) goes through one door, ``lose``: the filter is emptied, the stream moves on by the lost time, and a
``SourceGap`` says so.
"""

from __future__ import annotations

import numpy as np

from agent.frames import Reframer, Samples
from agent.resample import StreamResampler
from agent.source_channels import Block, Mixer
from agent.sources import ErrorCode, NoticeCode, SourceError, SourceItem, SourceNotice
from gate.span import SAMPLE_RATE_HZ

MAX_PEAK = 8.0
"""+18 dBFS. Floats beyond it are not audio in [-1, 1] but integers stored as floats, or another format altogether."""

ZEROS_S = 5.0
"""How long a live source may deliver exact zeros before that is said."""

_REPEAT_SAMPLES = 10 * SAMPLE_RATE_HZ
"""A fault that goes on is said again at most this often."""


class FaultCounter:
    """Counts one kind of fault and says when to speak of it: at once, then every 10 s of the stream at most."""

    def __init__(self) -> None:
        self.total = 0
        self.unsaid = 0
        self._next_sample = 0

    def add(self, count: int) -> None:
        """Count some more."""
        self.total += count
        self.unsaid += count

    def is_due(self, at_sample: int, *, last_call: bool = False) -> bool:
        """Whether there is something to say at this place; asking when it is due settles it."""
        if not self.unsaid or (at_sample < self._next_sample and not last_call):
            return False
        self.unsaid = 0
        self._next_sample = at_sample + _REPEAT_SAMPLES
        return True


class SourcePipeline:
    """Native blocks in, source items out. The items do not depend on the size of the blocks.

    Args:
        rate_hz: native rate.
        mixer: makes one channel of the native ones.
        is_live: True for a stream whose exact zeros are worth a warning after 5 s.
    """

    def __init__(self, rate_hz: int, mixer: Mixer, *, is_live: bool) -> None:
        self._resampler = StreamResampler(rate_hz)
        self._mixer = mixer
        self._is_live = is_live
        self._reframer = Reframer()
        self._rule = mixer.choice.rule
        self._zeros_s = 0.0
        self._zeros_said = False
        self._not_finite = FaultCounter()
        self._over_range = FaultCounter()

    @property
    def position(self) -> int:
        """Stream position up to which items account for everything that came in, less what the filter holds back."""
        return self._reframer.position

    @property
    def channel_rule(self) -> str:
        """How the channels are mixed now."""
        return self._rule

    def retune(self, rate_hz: int, mixer: Mixer) -> None:
        """Go on with another device: same stream, another rate or other channels. Only right after ``lose``."""
        self._resampler = StreamResampler(rate_hz)
        self._mixer = mixer
        self._rule = mixer.choice.rule

    def push(self, block: Block) -> list[SourceItem]:
        """Take in the next block, float32 ``(n, channels)``, any n.

        Returns:
            the items that are ready.

        Raises:
            SourceError: when a sample is far beyond full scale: the samples are not in [-1, 1].
        """
        items: list[SourceItem] = []
        if np.isfinite(block).all():
            self._push_finite(block, items)
        else:
            finite = np.logical_and.reduce(np.isfinite(block), axis=1)
            edges = np.flatnonzero(np.diff(finite)) + 1
            for part in np.split(block, edges):
                if np.isfinite(part[0]).all():
                    self._push_finite(part, items)
                else:
                    self._not_finite.add(part.shape[0])
                    items += self.lose(round(part.shape[0] * SAMPLE_RATE_HZ / self._resampler.rate_hz))
        items += self._faults()
        return items

    def lose(self, lost_samples: int) -> list[SourceItem]:
        """Move the stream on by 16 kHz samples that nobody delivered; 0 when it is not known how many were lost."""
        rest = self._limited(self._resampler.finish())
        return [*self._reframer.push(rest), *self._reframer.skip(lost_samples)]

    def finish(self) -> list[SourceItem]:
        """End the stream: what the filter holds back, the padded rest, the last counts."""
        rest = self._limited(self._resampler.finish())
        return [*self._reframer.push(rest), *self._reframer.finish(), *self._faults(last_call=True)]

    def _push_finite(self, block: Block, items: list[SourceItem]) -> None:
        if not block.shape[0]:
            return
        self._check_range(block)
        mono = self._mixer.push(block)
        items += self._reframer.push(self._limited(self._resampler.push(mono)))
        if self._mixer.choice.rule != self._rule:
            self._rule = self._mixer.choice.rule
            items.append(SourceNotice(NoticeCode.CHANNELS, f"listening now to: {self._rule}", self.position))
        if self._is_live:
            self._watch_zeros(block, items)

    def _check_range(self, block: Block) -> None:
        peak = max(float(block.max()), -float(block.min()))
        if peak > MAX_PEAK:
            raise SourceError(ErrorCode.OVER_RANGE, over_range_message(peak))
        if peak > 1.0:
            self._over_range.add(int(np.count_nonzero(np.abs(block) > 1.0)))

    def _watch_zeros(self, block: Block, items: list[SourceItem]) -> None:
        silent = block.shape[0]
        if block.any():
            self._zeros_s = 0.0
            self._zeros_said = False
            silent = 0 if block[-1].any() else int(np.argmax(block[::-1].any(axis=1)))
        self._zeros_s += silent / self._resampler.rate_hz
        if self._zeros_s >= ZEROS_S and not self._zeros_said:
            self._zeros_said = True
            message = (
                f"only zeros for {ZEROS_S:.0f} s: permission or muted? Allow this program to use the microphone, "
                "unmute it, or choose another device"
            )
            items.append(SourceNotice(NoticeCode.ONLY_ZEROS, message, self.position, {"seconds": ZEROS_S}))

    def _faults(self, *, last_call: bool = False) -> list[SourceItem]:
        notices: list[SourceItem] = []
        if self._not_finite.is_due(self.position, last_call=last_call):
            count = self._not_finite.total
            message = f"{count} samples so far are not numbers (NaN or infinity); counted as lost"
            notices.append(SourceNotice(NoticeCode.NOT_FINITE, message, self.position, {"samples": count}))
        if self._over_range.is_due(self.position, last_call=last_call):
            count = self._over_range.total
            message = f"{count} samples so far are beyond full scale; clipped: lower the recording level"
            notices.append(SourceNotice(NoticeCode.OVER_RANGE, message, self.position, {"samples": count}))
        return notices

    @staticmethod
    def _limited(samples: Samples) -> Samples:
        """Limit to [-1, 1]; the filter overshoots at the edges of clipped speech."""
        limited: Samples = np.clip(samples, np.float32(-1.0), np.float32(1.0))
        return limited


def over_range_message(peak: float) -> str:
    """What is wrong with floats of that peak, and the cure."""
    return (
        f"samples reach {peak:.6g}, not in [-1, 1]: integers stored as floats, or another sample format than stated? "
        "Scale them to [-1, 1] (divide 16-bit values by 32768) or state the right format"
    )
