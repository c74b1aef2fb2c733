"""Playing on a device through PortAudio: with a module that stands in for ``sounddevice``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from agent import player as player_module
from agent.clock import WallClock
from agent.detached import run_detached
from agent.playback import Sound
from agent.player import PlayerError, SounddevicePlayer
from agent.sources import ErrorCode, SourceError

RATE = 48_000
SOUND = Sound(np.linspace(0.1, 0.9, RATE // 10, dtype=np.float32), RATE)


class PortAudioError(Exception):
    """As sounddevice's own."""


class CallbackStop(Exception):  # noqa: N818  # sounddevice's name
    """As sounddevice's own."""


class CallbackAbort(Exception):  # noqa: N818  # sounddevice's name
    """As sounddevice's own."""


@dataclass
class FakeSounddevice:
    """Runs callbacks when told, as the driver's thread would."""

    channels: int = 2
    default_rate_hz: float = float(RATE)
    query_error: Exception | None = None
    open_error: Exception | None = None
    opening: threading.Event | None = None
    closing: threading.Event | None = None
    streams: list[Any] = field(default_factory=list)
    PortAudioError: type[Exception] = PortAudioError
    CallbackStop: type[Exception] = CallbackStop
    CallbackAbort: type[Exception] = CallbackAbort

    def query_devices(self, device: object, kind: str) -> dict[str, object]:
        assert kind == "output"
        if self.query_error is not None:
            raise self.query_error
        return {"default_samplerate": self.default_rate_hz, "max_output_channels": self.channels}

    def OutputStream(self, **options: Any) -> Any:  # noqa: N802  # sounddevice's name
        if self.opening is not None:
            self.opening.wait(30)
        if self.open_error is not None:
            raise self.open_error
        stream = FakeStream(self, **options)
        self.streams.append(stream)
        return stream


class FakeStream:
    def __init__(self, module: FakeSounddevice, **options: Any) -> None:
        self.module = module
        self.options = options
        self.heard: list[np.ndarray] = []
        self.closed = False
        self.ended_by = ""

    def start(self) -> None:
        """The driver begins when the test says so."""

    def block(self, frames: int = 960) -> bool:
        """One callback; False when it ended the stream."""
        out = np.full((frames, self.options["channels"]), 9.0, np.float32)
        try:
            self.options["callback"](out, frames, None, None)
        except (CallbackStop, CallbackAbort) as end:
            self.ended_by = type(end).__name__
        if self.ended_by != "CallbackAbort":
            self.heard.append(out)
        if self.ended_by:
            self.options["finished_callback"]()
        return not self.ended_by

    def run(self) -> None:
        while self.block():
            pass

    def unplug(self) -> None:
        self.options["finished_callback"]()

    def abort(self) -> None:
        """Nothing is buffered here."""

    def close(self) -> None:
        if self.module.closing is not None:
            self.module.closing.wait(30)
        self.closed = True


async def begin(module: FakeSounddevice, on_start: Callable[[], None] = lambda: None) -> tuple[Any, FakeStream]:
    player = SounddevicePlayer(sounddevice=module)
    playing = await player.play(SOUND, on_start)
    return playing, module.streams[-1]


@pytest.mark.parametrize(("channels", "used"), [(1, 1), (2, 2), (8, 2)])
async def test_every_sample_reaches_every_channel_once_and_the_rest_is_silence(channels: int, used: int):
    starts: list[int] = []
    module = FakeSounddevice(channels=channels)
    playing, stream = await begin(module, lambda: starts.append(1))
    assert starts == []  # not before the device takes a sample
    stream.run()
    await playing.wait()
    heard = np.concatenate(stream.heard)
    assert heard.shape[1] == used
    for channel in heard.T:
        assert np.array_equal(channel[: SOUND.samples.size], SOUND.samples)
        assert not channel[SOUND.samples.size :].any()
    assert starts == [1]
    assert stream.closed


async def test_a_sound_is_resampled_to_the_devices_own_rate():
    playing, stream = await begin(FakeSounddevice(default_rate_hz=16_000.0))
    assert stream.options["samplerate"] == 16_000
    stream.run()
    await playing.wait()
    assert abs(np.concatenate(stream.heard).shape[0] - SOUND.samples.size // 3) < 960 + 2


async def test_stop_drops_what_is_buffered_at_the_drivers_next_call():
    playing, stream = await begin(FakeSounddevice())
    stream.block()
    playing.stop()
    playing.stop()
    stream.block()
    await playing.wait()
    assert stream.ended_by == "CallbackAbort"
    assert stream.closed


async def test_an_unplugged_device_is_an_error_and_not_a_sound_that_was_heard():
    playing, stream = await begin(FakeSounddevice())
    stream.block()
    stream.unplug()
    with pytest.raises(PlayerError, match="broke off"):
        await playing.wait()


async def test_a_device_that_takes_no_samples_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(player_module, "LATE_LIMIT_S", 0.02)
    playing, stream = await begin(FakeSounddevice())
    with pytest.raises(PlayerError, match="stopped taking samples"):
        await playing.wait()
    assert stream.closed


@pytest.mark.parametrize(
    "module",
    [
        FakeSounddevice(query_error=ValueError("no output device matching 'x'")),
        FakeSounddevice(query_error=PortAudioError("Error querying device -1")),
        FakeSounddevice(open_error=PortAudioError("Device unavailable")),
    ],
)
async def test_a_device_that_cannot_be_opened_is_named_in_one_line(module: FakeSounddevice):
    with pytest.raises(PlayerError, match=r"the default output device cannot be opened: .+") as caught:
        await SounddevicePlayer(sounddevice=module).play(SOUND, lambda: None)
    assert "\n" not in str(caught.value)


async def test_a_missing_library_is_an_error_with_its_cure(monkeypatch: pytest.MonkeyPatch):
    def missing() -> object:
        raise SourceError(ErrorCode.NO_AUDIO_LIBRARY, "the PortAudio library is missing: apt install it")

    monkeypatch.setattr(player_module, "load_sounddevice", missing)
    with pytest.raises(PlayerError, match="PortAudio library is missing"):
        await SounddevicePlayer().play(SOUND, lambda: None)


async def test_a_driver_that_hangs_while_opening_is_given_up_and_closed_when_it_comes_back(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(player_module, "OPEN_LIMIT_S", 0.02)
    module = FakeSounddevice(opening=threading.Event())
    with pytest.raises(PlayerError, match="did not return"):
        await SounddevicePlayer(sounddevice=module).play(SOUND, lambda: None)
    assert module.opening is not None
    module.opening.set()
    for _ in range(200):
        if module.streams and module.streams[0].closed:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the late stream stays open")


async def test_a_driver_that_hangs_while_closing_does_not_hold_up_the_end():
    module = FakeSounddevice(closing=threading.Event())
    player = SounddevicePlayer(sounddevice=module)
    await player.play(SOUND, lambda: None)
    clock = WallClock()
    await player.aclose()
    assert clock.now_s() < 1.0
    await player.aclose()
    assert module.closing is not None
    module.closing.set()


async def test_a_detached_call_hands_over_its_result_its_error_or_its_lateness():
    assert await run_detached(lambda: 7, 1.0, name="t") == 7
    with pytest.raises(KeyError, match="k"):
        await run_detached(lambda: {}["k"], 1.0, name="t")
    release, late = threading.Event(), []
    with pytest.raises(TimeoutError):
        await run_detached(lambda: release.wait(30), 0.02, name="t", too_late=late.append)
    release.set()
    for _ in range(200):
        if late:
            break
        await asyncio.sleep(0.005)
    assert late == [True]
