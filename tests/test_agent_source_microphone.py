"""Microphones that misbehave: foreign threads, odd sizes, reused buffers, unplugging, sleep, silence and hangs.

``FakeSoundDevice`` stands for the ``sounddevice`` module. Like a real driver it delivers blocks from any thread and
scribbles over its buffer as soon as the callback has returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agent.clock import VirtualClock
from agent.frames import Frame, SourceGap
from agent.source_microphone import (
    InputDevice,
    MicrophoneSource,
    find_device,
    format_devices,
    list_devices,
    load_sounddevice,
)
from agent.sources import ErrorCode, NoticeCode, SourceError, SourceItem, SourceNotice

N = NoticeCode


class FakeError(Exception):
    """Like ``sounddevice.PortAudioError``: text, PortAudio's code."""


def device(name: str, channels: int = 1, rate_hz: float = 16_000.0, host_api: int = 0) -> dict[str, Any]:
    return {"name": name, "hostapi": host_api, "max_input_channels": channels, "default_samplerate": rate_hz}


class FakeStream:
    """An input stream that delivers what a test feeds it."""

    def __init__(self, module: FakeSoundDevice, options: dict[str, Any]) -> None:
        self.module = module
        self.options = options
        self.rate_hz = options["samplerate"]
        self.channels = options["channels"]
        self.is_started = self.is_closed = False
        self._buffer = np.zeros((1 << 16, self.channels), np.float32)

    def start(self) -> None:
        if self.module.start_error is not None:
            raise self.module.start_error
        self.is_started = True

    def abort(self) -> None:
        self.module.block_close.wait()
        self.is_started = False

    def close(self) -> None:
        self.is_closed = True
        self.options["finished_callback"]()

    def feed(self, samples: np.ndarray, *, overflow: bool = False, underflow: bool = False, adc_s: float = 0.0) -> None:
        """Call back with ``(n,)`` or ``(n, channels)`` samples, as the driver's thread would."""
        data = samples.reshape(len(samples), -1)
        buffer = self._buffer[: len(data)]
        buffer[:] = data
        status = SimpleNamespace(input_overflow=overflow, input_underflow=underflow)
        self.options["callback"](buffer, len(data), SimpleNamespace(inputBufferAdcTime=adc_s), status)
        self._buffer[:] = 7.7


class FakeSoundDevice:
    """The part of ``sounddevice`` that is used."""

    PortAudioError = FakeError

    def __init__(self, *devices: dict[str, Any], default: int = 0) -> None:
        self.devices = list(devices)
        self.default = SimpleNamespace(device=[default, 3])
        self.streams: list[FakeStream] = []
        self.refused: Callable[[dict[str, Any]], FakeError | None] = lambda _: None
        self.start_error: FakeError | None = None
        self.list_error: FakeError | None = None
        self.restarts = 0
        self.restart_error: FakeError | None = None
        self.block_close = threading.Event()
        self.block_close.set()
        self.block_open = threading.Event()
        self.block_open.set()

    def query_devices(self) -> list[dict[str, Any]]:
        if self.list_error is not None:
            raise self.list_error
        return self.devices

    def query_hostapis(self) -> tuple[dict[str, Any], ...]:
        return {"name": "ALSA"}, {"name": "JACK"}

    def InputStream(self, **options: Any) -> FakeStream:  # noqa: N802  # the module's name for it
        self.block_open.wait()
        error = self.refused(options)
        if error is not None:
            raise error
        stream = FakeStream(self, options)
        self.streams.append(stream)
        return stream

    def _terminate(self) -> None:
        raise FakeError("not initialized", -10000)  # must not matter

    def _initialize(self) -> None:
        self.restarts += 1
        if self.restart_error is not None:
            raise self.restart_error

    def _exit_handler(self) -> None:
        raise AssertionError("called at exit although closing hangs")

    @property
    def stream(self) -> FakeStream:
        """The stream that was opened last."""
        return self.streams[-1]


