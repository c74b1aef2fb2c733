"""A microphone as a source, through PortAudio (``sounddevice``, imported only when one is opened).

The driver's callback runs in a foreign thread. It copies its buffer, which the driver uses again, numbers the block and
puts it in a bounded queue; everything else happens on the event loop. What can go wrong with a microphone goes wrong in
silence, so each case is looked for and said: lost blocks, a device that stops calling, a sleep of the computer, perfect
zeros, a close that never returns.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
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
START_S = 5.0
"""The same for the first callback after an opening: Bluetooth headsets take seconds to wake."""
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
            "the PortAudio library is missing, so no microphone can be opened. "
            "Debian, Ubuntu: sudo apt install libportaudio2; Fedora: sudo dnf install portaudio; "
            "macOS: brew install portaudio. Recordings and pipes work without it"
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


def format_devices(devices: tuple[InputDevice, ...]) -> str:
    """A list of devices for a person, one a line."""
    if not devices:
        return "no input device: plug in a microphone; recordings and pipes work without one"
    return "\n".join(map(str, devices))


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
    """Takes blocks from one opened stream's callback thread and holds them for the loop.

    One an opening: a late callback of an abandoned stream can only reach its own, forgotten inbox.

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
        self._started = False
        self.last_s = clock.now_s()
        self.ended = False

    def start(self) -> None:
        """The stream runs from now on; opening it may have taken seconds."""
        with self._lock:
            if not self._started:
                self.last_s = self._clock.now_s()

    @property
    def deadline_s(self) -> float:
        """When the next block is overdue."""
        with self._lock:
            return self.last_s + (STALL_S if self._started else START_S)

    def callback(self, data: Any, frames: int, time: Any, status: Any) -> None:
        """PortAudio's callback: copy, number, enqueue, wake."""
        copy = np.array(data, np.float32)
        at_s = self._clock.now_s()
        adc_s = float(time.inputBufferAdcTime)
        with self._lock:
            silence_s = at_s - self.last_s - frames / self._rate_hz if self._started else 0.0
            self._started = True
            if silence_s > STALL_S:
                self._next += round(silence_s * self._rate_hz)
            elif status.input_overflow:
                self._next += self._lost_by_overflow(silence_s, adc_s)
            flags = bool(status.input_overflow), bool(status.input_underflow)
            self._blocks.append(_Block(copy, self._next, at_s, silence_s, *flags))
            self.last_s = at_s
            self._adc_end_s = adc_s + frames / self._rate_hz if adc_s > 0 else 0.0
            self._next += frames
            self._held += frames
            while self._held > QUEUE_S * self._rate_hz and len(self._blocks) > 1:
                self._held -= self._blocks.popleft().data.shape[0]
        self._notify()

    def finished(self) -> None:
        """PortAudio's word that the stream will not call again."""
        self.ended = True  # set before the wake-up, so that the loop sees it
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

    Channels: all native ones (two when the device claims more than 32; fewer when the driver refuses), made one by
    the channel rule of ``source_channels``. When the device stops, the stream position goes on with the clock, in
    gaps, and the device is opened again, after 0.5, 1, 2, ... 30 s. A device chosen by index or name is waited for;
    nothing else is opened in its stead. The default device may change between two openings; each opening is announced
    by name.

    Args:
        device: index, part of the name, or None for the default; see ``find_device``.
        clock: tells when blocks came and times the retries. ``now_s`` is called from the driver's thread.
        channel: listen to this native channel only, counted from 0.
        sounddevice: the module to use; None imports it.
    """

    def __init__(
        self,
        device: int | str | None = None,
        *,
        clock: Clock,
        channel: int | None = None,
        sounddevice: Any = None,
    ) -> None:
        self._clock = clock
        self._wanted = device
        self._channel = channel
        self._module = sounddevice
        self._describe: Description = {"kind": "microphone", "opens": 0}
        self._first_device: InputDevice | None = None
        self._opened: _Opened | None = None
        self._pipeline: SourcePipeline | None = None
        self._wake = asyncio.Event()
        self._timer: asyncio.Task[None] | None = None
        self._timer_s = (
            0.0  # when it fires; a later one than needed would be a late watchdog, an earlier one is harmless
        )
        self._closing = False
        self._hung = False
        self._accounted_s: float | None = None  # the clock's time up to which the stream is accounted for
        self._expected: int | None = None  # number of the sample that should come next; None right after an opening
        self._overflows = FaultCounter()
        self._underflows = FaultCounter()
        self._dropped_samples = FaultCounter()

    @property
    def describe(self) -> Description:
        """The device, its native rate and channels, and the counts of what went wrong."""
        return self._describe

    async def open(self) -> None:
        """Open the device.

        Raises:
            SourceError: when PortAudio is missing, no device fits, or the driver refuses; lists the devices where that
                helps.
        """
        await self._open_stream(refresh=False)

    async def __aiter__(self) -> AsyncIterator[SourceItem]:
        """Frames, gaps and notices until ``aclose``."""
        if self._opened is None or self._pipeline is None:
            raise RuntimeError("open() first")
        yield self._opened_notice(self._opened)
        while not self._closing:
            opened = self._opened
            self._wake.clear()
            blocks = opened.inbox.take()
            trouble = self._trouble(opened.inbox) if not blocks else ""
            for block in blocks:
                if block.silence_before_s > STALL_S:  # what an old stream still delivers after a jump is stale
                    trouble = f"the clock jumped by {block.silence_before_s:.1f} s (was the computer asleep?)"
                    break
                for item in self._take(block, opened.rate_hz, self._pipeline):
                    yield item
            if trouble:
                async with contextlib.aclosing(self._recover(trouble, opened, self._pipeline)) as recovery:
                    async for item in recovery:
                        yield item
            elif not blocks:
                await self._wait_until(opened.inbox.deadline_s)
        for item in self._pipeline.finish():
            yield item

    async def aclose(self) -> None:
        """Close the device, in at most two seconds; a running iteration ends."""
        self._closing = True
        self._wake.set()
        self._cancel_timer()
        await self._close_stream()

    # What blocks say

    def _take(self, block: _Block, rate_hz: int, pipeline: SourcePipeline) -> list[SourceItem]:
        """One block, and whatever is missing before it, as items."""
        length_s = block.data.shape[0] / rate_hz
        items: list[SourceItem] = []
        if self._expected is not None:
            missing = block.first - self._expected
        elif self._accounted_s is None:
            missing = block.first
        else:  # the clock tells what was lost while the device was closed
            items += self._lose_until(block.at_s - length_s, pipeline)
            missing = 0
        if missing or block.overflow:
            items += pipeline.lose(round(missing * SAMPLE_RATE_HZ / rate_hz))
            items += self._say_lost(block, missing, rate_hz, pipeline.position)
        if block.underflow:
            items += pipeline.lose(round(length_s * SAMPLE_RATE_HZ))
            items += self._say_underflow(pipeline.position)
        else:
            items += pipeline.push(block.data)
        self._expected = block.first + block.data.shape[0]
        self._accounted_s = block.at_s
        self._describe["channel_rule"] = pipeline.channel_rule
        return items

    def _say_lost(self, block: _Block, missing: int, rate_hz: int, position: int) -> list[SourceItem]:
        lost_ms = missing * 1000 / rate_hz
        if block.overflow:
            self._overflows.add(1)
            self._describe["overflows"] = times = self._overflows.total
            message = f"the driver lost audio, about {lost_ms:.0f} ms, {times} times so far: the computer is too busy"
            numbers: dict[str, int | float] = {"times": times, "lost_ms": round(lost_ms, 1)}
            due = self._overflows.is_due(position)
            return [SourceNotice(NoticeCode.DEVICE_OVERFLOW, message, position, numbers)] if due else []
        self._dropped_samples.add(missing)
        self._describe["dropped_native_samples"] = total = self._dropped_samples.total
        message = f"the loop stood still: {lost_ms:.0f} ms of the oldest waiting audio were dropped"
        due = self._dropped_samples.is_due(position)
        return [SourceNotice(NoticeCode.QUEUE_FULL, message, position, {"native_samples": total})] if due else []

    def _say_underflow(self, position: int) -> list[SourceItem]:
        self._underflows.add(1)
        self._describe["underflows"] = times = self._underflows.total
        message = f"the driver had no audio, {times} times so far, and put zeros in its place; counted as lost"
        due = self._underflows.is_due(position)
        return [SourceNotice(NoticeCode.DEVICE_UNDERFLOW, message, position, {"times": times})] if due else []

    def _trouble(self, inbox: _Inbox) -> str:
        """Why an inbox without blocks means more than that none is due, or an empty text."""
        if inbox.ended:
            return "the device stopped (unplugged?)"
        if self._clock.now_s() >= inbox.deadline_s:
            return f"no audio for {self._clock.now_s() - inbox.last_s:.1f} s (unplugged?)"
        return ""

    def _lose_until(self, at_s: float, pipeline: SourcePipeline) -> list[SourceItem]:
        """Let the stream position catch up with the clock."""
        accounted_s = at_s if self._accounted_s is None else self._accounted_s
        lost = round((at_s - accounted_s) * SAMPLE_RATE_HZ)
        if lost <= 0:
            return []
        self._accounted_s = accounted_s + lost / SAMPLE_RATE_HZ
        return pipeline.lose(lost)

    # Opening, closing, opening again

    async def _recover(
        self, trouble: str, opened: _Opened, pipeline: SourcePipeline
    ) -> AsyncGenerator[SourceItem, None]:
        """Close what is broken and open it again, for as long as it takes; meanwhile the stream goes on in gaps."""
        self._cancel_timer()
        if self._accounted_s is None:
            self._accounted_s = opened.inbox.last_s
        message = f"{opened.device.name}: {trouble}; whatever was being said is dropped, opening the device again"
        yield SourceNotice(NoticeCode.STALLED, message, pipeline.position)
        for item in self._lose_until(self._clock.now_s(), pipeline):
            yield item
        if not await self._close_stream():
            message = f"{opened.device.name}: closing did not return in {CLOSE_LIMIT_S:.0f} s; abandoned"
            yield SourceNotice(NoticeCode.CLOSE_BLOCKED, message, pipeline.position)
        retry_s = FIRST_RETRY_S
        while not self._closing:
            try:
                reopened = await self._open_stream(refresh=not self._hung)
            except SourceError as error:
                for item in self._lose_until(self._clock.now_s(), pipeline):
                    yield item
                reason = error.message.splitlines()[0]
                message = f"{opened.device.name}: {reason}; next try in {retry_s:g} s"
                yield SourceNotice(NoticeCode.REOPEN_FAILED, message, pipeline.position, {"retry_s": retry_s})
                await self._pause(retry_s)
                retry_s = min(2 * retry_s, LAST_RETRY_S)
            else:
                yield self._opened_notice(reopened)
                return

    def _opened_notice(self, opened: _Opened) -> SourceNotice:
        device, before = opened.device, self._first_device
        message = (
            f"listening to {device.name} ({device.host_api}, index {device.index}), "
            f"{opened.rate_hz} Hz, {opened.channels} ch"
        )
        if before is not None and before.name != device.name:
            message += f"; it was {before.name} before: the system's default changed"
        self._first_device = device
        position = self._pipeline.position if self._pipeline is not None else 0
        numbers = {"index": device.index, "native_rate_hz": opened.rate_hz, "channels": opened.channels}
        return SourceNotice(NoticeCode.OPENED, message, position, numbers)

    async def _open_stream(self, *, refresh: bool) -> _Opened:
        loop = asyncio.get_running_loop()

        def work() -> _Opened:
            if self._module is None:
                self._module = load_sounddevice()
            if refresh:
                self._refresh_devices()
            return self._open_device(self._pick(list_devices(self._module)), loop)

        try:
            opened = await self._off_loop(work, OPEN_LIMIT_S, too_late=lambda late: _shut(late.stream))
        except TimeoutError as error:
            self._hung = True
            message = f"opening the device did not return in {OPEN_LIMIT_S:.0f} s; unplug it and plug it in again"
            raise SourceError(ErrorCode.DEVICE_FAILED, message) from error
        self._opened = opened
        if self._closing:
            await self._close_stream()
        mixer = mixer_for(opened.channels, opened.rate_hz, self._channel)
        if self._pipeline is None:
            self._pipeline = SourcePipeline(opened.rate_hz, mixer, is_live=True)
        else:
            self._pipeline.retune(opened.rate_hz, mixer)
        self._expected = None
        self._describe |= {
            "name": opened.device.name,
            "index": opened.device.index,
            "host_api": opened.device.host_api,
            "native_rate_hz": opened.rate_hz,
            "channels": opened.channels,
            "device_channels": opened.device.channels,
            "channel_rule": mixer.choice.rule,
            "narrow_band": opened.rate_hz <= NARROW_BAND_RATE_HZ,
            "opens": int(self._describe["opens"] or 0) + 1,
        }
        return opened

    def _pick(self, devices: tuple[InputDevice, ...]) -> InputDevice:
        """The device that was asked for; once it was opened, only that very one."""
        before = self._first_device
        if before is None or self._wanted is None:
            return find_device(devices, self._wanted)
        same = [device for device in devices if (device.name, device.host_api) == (before.name, before.host_api)]
        same = [device for device in same if device.index == before.index] or same
        if len(same) == 1:
            return same[0]
        reason = "is gone" if not same else "has a twin now, and its place in the list changed"
        raise SourceError(ErrorCode.NO_SUCH_DEVICE, f"the device {reason}; waiting for it")

    def _open_device(self, device: InputDevice, loop: asyncio.AbstractEventLoop) -> _Opened:
        """Open at the native rate with all channels; where the driver refuses just that, with what it does take."""
        if self._channel is not None and not 0 <= self._channel < device.channels:
            message = f"{device.name} has no channel {self._channel}; it has {device.channels}, counted from 0"
            raise SourceError(ErrorCode.NO_SUCH_CHANNEL, message)
        refused: Exception | None = None
        for rate_hz in dict.fromkeys((device.rate_hz, *_COMMON_RATES_HZ)):
            for channels in self._channel_counts(device):
                if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
                    continue
                inbox = _Inbox(loop, self._wake, self._clock, rate_hz)
                try:
                    stream = self._start(device.index, rate_hz, channels, inbox)
                except self._module.PortAudioError as error:
                    if _code_of(error) not in (_PA_INVALID_SAMPLE_RATE, _PA_INVALID_CHANNEL_COUNT):
                        raise _device_error(device, error) from error
                    refused = error
                else:
                    inbox.start()
                    return _Opened(stream, inbox, device, channels, rate_hz)
        message = f"{device.name} takes neither its native format nor a common one ({refused}); choose another device"
        raise SourceError(ErrorCode.DEVICE_FAILED, message)

    def _channel_counts(self, device: InputDevice) -> tuple[int, ...]:
        needed = 1 if self._channel is None else self._channel + 1
        native = device.channels
        wanted = (native, 2, 1) if native <= MAX_NATIVE_CHANNELS else (2, native, 1)
        return tuple(dict.fromkeys(count for count in wanted if needed <= count <= native))

    def _start(self, index: int, rate_hz: int, channels: int, inbox: _Inbox) -> Any:
        stream = self._module.InputStream(
            device=index,
            samplerate=rate_hz,
            channels=channels,
            dtype="float32",
            blocksize=0,
            latency=LATENCY_S,
            callback=inbox.callback,
            finished_callback=inbox.finished,
        )
        try:
            stream.start()
        except BaseException:
            stream.close()
            raise
        return stream

    def _refresh_devices(self) -> None:
        """PortAudio reads the device list once; only starting it anew shows what was plugged in since."""
        with contextlib.suppress(self._module.PortAudioError):
            self._module._terminate()
        try:
            self._module._initialize()
        except self._module.PortAudioError as error:
            raise SourceError(ErrorCode.DEVICE_FAILED, f"PortAudio cannot be started again: {error}") from error

    async def _close_stream(self) -> bool:
        """Close the stream if one is open; False when that did not return in time."""
        opened, self._opened = self._opened, None
        if opened is None:
            return True
        try:
            await self._off_loop(lambda: _shut(opened.stream), CLOSE_LIMIT_S)
        except TimeoutError:
            self._hung = True
            self._describe["close_blocked"] = True
            # At exit sounddevice terminates PortAudio: that would block as well, and the program never end.
            if exit_handler := getattr(self._module, "_exit_handler", None):
                atexit.unregister(exit_handler)
            return False
        return True

    # Waiting

    async def _wait_until(self, at_s: float) -> None:
        """Wait until something wakes the source or the clock shows ``at_s``; may return early, never late."""
        if self._timer is None or self._timer.done() or at_s < self._timer_s:
            self._cancel_timer()
            self._timer_s = at_s
            self._timer = asyncio.create_task(self._clock.sleep_until_s(at_s), name="microphone watchdog")
            self._timer.add_done_callback(lambda _: self._wake.set())
        await self._wake.wait()
        if self._timer is not None and self._timer.done() and not self._timer.cancelled():
            self._timer.result()

    async def _pause(self, seconds: float) -> None:
        """Wait that long, or until the source is closed."""
        self._cancel_timer()
        end_s = self._clock.now_s() + seconds
        while not self._closing and self._clock.now_s() < end_s:
            self._wake.clear()
            await self._wait_until(end_s)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _off_loop(self, work: Callable[[], T], limit_s: float, too_late: Callable[[T], None] | None = None) -> T:
        """Run a PortAudio call on a thread that does not keep the program alive: a driver may never return.

        Args:
            work: the call.
            limit_s: how long to wait for it.
            too_late: what to do with a result that nobody waits for any more.

        Raises:
            TimeoutError: when the limit passes first; the thread is abandoned.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def settle(result: T) -> None:
            if not outcome.done():
                outcome.set_result(result)
            elif too_late is not None:
                threading.Thread(target=too_late, args=(result,), daemon=True).start()

        def fail(error: Exception) -> None:
            if not outcome.done():
                outcome.set_exception(error)

        def run() -> None:
            try:
                result = work()
            except Exception as error:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(fail, error)
                return
            try:
                loop.call_soon_threadsafe(settle, result)
            except RuntimeError:  # the loop is closed
                if too_late is not None:
                    too_late(result)

        threading.Thread(target=run, name="audio device", daemon=True).start()
        limit = asyncio.create_task(self._clock.sleep_s(limit_s))
        try:
            waited: set[asyncio.Future[Any]] = {outcome, limit}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not outcome.done():
                raise TimeoutError
            return outcome.result()
        finally:
            limit.cancel()
            outcome.cancel()


def _shut(stream: Any) -> None:
    """Stop without waiting for what is buffered, and close."""
    stream.abort()
    stream.close()


def _code_of(error: Exception) -> int | None:
    return error.args[1] if len(error.args) > 1 and isinstance(error.args[1], int) else None


def _device_error(device: InputDevice, error: Exception) -> SourceError:
    """Name the reason why the driver refused, and the cure."""
    code = _code_of(error)
    if code == _PA_DEVICE_UNAVAILABLE:
        message = f"{device.name} is busy: close the program that uses it, or choose another device ({error})"
        return SourceError(ErrorCode.DEVICE_BUSY, message)
    if code == _PA_INVALID_DEVICE:
        return SourceError(ErrorCode.NO_SUCH_DEVICE, f"{device.name} is not there any more; plug it in ({error})")
    message = (
        f"{device.name} cannot be opened ({error}): allow this program to use the microphone in the system's "
        "privacy settings, or choose another device"
    )
    return SourceError(ErrorCode.DEVICE_FAILED, message)
