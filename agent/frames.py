"""Frames: the one unit of audio inside the loop, and the re-framer that makes them from blocks of any size.

A frame is 20 ms of mono float32 at 16 kHz and starts at a multiple of 320 samples, whatever the device, the file or the
size of a driver's callback. So nothing behind a source ever depends on how its samples happened to arrive.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gate.span import SAMPLE_RATE_HZ, Span

FRAME_MS = 20
FRAME_SAMPLES = SAMPLE_RATE_HZ * FRAME_MS // 1000
"""Samples of a frame: 320."""

Samples = npt.NDArray[np.float32]
"""float32 mono at 16 kHz in [-1, 1], shape ``(samples,)``."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """20 ms of audio at a known place of the stream.

    Attributes:
        start_sample: the frame's first sample, counted from the stream's start; a multiple of 320.
        samples: float32 ``(320,)``, finite, in [-1, 1]; read-only, so that no consumer alters what another one sees.
        padded_samples: zeros at the frame's end that stand behind the end of the source. Only a source's last frame
            has any.

    Raises:
        ValueError: on another shape, type or place, so that a wrong array fails here and not as a wrong decision.
    """

    start_sample: int
    samples: Samples
    padded_samples: int = 0

    def __post_init__(self) -> None:
        if self.samples.dtype != np.float32 or self.samples.shape != (FRAME_SAMPLES,):
            raise ValueError(f"not a frame: {self.samples.dtype} {self.samples.shape}, not float32 ({FRAME_SAMPLES},)")
        if self.start_sample < 0 or self.start_sample % FRAME_SAMPLES:
            raise ValueError(f"not the start of a frame: sample {self.start_sample}")
        if not 0 <= self.padded_samples < FRAME_SAMPLES:
            raise ValueError(f"not a padding: {self.padded_samples} samples")
        self.samples.setflags(write=False)

    @property
    def end_sample(self) -> int:
        """One past the frame's last sample."""
        return self.start_sample + FRAME_SAMPLES

    @property
    def span(self) -> Span:
        """The frame's place in the stream."""
        return Span(self.start_sample, self.end_sample)


@dataclass(frozen=True, slots=True)
class SourceGap:
    """The source lost samples here; what was spoken meanwhile is unknown, and a turn that holds a gap is doubtful.

    Items follow each other without a hole: a gap starts where the frame before it ended, and the next frame starts
    where the gap ends.

    Attributes:
        start_sample: a multiple of 320.
        lost_samples: how far the stream moves on: the frames that are left out, a multiple of 320. 0 when less than a
            frame was lost, or when the source cannot say how much.
        zeroed_samples: lost samples beyond those, which stand as zeros inside the frame before or after.
    """

    start_sample: int
    lost_samples: int
    zeroed_samples: int = 0

    def __post_init__(self) -> None:
        if self.start_sample < 0 or self.lost_samples < 0 or self.zeroed_samples < 0:
            raise ValueError(f"not a gap: {self}")

    @property
    def end_sample(self) -> int:
        """Where the next frame starts."""
        return self.start_sample + self.lost_samples


class Reframer:
    """Cuts a stream that comes in blocks of any size into frames, and keeps count of every sample.

    At any time ``position`` = samples pushed + samples skipped, and the frames handed out hold each pushed sample once,
    in order.
    """

    def __init__(self) -> None:
        self._pending = np.zeros(FRAME_SAMPLES, np.float32)
        self._filled = 0
        self._next_start = 0

    @property
    def position(self) -> int:
        """Where the next pushed sample will stand in the stream."""
        return self._next_start + self._filled

    def push(self, samples: Samples) -> list[Frame]:
        """Add samples, float32 ``(n,)`` with any n.

        Returns:
            the frames that are now whole, in order.
        """
        frames: list[Frame] = []
        taken = 0
        while taken < samples.shape[0]:
            count = min(FRAME_SAMPLES - self._filled, samples.shape[0] - taken)
            self._pending[self._filled : self._filled + count] = samples[taken : taken + count]
            self._filled += count
            taken += count
            if self._filled == FRAME_SAMPLES:
                frames.append(self._emit(padded_samples=0))
        return frames

    def skip(self, lost_samples: int) -> list[Frame | SourceGap]:
        """Move the stream on by samples that nobody delivered.

        Zeros fill up the frame in the making and begin the one in which the stream resumes, so frames stay on their
        grid and the position stays exact. Whole frames inside the hole are left out: hours of sleep must not come
        back as hours of zeros.

        Args:
            lost_samples: how many, 0 when that is unknown.

        Returns:
            the frame in the making if the loss reaches its end, then the gap.
        """
        head = min(lost_samples, FRAME_SAMPLES - self._filled) if self._filled else 0
        whole, tail = divmod(lost_samples - head, FRAME_SAMPLES)
        items: list[Frame | SourceGap] = [*self.push(np.zeros(head, np.float32))]
        items.append(SourceGap(self._next_start, whole * FRAME_SAMPLES, head + tail))
        self._next_start += whole * FRAME_SAMPLES
        self.push(np.zeros(tail, np.float32))
        return items

    def finish(self) -> list[Frame]:
        """End the stream: the samples left over, if any, as one frame padded with zeros."""
        if not self._filled:
            return []
        padded_samples = FRAME_SAMPLES - self._filled
        self._pending[self._filled :] = 0.0
        return [self._emit(padded_samples)]

    def _emit(self, padded_samples: int) -> Frame:
        frame = Frame(self._next_start, self._pending, padded_samples)
        self._pending = np.zeros(FRAME_SAMPLES, np.float32)
        self._filled = 0
        self._next_start += FRAME_SAMPLES
        return frame


def to_int16(samples: npt.NDArray[np.floating]) -> npt.NDArray[np.int16]:
    """Convert [-1, 1] floats to 16-bit integers; what lies outside is clipped, never wrapped.

    ``round(x * 32768)`` limited to the type's range: +1.0 becomes 32767 (a plain cast makes it -32768, a click), and
    what was read from 16-bit audio comes back bit for bit.

    Args:
        samples: floats of any shape.

    Returns:
        int16 of the same shape.

    Raises:
        ValueError: when a sample is not finite: its integer would be undefined.
    """
    if not np.isfinite(samples).all():
        raise ValueError("cannot convert samples that are not finite")
    return np.clip(np.rint(samples.astype(np.float64) * 32768.0), -32768, 32767).astype(np.int16)