class Listener:
    """Collects a microphone's items in the background."""

    def __init__(self, module: FakeSoundDevice, wanted: int | str | None = None, channel: int | None = None) -> None:
        self.module = module
        self.clock = VirtualClock()
        self.source = MicrophoneSource(wanted, clock=self.clock, channel=channel, sounddevice=module)
        self.items: list[SourceItem] = []
        self.error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.source.open()
        self._task = asyncio.create_task(self._listen())
        await self.until(lambda: bool(self.items))

    async def _listen(self) -> None:
        async for item in self.source:
            self.items.append(item)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Let the loop and the device threads run until something is so."""
        for _ in range(5_000):
            if is_so():
                return
            await asyncio.sleep(0.001 if _ > 20 else 0)
        raise AssertionError(
            f"never came; last notices: {[item for item in self.items if isinstance(item, SourceNotice)][-5:]}"
        )

    async def settle(self) -> None:
        """Let the loop do what it has to do."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def pass_s(self, seconds: float) -> None:
        """Let virtual time pass, in small steps, while the loop runs."""
        end_s = self.clock.now_s() + seconds
        while self.clock.now_s() < end_s - 1e-9:
            self.clock.move_to_s(min(end_s, self.clock.now_s() + 0.25))
            await self.settle()

    async def stop(self) -> None:
        await self.source.aclose()
        if self._task is not None:
            await asyncio.wait_for(self._task, 5.0)

    def notices(self, code: NoticeCode) -> list[SourceNotice]:
        return [item for item in self.items if isinstance(item, SourceNotice) and item.code is code]

    @property
    def frames(self) -> list[Frame]:
        return [item for item in self.items if isinstance(item, Frame)]

    @property
    def gaps(self) -> list[SourceGap]:
        return [item for item in self.items if isinstance(item, SourceGap)]

    @property
    def sound(self) -> np.ndarray:
        return np.concatenate([frame.samples for frame in self.frames])

    @property
    def position(self) -> int:
        """Where the stream stands by its items, which must follow each other without a hole."""
        at = 0
        for item in self.items:
            if not isinstance(item, SourceNotice):
                assert item.start_sample == at
                at = item.end_sample
        return at


@contextlib.asynccontextmanager
async def listening(
    module: FakeSoundDevice, wanted: int | str | None = None, channel: int | None = None
) -> AsyncIterator[Listener]:
    listener = Listener(module, wanted, channel)
    tasks = asyncio.all_tasks()
    await listener.start()
    try:
        yield listener
    finally:
        module.block_close.set()
        await listener.stop()
    await listener.settle()
    assert asyncio.all_tasks() == tasks, "a task was left behind"


async def drain(source: MicrophoneSource) -> None:
    """Listen to the end, which must come soon."""
    async with asyncio.timeout(5.0):
        async for _ in source:
            pass


def steady(value: float, count: int = 320) -> np.ndarray:
    return np.full(count, value, np.float32)


# Blocks


async def test_ten_thousand_frames_from_a_foreign_thread_arrive_once_in_order_and_an_overflow_is_marked() -> None:
    asyncio.get_running_loop().set_debug(True)  # a call into the loop from another thread raises
    async with listening(FakeSoundDevice(device("Mic"))) as mic:
        stream = mic.module.stream
        given_up = threading.Event()

        def drive() -> None:
            for number in range(10_000):
                while number - len(mic.items) > 200:  # a driver is paced by its converter; this one by its listener
                    if given_up.wait(0.0005):
                        return
                stream.feed(steady(number / 10_000), overflow=number == 5_000)

        thread = threading.Thread(target=drive)
        thread.start()
        try:
            await mic.until(lambda: len(mic.frames) == 10_000)
        finally:
            given_up.set()
            thread.join()
    assert np.array_equal(mic.sound[::320], (np.arange(10_000) / 10_000).astype(np.float32))
    assert np.array_equal(mic.sound, np.repeat(mic.sound[::320], 320))
    assert mic.gaps == [SourceGap(5_000 * 320, 0, 0)]
    assert mic.items.index(mic.frames[5_000]) > mic.items.index(mic.gaps[0])
    assert [dict(notice.numbers) for notice in mic.notices(N.DEVICE_OVERFLOW)] == [{"times": 1, "lost_ms": 0.0}]
    assert mic.source.describe["overflows"] == 1


