"""Raw PCM from standard input as a source: ``arecord -t raw -f S16_LE -r 16000 -c 1 | voicegate listen --stdin``.

A thread of its own reads the descriptor: that works for pipes, files and terminals on every system, and a writer that
pauses never holds up the loop. When the loop falls behind, the thread stops reading and the pipe holds the writer
back; nothing is dropped here.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator
from enum import StrEnum

import numpy as np

from agent.resample import MAX_RATE_HZ, MIN_RATE_HZ, NARROW_BAND_RATE_HZ
from agent.source_channels import Block, mixer_for
from agent.source_kinds import HEAD_BYTES, has_audio_header, kind_of
from agent.source_pipeline import SourcePipeline
from agent.sources import Description, ErrorCode, NoticeCode, SourceError, SourceItem, SourceNotice

MAX_CHANNELS = 64
_READ_BYTES = 1 << 16
_MAX_CHUNKS = 4
_MAY_BE_SAMPLES = ("an MP3 or AAC", "a gzip", "JSON", "plain text")
"""Kinds with so short a mark that real samples can begin with it."""


class SampleFormat(StrEnum):
    """How a sample is written in the pipe."""

    S16LE = "s16le"
    """Signed 16-bit, little-endian."""
    F32LE = "f32le"
    """32-bit float in [-1, 1], little-endian."""

    @property
    def dtype(self) -> np.dtype[np.int16] | np.dtype[np.float32]:
        """The type to read bytes as."""
        return np.dtype("<i2") if self is SampleFormat.S16LE else np.dtype("<f4")


class _Reader:
    """Reads a descriptor on its own thread into a bounded queue.

    The thread does not keep the program alive: a read from a silent pipe may never return. It reads the descriptor
    itself, not ``sys.stdin``, whose lock would be held through such a read and stop the interpreter from ending.
    """

    def __init__(self, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
        self._descriptor = descriptor
        self._loop = loop
        self._condition = threading.Condition()
        self._chunks: deque[bytes] = deque()
        self._stopped = False
        self._error: OSError | None = None
        self._at_end = False
        self.ready = asyncio.Event()
        threading.Thread(target=self._run, name="standard input", daemon=True).start()

    def take(self) -> bytes | None:
        """What has come, joined, which may be nothing; None at the end.

        Raises:
            OSError: when reading failed.
        """
        with self._condition:
            self.ready.clear()
            data = b"".join(self._chunks)
            self._chunks.clear()
            self._condition.notify()
            if data or not self._at_end:
                return data
            if self._error is not None:
                raise self._error
            return None

    def stop(self) -> None:
        """Let the thread end, at the latest with its next chunk."""
        with self._condition:
            self._stopped = True
            self._at_end = True
            self._chunks.clear()
            self._condition.notify()
        self.ready.set()

    def _run(self) -> None:
        try:
            while data := os.read(self._descriptor, _READ_BYTES):
                if not self._put(data):
                    return
        except OSError as error:
            self._error = error
        with self._condition:
            self._at_end = True
        self._notify()

    def _put(self, data: bytes) -> bool:
        with self._condition:
            self._condition.wait_for(lambda: self._stopped or len(self._chunks) < _MAX_CHUNKS)
            if self._stopped:
                return False
            self._chunks.append(data)
        self._notify()
        return True

    def _notify(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self.ready.set)
        except RuntimeError:
            return  # the loop is closed: nobody listens any more


class StdinSource:
    """Plays raw PCM from a descriptor as it comes.

    Args:
        sample_format: how samples are written.
        rate_hz: samples a second and channel, 4 to 768 kHz.
        channels: interleaved channels, 1 to 64.
        channel: listen to this channel only, counted from 0; None applies the channel rule.
        descriptor: what to read; standard input.

    Raises:
        SourceError: when an option is out of range.
    """

    def __init__(
        self,
        sample_format: SampleFormat | str = SampleFormat.S16LE,
        rate_hz: int = 16_000,
        channels: int = 1,
        *,
        channel: int | None = None,
        descriptor: int = 0,
    ) -> None:
        if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
            raise SourceError(ErrorCode.BAD_OPTION, f"rate is {rate_hz} Hz; it must be {MIN_RATE_HZ} to {MAX_RATE_HZ}")
        if not 1 <= channels <= MAX_CHANNELS:
            raise SourceError(ErrorCode.BAD_OPTION, f"channels is {channels}; it must be 1 to {MAX_CHANNELS}")
        if channel is not None and not 0 <= channel < channels:
            message = f"no channel {channel}; the stream has {channels}, counted from 0"
            raise SourceError(ErrorCode.NO_SUCH_CHANNEL, message)
        try:
            self._dtype = SampleFormat(sample_format).dtype
        except ValueError as error:
            message = f"sample format is {sample_format!r}; it must be one of {', '.join(SampleFormat)}"
            raise SourceError(ErrorCode.BAD_OPTION, message) from error
        self._channels = channels
        self._descriptor = descriptor
        self._reader: _Reader | None = None
        self._mixer = mixer_for(channels, rate_hz, channel)
        self._pipeline = SourcePipeline(rate_hz, self._mixer, is_live=True)
        self._describe: Description = {
            "kind": "stdin",
            "name": "standard input",
            "sample_format": str(sample_format),
            "native_rate_hz": rate_hz,
            "channels": channels,
            "channel_rule": self._mixer.choice.rule,
            "narrow_band": rate_hz <= NARROW_BAND_RATE_HZ,
        }

    @property
    def describe(self) -> Description:
        """The stated format and how its channels are mixed."""
        return self._describe

    async def open(self) -> None:
        """Start reading.

        Raises:
            SourceError: when the descriptor is a terminal, where nobody types PCM, or is closed.
        """
        try:
            os.fstat(self._descriptor)
        except OSError as error:
            raise SourceError(ErrorCode.UNREADABLE, f"standard input is closed ({error.strerror})") from error
        if os.isatty(self._descriptor):
            message = (
                "standard input is a terminal; pipe raw PCM into it: "
                "arecord -t raw -f S16_LE -r 16000 -c 1 | voicegate listen --stdin"
            )
            raise SourceError(ErrorCode.IS_TERMINAL, message)
        self._reader = _Reader(self._descriptor, asyncio.get_running_loop())

    async def __aiter__(self) -> AsyncIterator[SourceItem]:
        """Frames and notices until the writer closes the pipe."""
        if self._reader is None:
            raise RuntimeError("open() first")
        if self._describe["narrow_band"]:
            rate_hz = int(self._describe["native_rate_hz"] or 0)
            message = f"narrow-band: {rate_hz} Hz holds no sound above {rate_hz // 2} Hz; scores are less certain"
            yield SourceNotice(NoticeCode.NARROW_BAND, message, 0, {"native_rate_hz": rate_hz})
        waiting = b""
        total_bytes = 0
        frame_bytes = self._dtype.itemsize * self._channels
        while (data := self._take(self._reader)) is not None:
            if not data:
                await self._reader.ready.wait()
                continue
            total_bytes += len(data)
            waiting += data
            if total_bytes == len(waiting):
                _require_raw(waiting)
            whole = len(waiting) - len(waiting) % frame_bytes
            for item in self._pipeline.push(self._block(waiting[:whole])):
                yield item
            self._describe["channel_rule"] = self._pipeline.channel_rule
            waiting = waiting[whole:]
        for notice in self._last_words(total_bytes, len(waiting), frame_bytes):
            yield notice
        for item in self._pipeline.finish():
            yield item

    async def aclose(self) -> None:
        """Stop reading; a running iteration ends."""
        if self._reader is not None:
            self._reader.stop()

    def _take(self, reader: _Reader) -> bytes | None:
        try:
            return reader.take()
        except OSError as error:
            raise SourceError(ErrorCode.UNREADABLE, f"standard input cannot be read ({error.strerror})") from error

    def _block(self, data: bytes) -> Block:
        values = np.frombuffer(data, self._dtype).astype(np.float32)
        if self._dtype.kind == "i":
            values /= np.float32(32768.0)
        return values.reshape(-1, self._channels)

    def _last_words(self, total_bytes: int, rest_bytes: int, frame_bytes: int) -> list[SourceNotice]:
        position = self._pipeline.position
        notices: list[SourceNotice] = []
        if total_bytes < frame_bytes:
            message = f"no audio: standard input held {total_bytes} bytes, no whole sample; nothing was decided"
            notices.append(SourceNotice(NoticeCode.NO_AUDIO, message, position, {"bytes": total_bytes}))
        if rest_bytes:
            message = (
                f"truncated: the last {rest_bytes} bytes are no whole sample of {self._channels} channels "
                f"({frame_bytes} bytes); left out. Are format and channels as stated?"
            )
            notices.append(SourceNotice(NoticeCode.TRUNCATED, message, position, {"bytes": rest_bytes}))
        return notices


def _require_raw(head: bytes) -> None:
    """A file's header in the pipe would be played as a click, and the wrong rate believed."""
    kind = has_audio_header(head)
    if kind is not None:
        message = (
            f"standard input begins with a file header ({kind}), not raw PCM: replay the file instead, or let the "
            "recorder write raw samples (arecord -t raw, ffmpeg -f s16le)"
        )
        raise SourceError(ErrorCode.WRONG_KIND, message)
    # Zeros are silence here, not a failed copy: a recorder may well start with them.
    other = kind_of(head[:HEAD_BYTES]) if len(head) >= 16 and any(head[:HEAD_BYTES]) else None
    if other is not None and not other.startswith(_MAY_BE_SAMPLES):
        raise SourceError(ErrorCode.WRONG_KIND, f"standard input is no raw PCM: {other}")
