"""Where audio comes from: one protocol for microphone, file, pipe and script, and the items that a source yields.

A source is an async iterator over frames, gaps and notices. It never reads a clock; a source that has to wait or to
tell elapsed time is given one. Pacing a recording is the loop's business: a file yields as fast as it is asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

import numpy as np

from agent.clock import Clock
from agent.frames import Frame, Reframer, Samples, SourceGap
from gate.span import SAMPLE_RATE_HZ

__all__ = [
    "Clock",
    "Description",
    "ErrorCode",
    "Frame",
    "NoticeCode",
    "Script",
    "ScriptEntry",
    "ScriptedSource",
    "Silence",
    "Source",
    "SourceError",
    "SourceGap",
    "SourceItem",
    "SourceNotice",
]

Description = dict[str, str | int | float | bool | None]
"""What a source says of itself for the log: flat, JSON-ready, without any audio."""


class NoticeCode(StrEnum):
    """What a source can have to say."""

    NO_AUDIO = "no_audio"
    """The source held no sample. Nothing was decided: this is not a correct Mute."""
    TOO_SHORT = "too_short"
    """Less than one frame of audio."""
    TRUNCATED = "truncated"
    """The source ends before it should."""
    HEADER_LIES = "header_lies"
    """The file's header contradicts what the file holds; the message says which of the two was believed."""
    TRAILING_BYTES = "trailing_bytes"
    """Bytes behind the audio that are not part of it; not played."""
    NARROW_BAND = "narrow_band"
    """8 kHz or less: the upper half of the speech band is missing."""
    DIGITAL_SILENCE = "digital_silence"
    """Every sample of the recording is exactly zero."""
    ONLY_ZEROS = "only_zeros"
    """A live source has delivered nothing but exact zeros for seconds: no permission, or muted."""
    NOT_FINITE = "not_finite"
    """Samples that are not numbers; counted as lost."""
    OVER_RANGE = "over_range"
    """Samples beyond full scale; clipped."""
    CHANNELS = "channels"
    """How several channels become one, when that is not their plain mean or when it changes."""
    OPENED = "opened"
    """A device was opened, by name; also after each reopening."""
    STALLED = "stalled"
    """No audio for two seconds, or the device is gone. The turn in progress cannot be completed."""
    REOPEN_FAILED = "reopen_failed"
    DEVICE_OVERFLOW = "device_overflow"
    """The driver discarded audio because nobody fetched it in time."""
    DEVICE_UNDERFLOW = "device_underflow"
    """The driver put zeros where it had no audio; counted as lost."""
    QUEUE_FULL = "queue_full"
    """The loop stood still; the oldest audio in the queue was dropped."""
    CLOSE_BLOCKED = "close_blocked"
    """Closing the device did not return; it was abandoned."""


class ErrorCode(StrEnum):
    """Why a source cannot be used."""

    MISSING = "missing"
    NOT_A_FILE = "not_a_file"
    NO_PERMISSION = "no_permission"
    EMPTY = "empty"
    WRONG_KIND = "wrong_kind"
    """Something else under an audio file's name; the message names the real kind."""
    TRUNCATED_HEADER = "truncated_header"
    NO_FMT_CHUNK = "no_fmt_chunk"
    NO_DATA_CHUNK = "no_data_chunk"
    TWO_DATA_CHUNKS = "two_data_chunks"
    BROKEN_CHUNKS = "broken_chunks"
    BAD_RATE = "bad_rate"
    BAD_CHANNELS = "bad_channels"
    UNREADABLE = "unreadable"
    NOT_FINITE = "not_finite"
    OVER_RANGE = "over_range"
    NO_SUCH_CHANNEL = "no_such_channel"
    BAD_OPTION = "bad_option"
    IS_TERMINAL = "is_terminal"
    NO_AUDIO_LIBRARY = "no_audio_library"
    NO_INPUT_DEVICE = "no_input_device"
    NO_SUCH_DEVICE = "no_such_device"
    AMBIGUOUS_DEVICE = "ambiguous_device"
    DEVICE_BUSY = "device_busy"
    DEVICE_FAILED = "device_failed"


class SourceError(Exception):
    """A source cannot be used.

    Attributes:
        code: what is wrong, closed set.
        message: what is wrong and the cure, for a person. A list of devices may follow on further lines.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class SourceNotice:
    """Something that the person at the console, or the reader of a bench report, has to know.

    Attributes:
        code: what, closed set.
        message: one line with the cure.
        at_sample: where in the stream it was noticed.
        numbers: the figures in the message, for programs.
    """

    code: NoticeCode
    message: str
    at_sample: int = 0
    numbers: Mapping[str, int | float] = field(default_factory=dict)


SourceItem = Frame | SourceGap | SourceNotice


class Source(Protocol):
    """Where audio comes from. Opened once, iterated once, closed always.

    Frames and gaps follow each other without a hole from sample 0: each starts where the one before it ended.
    """

    @property
    def describe(self) -> Description:
        """What is heard and how (file or device, native rate, channels, channel rule); complete after ``open``."""
        ...

    async def open(self) -> None:
        """Make ready.

        Raises:
            SourceError: when the source cannot be used; the message says why and what to do.
        """
        ...

    def __aiter__(self) -> AsyncIterator[SourceItem]:
        """The items in stream order; iterating may raise ``SourceError``."""
        ...

    async def aclose(self) -> None:
        """Let go of everything; may be called at any time and more than once. A running iteration ends."""
        ...


@dataclass(frozen=True, slots=True)
class Silence:
    """Silence in a script: exact zeros."""

    seconds: float


ScriptEntry = Samples | Silence | SourceNotice | SourceGap | Exception
Script = Sequence[ScriptEntry]


class ScriptedSource:
    """A source that plays a script, for tests and demonstrations; it yields as fast as it is asked.

    Args:
        script: what to play, in order: float32 samples at 16 kHz; ``Silence``; a notice or a gap, whose place is set to
            where the stream stands (a gap's lengths are taken together as lost); an exception, which is raised.
        name: shown in ``describe``.
    """

    def __init__(self, script: Script, name: str = "script") -> None:
        self._script = script
        self._closed = False
        self._describe: Description = {
            "kind": "script",
            "name": name,
            "native_rate_hz": SAMPLE_RATE_HZ,
            "channels": 1,
            "channel_rule": "mono, as it is",
            "narrow_band": False,
        }

    @property
    def describe(self) -> Description:
        """What is played."""
        return self._describe

    async def open(self) -> None:
        """Nothing to open."""

    async def __aiter__(self) -> AsyncIterator[SourceItem]:
        """The script's items, then the padded rest."""
        reframer = Reframer()
        for entry in self._script:
            for item in self._play(entry, reframer):
                if self._closed:
                    return
                yield item
        for frame in reframer.finish():
            yield frame

    def _play(self, entry: ScriptEntry, reframer: Reframer) -> list[SourceItem]:
        if isinstance(entry, Exception):
            raise entry
        if isinstance(entry, Silence):
            return [*reframer.push(np.zeros(round(entry.seconds * SAMPLE_RATE_HZ), np.float32))]
        if isinstance(entry, SourceNotice):
            return [replace(entry, at_sample=reframer.position)]
        if isinstance(entry, SourceGap):
            return [*reframer.skip(entry.lost_samples + entry.zeroed_samples)]
        return [*reframer.push(entry)]

    async def aclose(self) -> None:
        """End the iteration at its next item."""
        self._closed = True
