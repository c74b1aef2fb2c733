"""Plays sounds on an output device, through PortAudio (``sounddevice``, imported only when one is opened).

Every call into the driver runs on a thread that may be abandoned, and a sound is stopped by a flag that the driver's
own callback reads: neither a hung driver nor a device that was unplugged ever holds up the loop.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from agent.clock import within_s
from agent.detached import run_detached
from agent.playback import Sound
from agent.source_microphone import load_sounddevice
from agent.sources import SourceError

OPEN_LIMIT_S = 3.0
CLOSE_LIMIT_S = 0.4
LATE_LIMIT_S = 2.0
"""How long after its due end a sound may still be playing before the device counts as stopped."""


class PlayerError(Exception):
    """A sound cannot be played. The message says why, and the cure where there is one."""


class Playing(Protocol):
    """A sound that is being played."""

    def stop(self) -> None:
        """Stop at once; what the driver has already taken may still sound. Returns at once, may be called twice."""
        ...

    async def wait(self) -> None:
        """Wait until it has ended or was stopped.

        Raises:
            PlayerError: when the device went away.
        """
        ...


class Player(Protocol):
    """Where sounds go."""

    async def play(self, sound: Sound, on_start: Callable[[], None]) -> Playing:
        """Begin to play.

        Args:
            sound: the sound.
            on_start: called once, on any thread, when the device takes the first sample.

        Raises:
            PlayerError: when no device can be opened.
        """
        ...

    async def aclose(self) -> None:
        """Let go of the device, within a second."""
        ...


class SounddevicePlayer:
    """Plays on an output device at its native rate, opening it for each sound: nothing is held while nothing is said.

    Args:
        device: index, part of the name, or None for the system's default.
        sounddevice: the module to use; None imports it.
    """

    def __init__(self, device: int | str | None = None, *, sounddevice: Any = None) -> None:
        self._device = device
        self._module = sounddevice
        self._playing: _DevicePlaying | None = None

    async def play(self, sound: Sound, on_start: Callable[[], None]) -> Playing:
        """Open the device and begin.

        Raises:
            PlayerError: when PortAudio is missing, there is no such output device, or the driver refuses.
        """
        loop = asyncio.get_running_loop()
        playing = _DevicePlaying(loop, on_start)
        self._playing = playing
        try:
            await run_detached(
                lambda: self._open(playing, sound),
                OPEN_LIMIT_S,
                name="voicegate-player-open",
                too_late=lambda _: playing.close(),
            )
        except TimeoutError as error:
            raise PlayerError(f"opening the output device did not return in {OPEN_LIMIT_S:.0f} s") from error
        return playing

    async def aclose(self) -> None:
        """Stop what is playing and close the device; one that does not close in time is abandoned."""
        playing, self._playing = self._playing, None
        if playing is not None:
            playing.stop()
            await playing.close_in_time()

    def _open(self, playing: _DevicePlaying, sound: Sound) -> None:
        try:
            if self._module is None:
                self._module = load_sounddevice()
        except SourceError as error:
            raise PlayerError(error.message) from error
        module = self._module
        try:
            info = module.query_devices(self._device, "output")
            rate_hz = round(info["default_samplerate"])
            playing.load(sound.at_rate(rate_hz), rate_hz, module)
            playing.stream = module.OutputStream(
                samplerate=rate_hz,
                device=self._device,
                # Some drivers refuse mono; both channels get the same.
                channels=max(1, min(2, int(info["max_output_channels"]))),
                dtype="float32",
                callback=playing.fill,
                finished_callback=playing.ended,
            )
            playing.stream.start()
        except (module.PortAudioError, ValueError) as error:
            playing.close()
            wanted = "the default output device" if self._device is None else f"output device {self._device!r}"
            raise PlayerError(f"{wanted} cannot be opened: {error}") from error


class _DevicePlaying:
    """One sound on one stream. ``fill`` and ``ended`` run on the driver's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_start: Callable[[], None]) -> None:
        self.stream: Any = None
        self._loop = loop
        self._on_start = on_start
        self._samples = np.zeros(0, np.float32)
        self._duration_s = 0.0
        self._module: Any = None
        self._next = 0
        self._stopped = False
        self._over = asyncio.Event()

    def load(self, samples: np.ndarray, rate_hz: int, module: Any) -> None:
        """Take the sound, at the device's rate, before the stream is made."""
        self._samples = samples
        self._duration_s = samples.size / rate_hz
        self._module = module

    def fill(self, out: np.ndarray, frames: int, time: object, status: object) -> None:
        """Hand the driver its next frames, float32 ``(frames, channels)``."""
        if self._stopped:
            out[:] = 0.0
            raise self._module.CallbackAbort
        if not self._next:
            self._on_start()
        piece = self._samples[self._next : self._next + frames]
        out[: piece.size] = piece[:, None]
        out[piece.size :] = 0.0
        self._next += frames
        if self._next >= self._samples.size:
            raise self._module.CallbackStop

    def ended(self) -> None:
        """The stream has played out, was stopped, or broke off."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._over.set)

    def stop(self) -> None:
        self._stopped = True

    async def wait(self) -> None:
        try:
            await within_s(self._over.wait(), self._duration_s + LATE_LIMIT_S)
        except TimeoutError as error:
            raise PlayerError("the output device stopped taking samples (unplugged?)") from error
        finally:
            await self.close_in_time()
        if not self._stopped and self._next < self._samples.size:
            raise PlayerError("the output device broke off (unplugged?)")

    async def close_in_time(self) -> None:
        """Close the stream; one that does not close in time is abandoned with its thread."""
        try:
            await run_detached(self.close, CLOSE_LIMIT_S, name="voicegate-player-close")
        except TimeoutError:
            # At exit sounddevice terminates PortAudio: that would block as well, and the program never end.
            if exit_handler := getattr(self._module, "_exit_handler", None):
                atexit.unregister(exit_handler)

    def close(self) -> None:
        """Close the stream; blocks for as long as the driver does."""
        stream, self.stream = self.stream, None
        if stream is not None:
            with contextlib.suppress(Exception):  # it is being given up in any case
                stream.abort()
                stream.close()
