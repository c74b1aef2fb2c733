"""A microphone as a source, through PortAudio (``sounddevice``, imported only when one is opened).

The driver's callback runs in a foreign thread. It copies its buffer, which the driver uses again, numbers the block and
puts it in a bounded queue; everything else happens on the event loop. What can go wrong with a microphone goes wrong in
silence, so each case is looked for and said: lost blocks, a device that stops calling, a sleep of the computer, perfect
zeros, a close that never returns.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from agent.clock import Clock
from agent.resample import MAX_RATE_HZ, MIN_RATE_HZ, NARROW_BAND_RATE_HZ
from agent.source_channels import Block, mixer_for
from agent.source_pipeline import FaultCounter, SourcePipeline
from agent.sources import Description, ErrorCode, NoticeCode, SourceError, SourceItem, SourceNotice
from gate.span import SAMPLE_RATE_HZ

T = TypeVar("T")

STALL_S = 2.0
"""No callback for this long: unplugged, asleep or dead."""
QUEUE_S = 5.0
"""Audio that may wait for the loop. Beyond it the *oldest* is dropped: what is heard late must not be acted on late."""
CLOSE_LIMIT_S = 2.0
"""How long closing a device may take before it is abandoned, so that Ctrl-C always works."""
OPEN_LIMIT_S = 10.0
FIRST_RETRY_S = 0.5
LAST_RETRY_S = 30.0
LATENCY_S = 0.05
"""Asked of the driver; it rounds to what it can do."""
MAX_NATIVE_CHANNELS = 32
"""Virtual devices (ALSA's "default") claim 64 or 128 channels that nobody recorded; those are opened with two."""

_PA_DEVICE_UNAVAILABLE = -9985
_PA_INVALID_DEVICE = -9996
_PA_INVALID_SAMPLE_RATE = -9997
_PA_INVALID_CHANNEL_COUNT = -9998

_COMMON_RATES_HZ = (48_000, 44_100, 16_000)


@dataclass(frozen=True, slots=True)
class InputDevice:
    """An input device as PortAudio lists it.

    Attributes:
        index: its number in the list; changes when devices come and go.
        name: its name.
        host_api: the system interface that offers it ("ALSA", "Core Audio", "Windows WASAPI").
        channels: how many input channels it has.
        rate_hz: its native rate.
        is_default: True when it is the system's default input.
    """

    index: int
    name: str
    host_api: str
    channels: int
    rate_hz: int
    is_default: bool

    def __str__(self) -> str:
        mark = " (default)" if self.is_default else ""
        return f"[{self.index}] {self.name}, {self.host_api}: {self.channels} ch, {self.rate_hz} Hz{mark}"


def load_sounddevice() -> Any:
    """Import ``sounddevice``.

    Raises:
        SourceError: when it, or the PortAudio library behind it, is missing; names the cure.
    """
    try:
        return importlib.import_module("sounddevice")
    except ImportError as error:
        message = "the Python package sounddevice is missing: pip install sounddevice"
        raise SourceError(ErrorCode.NO_AUDIO_LIBRARY, message) from error
    except OSError as error:
        message = (
            "the PortAudio library is missing, so no microphone can be opened. Debian, Ubuntu: sudo apt install libportaudio2; "
            "Fedora: sudo dnf install portaudio; macOS: brew install portaudio. Recordings and pipes work without it"
        )
        raise SourceError(ErrorCode.NO_AUDIO_LIBRARY, message) from error


def list_devices(sounddevice: Any = None) -> tuple[InputDevice, ...]:
    """The input devices that exist now.

    Args:
        sounddevice: the module to ask; None imports it.

    Raises:
        SourceError: when PortAudio is missing or fails.
    """
    module = load_sounddevice() if sounddevice is None else sounddevice
    try:
        host_apis = module.query_hostapis()
        default = int(module.default.device[0])
        return tuple(
            InputDevice(
                index=index,
                name=str(entry["name"]),
                host_api=str(host_apis[entry["hostapi"]]["name"]),
                channels=int(entry["max_input_channels"]),
                rate_hz=round(entry["default_samplerate"]),
                is_default=index == default,
            )
            for index, entry in enumerate(module.query_devices())
            if entry["max_input_channels"] > 0
        )
    except module.PortAudioError as error:
        raise SourceError(ErrorCode.DEVICE_FAILED, f"the list of audio devices cannot be read: {error}") from error


def find_device(devices: tuple[InputDevice, ...], wanted: int | str | None) -> InputDevice:
    """Pick one input device.

    Args:
        devices: those that exist.
        wanted: an index (a number, also as text); a part of the name, whatever its case, or of "name, host API"; None
            for the system's default.

    Raises:
        SourceError: when there is none, or more than one and none of them bears exactly that name; lists the devices.
    """
    if not devices:
        message = "no input device: plug in a microphone, or replay a recording"
        raise SourceError(ErrorCode.NO_INPUT_DEVICE, message)
    listed = "\n" + "\n".join(f"  {device}" for device in devices)
    if wanted is None:
        found = [device for device in devices if device.is_default]
        if not found:
            message = f"the system has no default input device; choose one by index or name:{listed}"
            raise SourceError(ErrorCode.NO_INPUT_DEVICE, message)
        return found[0]
    if isinstance(wanted, int) or wanted.strip().isdecimal():
        found = [device for device in devices if device.index == int(wanted)]
        if not found:
            raise SourceError(ErrorCode.NO_SUCH_DEVICE, f"no input device has index {wanted}; there are:{listed}")
        return found[0]
    text = wanted.strip().lower()
    found = [device for device in devices if text and text in f"{device.name}, {device.host_api}".lower()]
    if not found:
        raise SourceError(ErrorCode.NO_SUCH_DEVICE, f"no input device has {wanted!r} in its name; there are:{listed}")
    exact = [device for device in found if text in (device.name.lower(), f"{device.name}, {device.host_api}".lower())]
    if len(found) > 1 and len(exact) != 1:
        listed = "\n" + "\n".join(f"  {device}" for device in found)
        raise SourceError(ErrorCode.AMBIGUOUS_DEVICE, f"{wanted!r} fits several input devices; use the index:{listed}")
    return found[0] if len(found) == 1 else exact[0]


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """One callback's worth.

    Attributes:
        data: own copy, float32 ``(n, channels)``.
        first: number of its first sample, counted from the stream's opening, lost samples included.
        at_s: when it was delivered.
        silence_before_s: time since the block before, less its own length.
        overflow: the driver says that it lost samples before it.
        underflow: the driver says that it is filled up with zeros.
    """

    data: Block
    first: int
    at_s: float
    silence_before_s: float
    overflow: bool
    underflow: bool


class _Inbox:
    """Takes blocks from one opened stream's callback thread and holds them for the loop. One an opening: a late callback of
    an abandoned stream can only reach its own, forgotten inbox.

    Args:
        loop: the loop to wake.
        wake: set, on the loop, when there is something to fetch.
        clock: tells when a block came.
        rate_hz: the stream's rate.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: asyncio.Event, clock: Clock, rate_hz: int) -> None:
        self._loop = loop
        self._wake = wake
        self._clock = clock
        self._rate_hz = rate_hz
        self._lock = threading.Lock()
        self._blocks: deque[_Block] = deque()
        self._held = 0
        self._next = 0
        self._adc_end_s = 0.0
        self._wake_sent = False
        self.last_s = clock.now_s()
        self.dropped = 0
        self.ended = False

    def callback(self, data: Any, frames: int, time: Any, status: Any) -> None:
        """PortAudio's callback: copy, number, enqueue, wake."""
        copy = np.array(data, np.float32)
        at_s = self._clock.now_s()
        adc_s = float(time.inputBufferAdcTime)
        with self._lock:
            silence_s = at_s - self.last_s - frames / self._rate_hz
            if status.input_overflow:
                self._next += self._lost_by_overflow(silence_s, adc_s)
            flags = bool(status.input_overflow), bool(status.input_underflow)
            self._blocks.append(_Block(copy, self._next, at_s, silence_s, *flags))
            self.last_s = at_s
            self._adc_end_s = adc_s + frames / self._rate_hz if adc_s > 0 else 0.0
            self._next += frames
            self._held += frames
            while self._held > QUEUE_S * self._rate_hz and len(self._blocks) > 1:
                self.dropped += self._blocks[0].data.shape[0]
                self._held -= self._blocks.popleft().data.shape[0]
        self._notify()

    def finished(self) -> None:
        """PortAudio's word that the stream will not call again."""
        self.ended = True
        self._notify()

    def take(self) -> list[_Block]:
        """Everything that waits, in order."""
        with self._lock:
            blocks = list(self._blocks)
            self._blocks.clear()
            self._held = 0
            self._wake_sent = False
        return blocks

    def _lost_by_overflow(self, silence_s: float, adc_s: float) -> int:
        """How many samples an overflow cost: by the converter's time stamps, else by when the blocks came."""
        lost_s = adc_s - self._adc_end_s if adc_s > 0 and self._adc_end_s > 0 else silence_s
        return round(min(max(lost_s, 0.0), STALL_S) * self._rate_hz)

    def _notify(self) -> None:
        with self._lock:
            if self._wake_sent and not self.ended:
                return  # a loop that stands still must not gather one wake-up a block
            self._wake_sent = True
        try:
            self._loop.call_soon_threadsafe(self._wake.set)
        except RuntimeError:
            return  # the loop is closed: nobody listens any more


@dataclass(slots=True)
class _Opened:
    """An open stream."""

    stream: Any
    inbox: _Inbox
    device: InputDevice
    channels: int
    rate_hz: int


class MicrophoneSource:
    """Listens to an input device at its native rate.

    Channels: all native ones (two when the device claims more than 32; fewer when the driver refuses), made one by the channel rule
    of ``source_channels``. When the device stops, the stream position goes on with the clock, in gaps, and the device is opened again, after
    0.5, 1, 2, ... 30 s. A device chosen by index or name is waited for; nothing else is opened in its stead. The default
    device may change between two openings; each opening is announced by name.

    Args:
        clock: tells when blocks came and times the retries. ``now_s`` is called from the driver's thread.
        device: index, part of the name, or None for the default; see ``find_device``.
        channel: listen to this native channel only, counted from 0.
        sounddevice: the module to use; None imports it.
    """

    def __init__(
        self,
        clock: Clock,
        device: int | str | None = None,
        *,
        channel: int | None = None,
        sounddevice: Any = None,
    ) -> None:
        self._clock = clock
        self._wanted = device
        self._channel = channel
        self._module = sounddevice
        self._describe: Description = {"kind": "microphone", "opens": 0}
        self._opened: _Opened | None = None
        self._first_device: InputDevice | None = None
        self._pipeline: SourcePipeline | None = None
        self._wake = asyncio.Event()
        self._timer: asyncio.Task[None] | None = None
        self._closing = False
        self._accounted_s = 0.0
        self._expected = 0
        self._overflows = FaultCounter()
        self._underflows = FaultCounter()
        self._drops = FaultCounter()
        self._hung = False

    @property
    def describe(self) -> Description:
        """The device, its native rate and channels, and the counts of what went wrong."""
        return self._describe

    async def open(self) -> None:
        """Open the device.

        Raises:
            SourceError: when PortAudio is missing, no device fits, or the driver refuses; lists the devices where that helps.
        """
        if self._module is None:
            self._module = load_sounddevice()
        await self._open_stream(refresh=False)

    async def __aiter__(self) -> AsyncIterator[SourceItem]:
        """Frames, gaps and notices until ``aclose``."""
        if self._opened is None:
            raise RuntimeError("open() first")
        yield self._opened_notice(self._opened)
        while not self._closing:
            opened = self._opened
            blocks = opened.inbox.take()
            trouble = ""
            for block in blocks:
                if block.silence_before_s > STALL_S:
                    trouble = f"the clock jumped by {block.silence_before_s:.1f} s (was the computer asleep?)"
                    break  # what an old stream still delivers after a jump is stale
                for item in self._take(block):
                    yield item
            if not trouble and not blocks:
                trouble = self._stalled(opened.inbox)
                if not trouble:
                    await self._wait_until(opened.inbox.last_s + STALL_S)
            if trouble:
                async for item in self._recover(trouble):
                    yield item
        for item in self._running_pipeline.finish():
            yield item

    async def aclose(self) -> None:
        """Close the device, in at most two seconds; a running iteration ends."""
        self._closing = True
        self._wake.set()
        self._cancel_timer()
        await self._close_stream()

    @property
    def _running_pipeline(self) -> SourcePipeline:
        if self._pipeline is None:
            raise RuntimeError("open() first")
        return self._pipeline

    # Blocks

    def _take(self, block: _Block) -> list[SourceItem]:
        """One block, and whatever is missing before it, as items."""
        pipeline = self._running_pipeline
        rate_hz = int(self._describe["native_rate_hz"] or 0)
        length_s = block.data.shape[0] / rate_hz
        items: list[SourceItem] = []
        if self._expected == 0:  # what passed between opening, or the last stall, and the first sample
            items += self._lose_until(block.at_s - length_s, at_least_s=STALL_S)
        missing = block.first - self._expected
        self._expected = block.first + block.data.shape[0]
        if missing or block.overflow:
            items += pipeline.lose(round(missing * SAMPLE_RATE_HZ / rate_hz))
            items += self._say_lost(block, missing, rate_hz)
        if block.underflow:
            self._underflows.add(1)
            self._describe["underflows"] = self._underflows.total
            items += pipeline.lose(round(length_s * SAMPLE_RATE_HZ))
            if self._underflows.is_due(pipeline.position):
                message = f"the driver had no audio {self._underflows.total} times so far and put zeros in its place; counted as lost"
                items.append(self._notice(NoticeCode.DEVICE_UNDERFLOW, message, times=self._underflows.total))
        else:
            items += pipeline.push(block.data)
        self._accounted_s = block.at_s
        self._describe["channel_rule"] = pipeline.channel_rule
        return items