@pytest.mark.parametrize("sizes", [[1], [160], [441], [1_024], [4_800], [1, 4_800, 160, 441, 1_024, 7]])
async def test_any_callback_size_is_re_framed_and_every_sample_conserved(sizes: list[int]) -> None:
    signal = np.random.default_rng(8).uniform(-0.5, 0.5, 3_200 if sizes == [1] else 40_000).astype(np.float32)
    async with listening(FakeSoundDevice(device("Mic"))) as mic:
        start = turn = 0
        while start < len(signal):
            size = sizes[turn % len(sizes)]
            mic.module.stream.feed(signal[start : start + size])
            start, turn = start + size, turn + 1
        await mic.until(lambda: len(mic.frames) == len(signal) // 320)
    assert np.array_equal(mic.sound, signal)
    assert not mic.gaps


async def test_the_last_samples_before_closing_are_heard() -> None:
    async with listening(FakeSoundDevice(device("Mic"))) as mic:
        mic.module.stream.feed(steady(0.5, 500))
        await mic.settle()
    assert len(mic.frames) == 2
    assert mic.frames[1].padded_samples == 140


@pytest.mark.parametrize(
    ("adc_s", "pause_s", "lost"),
    [
        ((0.10, 0.17), 0.0, 800),  # the converter's time stamps tell: 70 ms less one block of 20 ms
        ((0.0, 0.0), 0.05, 480),  # no time stamps: the clock tells, 50 ms less one block
        ((0.10, 0.11), 0.0, 0),  # nothing can be told
    ],
)
async def test_what_an_overflow_cost_is_estimated_and_moves_the_stream(
    adc_s: tuple[float, float], pause_s: float, lost: int
) -> None:
    async with listening(FakeSoundDevice(device("Mic"))) as mic:
        mic.module.stream.feed(steady(0.1), adc_s=adc_s[0])
        await mic.settle()
        mic.clock.move_to_s(mic.clock.now_s() + pause_s)
        mic.module.stream.feed(steady(0.2), adc_s=adc_s[1], overflow=True)
        await mic.settle()
    assert sum(gap.lost_samples + gap.zeroed_samples for gap in mic.gaps) == lost
    assert len(mic.gaps) == 1
    assert mic.position == -(-(640 + lost) // 320) * 320


async def test_zeros_that_the_driver_put_in_count_as_lost_and_not_as_silence() -> None:
    async with listening(FakeSoundDevice(device("Mic"))) as mic:
        for underflow in (False, True, False):
            mic.module.stream.feed(steady(0.1), underflow=underflow)
        await mic.settle()
    assert mic.gaps == [SourceGap(320, 320, 0)]
    assert [frame.start_sample for frame in mic.frames] == [0, 640]
    assert len(mic.notices(N.DEVICE_UNDERFLOW)) == 1
    assert mic.source.describe["underflows"] == 1


async def test_a_loop_that_stood_still_drops_the_oldest_audio_so_that_nothing_stale_is_acted_on() -> None:
    async with listening(FakeSoundDevice(device("Mic"))) as mic:
        for number in range(400):  # 8 s, while the loop gets no chance to run
            mic.clock.move_to_s(mic.clock.now_s() + 0.02)
            mic.module.stream.feed(steady(number / 400))
        opened = mic.source._opened
        assert opened is not None
        assert opened.inbox._held == sum(len(block.data) for block in opened.inbox._blocks) == 80_000
        await mic.until(lambda: len(mic.frames) == 250)
    assert mic.items.index(mic.gaps[0]) < mic.items.index(mic.frames[0])
    assert mic.gaps == [SourceGap(0, 48_000, 0)]
    assert mic.frames[0].start_sample == 48_000
    assert np.array_equal(mic.sound[::320], (np.arange(150, 400) / 400).astype(np.float32))
    assert dict(mic.notices(N.QUEUE_FULL)[0].numbers) == {"native_samples": 48_000}
    assert not mic.notices(N.STALLED)


# Channels and rates


async def test_a_device_with_44_1_khz_stereo_only_is_opened_as_it_is_and_resampled() -> None:
    module = FakeSoundDevice(device("Interface", channels=2, rate_hz=44_100.0))
    tone = (0.5 * np.sin(2 * np.pi * 1_000 * np.arange(88_200) / 44_100)).astype(np.float32)
    async with listening(module) as mic:
        assert (module.stream.rate_hz, module.stream.channels) == (44_100, 2)
        for start in range(0, 88_200, 441):
            module.stream.feed(np.repeat(tone[start : start + 441, None], 2, axis=1))
        await mic.settle()
    assert sum(320 - frame.padded_samples for frame in mic.frames) == pytest.approx(32_000, abs=1)
    ideal = 0.5 * np.sin(2 * np.pi * 1_000 * np.arange(32_000) / 16_000)
    assert np.abs(mic.sound[1_600:30_000] - ideal[1_600:30_000]).max() < 1e-3


@pytest.mark.parametrize(("channels", "opened"), [(1, 1), (2, 2), (4, 4), (32, 32), (128, 2)])
async def test_all_native_channels_are_opened_but_not_the_hundreds_that_virtual_devices_claim(
    channels: int, opened: int
) -> None:
    async with listening(FakeSoundDevice(device("Mic", channels=channels))) as mic:
        assert mic.module.stream.channels == opened
        assert mic.source.describe["channels"] == opened
        assert mic.source.describe["device_channels"] == channels


async def test_a_voice_on_one_channel_of_a_four_channel_microphone_is_found() -> None:
    module = FakeSoundDevice(device("Array", channels=4))
    voice = np.random.default_rng(9).uniform(-0.3, 0.3, 32_000).astype(np.float32)
    block = np.zeros((32_000, 4), np.float32)
    block[:, 2] = voice
    async with listening(module) as mic:
        module.stream.feed(block)
        await mic.settle()
    assert np.array_equal(mic.sound[-16_000:], voice[-16_000:])
    assert "channel 2" in str(mic.source.describe["channel_rule"])


async def test_what_the_driver_refuses_is_tried_smaller_and_at_common_rates() -> None:
    module = FakeSoundDevice(device("Picky", channels=8, rate_hz=192_000.0))
    tried: list[tuple[int, int]] = []

    def refuse(options: dict[str, Any]) -> FakeError | None:
        tried.append((options["samplerate"], options["channels"]))
        if options["samplerate"] != 48_000:
            return FakeError("Invalid sample rate", -9997)
        return FakeError("Invalid number of channels", -9998) if options["channels"] > 1 else None

    module.refused = refuse
    async with listening(module) as mic:
        assert tried == [(192_000, 8), (192_000, 2), (192_000, 1), (48_000, 8), (48_000, 2), (48_000, 1)]
        assert mic.source.describe["native_rate_hz"] == 48_000


@pytest.mark.parametrize(("channel", "opened"), [(0, 128), (5, 128)])
async def test_a_channel_set_by_hand_is_really_opened(channel: int, opened: int) -> None:
    module = FakeSoundDevice(device("Console", channels=opened))
    async with listening(module, channel=channel) as mic:
        block = np.zeros((320, mic.module.stream.channels), np.float32)
        block[:, channel] = 0.5
        module.stream.feed(block)
        await mic.settle()
    assert (mic.sound == 0.5).all()


@pytest.mark.parametrize("channel", [-1, 2])
async def test_a_channel_that_the_device_lacks_is_refused(channel: int) -> None:
    module = FakeSoundDevice(device("Mic", channels=2))
    with pytest.raises(SourceError, match=f"no channel {channel}; it has 2") as caught:
        await MicrophoneSource(clock=VirtualClock(), channel=channel, sounddevice=module).open()
    assert caught.value.code is ErrorCode.NO_SUCH_CHANNEL


# Opening

TWO_USB = (
    InputDevice(0, "Built-in", "ALSA", 2, 48_000, is_default=True),
    InputDevice(2, "USB Mic", "ALSA", 1, 44_100, is_default=False),
    InputDevice(3, "USB Mic Pro", "ALSA", 1, 44_100, is_default=False),
    InputDevice(4, "Built-in", "JACK", 2, 48_000, is_default=False),
)


@pytest.mark.parametrize(
    ("wanted", "index"),
    [(None, 0), (2, 2), ("3", 3), ("pro", 3), ("usb mic", 2), ("USB MIC PRO", 3), ("built-in, jack", 4), ("jack", 4)],
)
def test_a_device_is_found_by_index_by_part_of_its_name_or_by_its_whole_name(
    wanted: int | str | None, index: int
) -> None:
    assert find_device(TWO_USB, wanted).index == index


@pytest.mark.parametrize(
    ("devices", "wanted", "code", "message"),
    [
        ((), None, ErrorCode.NO_INPUT_DEVICE, "no input device"),
        (TWO_USB[1:], None, ErrorCode.NO_INPUT_DEVICE, "no default input device"),
        (TWO_USB, 1, ErrorCode.NO_SUCH_DEVICE, "index 1"),
        (TWO_USB, -1, ErrorCode.NO_SUCH_DEVICE, "index -1"),
        (TWO_USB, "webcam", ErrorCode.NO_SUCH_DEVICE, "'webcam'"),
        (TWO_USB, "", ErrorCode.NO_SUCH_DEVICE, "''"),
        (TWO_USB, "usb", ErrorCode.AMBIGUOUS_DEVICE, "'usb' fits several"),
        (TWO_USB, "Built-in", ErrorCode.AMBIGUOUS_DEVICE, "'Built-in' fits several"),
    ],
)
def test_a_device_that_is_not_unmistakable_is_refused_with_the_list_so_no_other_room_is_ever_heard(
    devices: tuple[InputDevice, ...], wanted: int | str | None, code: ErrorCode, message: str
) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        find_device(devices, wanted)
    assert caught.value.code is code
    if devices:
        assert "[2] USB Mic, ALSA: 1 ch, 44100 Hz" in caught.value.message or wanted == "Built-in"
        assert "\n" in caught.value.message


def test_only_inputs_are_listed_and_the_default_is_marked() -> None:
    module = FakeSoundDevice(device("Speakers", channels=0), device("Mic", 2, 44_100.0, host_api=1), default=1)
    assert list_devices(module) == (InputDevice(1, "Mic", "JACK", 2, 44_100, is_default=True),)
    assert format_devices(list_devices(module)) == "[1] Mic, JACK: 2 ch, 44100 Hz (default)"
    assert "plug in a microphone" in format_devices(())


def test_a_failing_device_list_is_an_error_with_a_name() -> None:
    module = FakeSoundDevice()
    module.list_error = FakeError("host error")
    with pytest.raises(SourceError, match="list of audio devices") as caught:
        list_devices(module)
    assert caught.value.code is ErrorCode.DEVICE_FAILED


@pytest.mark.parametrize(
    ("error", "cure"),
    [(OSError("PortAudio library not found"), "apt install libportaudio2.*brew install portaudio"),
     (ModuleNotFoundError("No module named 'sounddevice'"), "pip install sounddevice")],
)  # fmt: skip
async def test_a_missing_audio_library_names_its_cure(
    monkeypatch: pytest.MonkeyPatch, error: Exception, cure: str
) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr(importlib, "import_module", fail)
    for attempt in (load_sounddevice, list_devices):
        with pytest.raises(SourceError, match=cure) as caught:
            attempt()
        assert caught.value.code is ErrorCode.NO_AUDIO_LIBRARY
    with pytest.raises(SourceError, match=cure):
        await MicrophoneSource(clock=VirtualClock()).open()


@pytest.mark.parametrize(
    ("error", "code", "cure"),
    [
        (FakeError("Device unavailable", -9985), ErrorCode.DEVICE_BUSY, "busy: close the program"),
        (FakeError("Invalid device", -9996), ErrorCode.NO_SUCH_DEVICE, "plug it in"),
        (FakeError("Unanticipated host error", -9999), ErrorCode.DEVICE_FAILED, "privacy settings"),
        (FakeError("Invalid sample rate", -9997), ErrorCode.DEVICE_FAILED, "neither its native format nor"),
        (FakeError("no code"), ErrorCode.DEVICE_FAILED, "privacy settings"),
    ],
)
@pytest.mark.parametrize("when", ["open", "start"])
async def test_a_device_that_cannot_be_opened_says_why_and_what_to_do(
    error: FakeError, code: ErrorCode, cure: str, when: str
) -> None:
    module = FakeSoundDevice(device("Desk mic"))
    if when == "open":
        module.refused = lambda _: error
    else:
        module.start_error = error
    source = MicrophoneSource(clock=VirtualClock(), sounddevice=module)
    with pytest.raises(SourceError, match=cure) as caught:
        await source.open()
    await source.aclose()
    assert caught.value.code is code
    assert "Desk mic" in caught.value.message
    assert all(stream.is_closed for stream in module.streams)


async def test_no_device_at_all_is_an_error_with_a_cure() -> None:
    with pytest.raises(SourceError, match="plug in a microphone"):
        await MicrophoneSource(clock=VirtualClock(), sounddevice=FakeSoundDevice(default=-1)).open()


async def test_iterating_an_unopened_microphone_is_a_programming_error() -> None:
    with pytest.raises(RuntimeError, match="open"):
        await anext(aiter(MicrophoneSource(clock=VirtualClock(), sounddevice=FakeSoundDevice())))


async def test_an_open_that_never_returns_is_given_up_and_its_late_stream_closed() -> None:
    module = FakeSoundDevice(device("Bluetooth"))
    module.block_open.clear()
    clock = VirtualClock()
    source = MicrophoneSource(clock=clock, sounddevice=module)
    opening = asyncio.create_task(source.open())
    await asyncio.sleep(0.02)
    clock.move_to_s(10.0)
    with pytest.raises(SourceError, match="did not return in 10 s"):
        await opening
    module.block_open.set()
    for _ in range(1_000):
        if module.streams and module.stream.is_closed:
            break
        await asyncio.sleep(0.002)
    assert module.stream.is_closed, "the microphone would stay on without anybody listening"


# Trouble


async def test_an_unplugged_device_is_said_after_two_seconds_and_heard_again_where_the_clock_stands() -> None:
    module = FakeSoundDevice(device("Built-in"), device("USB Mic"))
    async with listening(module, "usb") as mic:
        mic.clock.move_to_s(0.02)
        module.stream.feed(steady(0.1))
        await mic.settle()
        module.devices = [device("Built-in")]
        await mic.pass_s(1.75)
        assert not mic.notices(N.STALLED)
        await mic.pass_s(0.25)
        await mic.until(lambda: bool(mic.notices(N.REOPEN_FAILED)))
        assert "USB Mic: no audio for 2.0 s (unplugged?)" in mic.notices(N.STALLED)[0].message
        assert mic.position == 320 + 32_000
        assert "waiting for it; next try in 0.5 s" in mic.notices(N.REOPEN_FAILED)[0].message
        await mic.pass_s(0.5)
        await mic.until(lambda: len(mic.notices(N.REOPEN_FAILED)) == 2)
        await mic.pass_s(1.0)
        await mic.until(lambda: len(mic.notices(N.REOPEN_FAILED)) == 3)
        assert len(module.streams) == 1, "another microphone was opened in its stead"
        module.devices = [device("Built-in"), device("HDMI"), device("USB Mic")]
        await mic.pass_s(2.0)
        await mic.until(lambda: len(mic.notices(N.OPENED)) == 2)
        assert "USB Mic (ALSA, index 2)" in mic.notices(N.OPENED)[1].message
        assert module.restarts == 4
        mic.clock.move_to_s(10.0)
        module.stream.feed(steady(0.2))
        await mic.settle()
    assert mic.frames[-1].start_sample == round((10.0 - 0.02) * 16_000)
    assert (mic.frames[-1].samples == np.float32(0.2)).all()
    assert mic.position == 160_000
    assert mic.source.describe["opens"] == 2
    assert [notice.numbers["retry_s"] for notice in mic.notices(N.REOPEN_FAILED)] == [0.5, 1.0, 2.0]


async def test_retries_slow_down_to_one_in_thirty_seconds_and_never_end() -> None:
    module = FakeSoundDevice(device("Mic"))
    async with listening(module) as mic:
        module.stream.feed(steady(0.1))
        await mic.settle()
        module.devices = []
        await mic.pass_s(2.0)
        for tries in range(1, 10):
            await mic.until(lambda: len(mic.notices(N.REOPEN_FAILED)) == tries)  # noqa: B023  # run before the next round
            await mic.pass_s(mic.notices(N.REOPEN_FAILED)[-1].numbers["retry_s"])
        delays_s = [notice.numbers["retry_s"] for notice in mic.notices(N.REOPEN_FAILED)]
        assert delays_s[:9] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
        await mic.until(lambda: len(mic.notices(N.REOPEN_FAILED)) == 10)
        assert mic.position == pytest.approx(mic.clock.now_s() * 16_000, abs=640)


async def test_a_driver_that_says_that_the_stream_ended_is_believed_at_once() -> None:
    module = FakeSoundDevice(device("Mic"))
    async with listening(module) as mic:
        module.stream.feed(steady(0.1))
        await mic.settle()
        module.stream.options["finished_callback"]()
        await mic.until(lambda: len(mic.notices(N.OPENED)) == 2)
        assert "the device stopped" in mic.notices(N.STALLED)[0].message


async def test_a_default_device_that_changes_is_announced_by_both_names() -> None:
    module = FakeSoundDevice(device("Headset"), device("Webcam", channels=2, rate_hz=48_000.0))
    async with listening(module) as mic:
        module.stream.feed(steady(0.1))
        module.default.device[0] = 1
        await mic.settle()
        assert len(module.streams) == 1  # while the old one works, it stays
        await mic.pass_s(2.0)
        await mic.until(lambda: len(mic.notices(N.OPENED)) == 2)
        message = mic.notices(N.OPENED)[1].message
        assert "Webcam" in message
        assert "it was Headset before" in message
        module.stream.feed(np.full((4_800, 2), 0.25, np.float32))
        await mic.until(lambda: bool(mic.frames) and mic.frames[-1].start_sample >= 32_000)
    assert mic.source.describe["native_rate_hz"] == 48_000
    assert mic.source.describe["name"] == "Webcam"


async def test_of_two_devices_with_one_name_the_same_place_is_taken_and_else_none() -> None:
    module = FakeSoundDevice(device("USB Mic"), device("USB Mic"), default=-1)
    async with listening(module, 1) as mic:
        module.stream.options["finished_callback"]()
        await mic.until(lambda: len(mic.notices(N.OPENED)) == 2)
        assert module.stream.options["device"] == 1
        module.devices = [device("USB Mic"), device("HDMI"), device("USB Mic")]
        module.stream.options["finished_callback"]()
        await mic.until(lambda: bool(mic.notices(N.REOPEN_FAILED)))
        assert "twin" in mic.notices(N.REOPEN_FAILED)[0].message


async def test_portaudio_that_does_not_start_again_is_retried_and_not_fatal() -> None:
    module = FakeSoundDevice(device("Mic"))
    async with listening(module) as mic:
        module.restart_error = FakeError("host error")
        module.stream.options["finished_callback"]()
        await mic.until(lambda: bool(mic.notices(N.REOPEN_FAILED)))
        assert "cannot be started again" in mic.notices(N.REOPEN_FAILED)[0].message
        module.restart_error = None
        await mic.pass_s(0.5)
        await mic.until(lambda: len(mic.notices(N.OPENED)) == 2)


async def test_after_a_sleep_nothing_stale_is_replayed_and_the_device_is_opened_again() -> None:
    module = FakeSoundDevice(device("Mic"))
    async with listening(module) as mic:
        mic.clock.move_to_s(0.02)
        module.stream.feed(steady(0.1))
        await mic.settle()
        old = module.stream
        mic.clock._now_s = 5.02  # the clock jumps: no timer had a chance to fire before the burst
        for _ in range(100):
            old.feed(steady(0.9))
        await mic.until(lambda: len(mic.notices(N.OPENED)) == 2)
        assert "the clock jumped by 5.0 s" in mic.notices(N.STALLED)[0].message
        old.feed(steady(0.9))
        assert old.is_closed
        mic.clock.move_to_s(5.04)
        module.stream.feed(steady(0.2))
        await mic.settle()
    assert {round(float(frame.samples[0]), 3) for frame in mic.frames} == {0.1, 0.2}
    assert mic.frames[-1].start_sample == 320 + 80_000
    assert mic.position == 320 + 80_000 + 320


async def test_a_jump_that_even_the_queue_lost_still_moves_the_stream() -> None:
    """The loop stood still for so long after the jump that the block which carried it was dropped."""
    module = FakeSoundDevice(device("Mic"))
    async with listening(module) as mic:
        mic.clock._now_s = 0.02
        module.stream.feed(steady(0.1))
        mic.clock._now_s = 10.02
        for number in range(300):
            mic.clock._now_s += 0.02
            module.stream.feed(steady(number / 300))
        await mic.until(lambda: len(mic.frames) == 250)
    assert mic.position == pytest.approx(mic.clock.now_s() * 16_000, abs=640)


async def test_a_headset_that_takes_four_seconds_to_wake_is_not_called_unplugged() -> None:
    module = FakeSoundDevice(device("Bluetooth"))
    async with listening(module) as mic:
        await mic.pass_s(4.0)
        module.stream.feed(steady(0.1))
        await mic.settle()
        assert not mic.notices(N.STALLED)
        assert mic.frames[0].start_sample == 0
        assert not mic.gaps


async def test_a_device_that_never_delivers_is_said_after_five_seconds() -> None:
    module = FakeSoundDevice(device("Mic"))
    async with listening(module) as mic:
        await mic.pass_s(5.0)
        await mic.until(lambda: len(mic.notices(N.OPENED)) == 2)
        assert "no audio for 5.0 s" in mic.notices(N.STALLED)[0].message
        assert mic.position == 80_000


async def test_five_seconds_of_zeros_are_one_warning_across_a_reopening() -> None:
    module = FakeSoundDevice(device("Mic"))
    async with listening(module) as mic:
        for _ in range(2):
            for _ in range(300):
                module.stream.feed(steady(0.0))
                await asyncio.sleep(0)
            await mic.settle()
            module.stream.options["finished_callback"]()
            await mic.until(lambda: not module.stream.is_closed and len(module.streams) > 1)
        assert len(mic.notices(N.ONLY_ZEROS)) == 1
        assert "permission or muted?" in mic.notices(N.ONLY_ZEROS)[0].message


async def test_samples_far_beyond_full_scale_end_the_stream_with_an_error() -> None:
    module = FakeSoundDevice(device("Mic"))
    source = MicrophoneSource(clock=VirtualClock(), sounddevice=module)
    await source.open()
    module.stream.feed(steady(3_000.0))
    with pytest.raises(SourceError, match="not in"):
        await drain(source)
    await source.aclose()


# Closing


async def test_a_close_that_blocks_does_not_hold_up_the_exit() -> None:
    module = FakeSoundDevice(device("Mic"))
    listener = Listener(module)
    await listener.start()
    module.block_close.clear()
    stopping = asyncio.create_task(listener.stop())
    await asyncio.sleep(0.02)
    assert not stopping.done()
    listener.clock.move_to_s(2.0)
    await asyncio.wait_for(stopping, 1.0)
    assert listener.source.describe["close_blocked"] is True
    module.block_close.set()


async def test_a_close_that_blocks_while_recovering_is_said_and_the_device_tried_again() -> None:
    module = FakeSoundDevice(device("Mic"))
    async with listening(module) as mic:
        module.block_close.clear()
        await mic.pass_s(5.0)
        await mic.until(lambda: bool(mic.notices(N.STALLED)))
        await asyncio.sleep(0.01)
        await mic.pass_s(2.0)
        await mic.until(lambda: len(mic.notices(N.OPENED)) == 2)
        assert "closing did not return" in mic.notices(N.CLOSE_BLOCKED)[0].message
        assert module.restarts == 0, "restarting PortAudio would wait for the close that hangs"


async def test_closing_while_waiting_for_an_unplugged_device_ends_at_once() -> None:
    module = FakeSoundDevice(device("Mic"))
    listener = Listener(module)
    await listener.start()
    module.devices = []
    module.stream.options["finished_callback"]()
    await listener.until(lambda: bool(listener.notices(N.REOPEN_FAILED)))
    await listener.stop()
    await listener.stop()


async def test_closing_while_the_device_is_being_reopened_leaves_no_open_microphone() -> None:
    module = FakeSoundDevice(device("Mic"))
    listener = Listener(module)
    await listener.start()
    module.block_open.clear()
    module.stream.options["finished_callback"]()
    await listener.until(lambda: bool(listener.notices(N.STALLED)))
    await asyncio.sleep(0.02)
    stopping = asyncio.create_task(listener.stop())
    await asyncio.sleep(0.01)
    module.block_open.set()
    await asyncio.wait_for(stopping, 2.0)
    assert len(module.streams) == 2
    assert all(stream.is_closed for stream in module.streams)


async def test_a_cancelled_listener_leaves_no_task_and_no_open_microphone() -> None:
    module = FakeSoundDevice(device("Mic"))
    tasks = asyncio.all_tasks()
    listener = Listener(module)
    await listener.start()
    assert listener._task is not None
    listener._task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listener._task
    await listener.source.aclose()
    await listener.settle()
    assert module.stream.is_closed
    assert asyncio.all_tasks() == tasks


def test_a_callback_after_the_loop_is_gone_does_not_raise_into_the_driver() -> None:
    module = FakeSoundDevice(device("Mic"))

    async def open_only() -> None:
        await MicrophoneSource(clock=VirtualClock(), sounddevice=module).open()

    asyncio.run(open_only())
    module.stream.feed(steady(0.1))
    module.stream.options["finished_callback"]()


@pytest.mark.parametrize("fails", [False, True])
def test_an_open_that_returns_after_the_loop_is_gone_leaves_no_open_microphone(fails: bool) -> None:
    module = FakeSoundDevice(device("Mic"))
    module.block_open.clear()
    if fails:
        module.refused = lambda _: FakeError("Device unavailable", -9985)

    async def give_up() -> None:
        opening = asyncio.create_task(MicrophoneSource(clock=VirtualClock(), sounddevice=module).open())
        await asyncio.sleep(0.01)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(give_up())
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "audio device"]
    module.block_open.set()
    thread.join(5.0)
    assert len(module.streams) == (0 if fails else 1)
    assert all(stream.is_closed for stream in module.streams)


async def test_an_absurd_native_rate_is_passed_over_for_a_common_one() -> None:
    async with listening(FakeSoundDevice(device("Odd", rate_hz=5_644_800.0))) as mic:
        assert mic.source.describe["native_rate_hz"] == 48_000


async def test_a_clock_that_fails_is_not_swallowed() -> None:
    class BrokenClock(VirtualClock):
        async def sleep_until_s(self, at_s: float) -> None:
            if at_s == 5.0:
                raise RuntimeError("the clock broke")
            await super().sleep_until_s(at_s)

    source = MicrophoneSource(clock=BrokenClock(), sounddevice=FakeSoundDevice(device("Mic")))
    await source.open()
    with pytest.raises(RuntimeError, match="the clock broke"):
        await drain(source)
    await source.aclose()


def test_a_program_whose_device_never_closes_still_ends() -> None:
    """Neither the thread that hangs nor the audio library's own exit handler may keep the interpreter."""
    program = (
        "import asyncio, atexit\n"
        "from agent import source_microphone\n"
        "from agent.clock import WallClock\n"
        "from tests.test_agent_source_microphone import FakeSoundDevice, device\n"
        "source_microphone.CLOSE_LIMIT_S = 0.2\n"
        "module = FakeSoundDevice(device('Mic'))\n"
        "atexit.register(module._exit_handler)\n"
        "async def main():\n"
        "    source = source_microphone.MicrophoneSource(clock=WallClock(), sounddevice=module)\n"
        "    await source.open()\n"
        "    module.block_close.clear()\n"
        "    await source.aclose()\n"
        "    print('closed')\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=30, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout == "closed\n"
