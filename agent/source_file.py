"""A recording as a source: whatever libsndfile reads, streamed, never loaded whole.

The file is read twice. The first pass measures it (channel levels, peak, samples that are not numbers), so that the
channel rule is applied to the whole recording and a file that must be refused is refused before its first frame. The
second pass plays it.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from agent.resample import MAX_RATE_HZ, MIN_RATE_HZ, NARROW_BAND_RATE_HZ
from agent.source_channels import Block, ChannelChoice, ChannelStatistics, FixedMixer, by_hand, choose
from agent.source_kinds import HEAD_BYTES, kind_of
from agent.source_pipeline import MAX_PEAK, SourcePipeline, over_range_message
from agent.source_wav_header import RepairedWav, WavHeader, read_wav_header
from agent.sources import Description, ErrorCode, NoticeCode, SourceError, SourceItem, SourceNotice

_BLOCK_VALUES = 1 << 18
"""Values (samples times channels) read at once: 1 MiB of float32."""


@dataclass(slots=True)
class _Scan:
    """What the first pass found."""

    statistics: ChannelStatistics
    samples: int = 0
    peak: float = 0.0
    not_finite: int = 0
    first_not_finite: int | None = None
    failure: str = ""

    def add(self, block: Block) -> None:
        """Take in the next block."""
        if np.isfinite(block).all():
            self.peak = max(self.peak, float(block.max()), -float(block.min()))
            self.statistics.add(block)
        else:
            finite = np.isfinite(block).all(axis=1)
            if self.first_not_finite is None:
                self.first_not_finite = self.samples + int(np.argmin(finite))
            self.not_finite += int(np.count_nonzero(~finite))
        self.samples += block.shape[0]


class FileSource:
    """Plays a recording, as fast as it is asked.

    Args:
        path: a WAV (any width, float, mu-law, EXTENSIBLE), FLAC, Ogg, MP3, AIFF or other file that libsndfile reads.
        channel: listen to this channel only, counted from 0; None applies the channel rule.
    """

    def __init__(self, path: str | os.PathLike[str], *, channel: int | None = None) -> None:
        self._path = Path(path)
        self._channel = channel
        self._describe: Description = {"kind": "file", "name": self._path.name, "path": str(self._path)}
        self._notices: list[SourceNotice] = []
        self._file: Any = None
        self._raw: RepairedWav | None = None
        self._samples = 0
        self._played = 0
        self._pipeline: SourcePipeline | None = None
        self._closing = threading.Event()
        self._reading = threading.Lock()  # a cancelled await leaves its read running; closing under it would crash

    @property
    def describe(self) -> Description:
        """The file, its format and how its channels are mixed."""
        return self._describe

    async def open(self) -> None:
        """Open and measure the file.

        Raises:
            SourceError: when it is missing, no readable audio, or audio that must not be trusted (samples that are not
                numbers, integers stored as floats).
        """
        try:
            await asyncio.to_thread(self._open)
        except BaseException:
            await self.aclose()
            raise

    async def __aiter__(self) -> AsyncIterator[SourceItem]:
        """Notices about the file, its frames, the padded rest."""
        if self._pipeline is None:
            raise RuntimeError("open() first")
        for notice in self._notices:
            yield notice
        while (block := await asyncio.to_thread(self._read)) is not None:
            for item in self._pipeline.push(block):
                yield item
        if self._closing.is_set():
            return
        for item in self._pipeline.finish():
            yield item

    async def aclose(self) -> None:
        """Close the file; a running iteration ends."""
        self._closing.set()
        await asyncio.to_thread(self._close)

    def _open(self) -> None:
        self._require_regular_file()
        try:
            header = read_wav_header(self._path)
        except PermissionError as error:
            message = f"{self._path}: no permission to read it; check its mode and owner"
            raise SourceError(ErrorCode.NO_PERMISSION, message) from error
        except OSError as error:
            raise SourceError(ErrorCode.UNREADABLE, f"{self._path}: cannot be read ({error.strerror})") from error
        with self._reading:
            self._file = self._open_library_file(header)
            self._require_sane_header()
            scan = self._scan()
            self._file.seek(0)
        self._require_sane_samples(scan)
        self._samples = scan.samples
        choice = self._choose(scan)
        self._describe_file(choice)
        self._note(header, scan, choice)
        self._pipeline = SourcePipeline(self._file.samplerate, FixedMixer(choice), is_live=False)

    def _require_regular_file(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError as error:
            raise SourceError(ErrorCode.MISSING, f"{self._path}: no such file") from error
        except OSError as error:
            raise SourceError(ErrorCode.UNREADABLE, f"{self._path}: {error.strerror or error}") from error
        if stat.S_ISDIR(status.st_mode):
            raise SourceError(ErrorCode.NOT_A_FILE, f"{self._path}: a folder; name the recordings in it")
        if not stat.S_ISREG(status.st_mode):
            message = f"{self._path}: not a regular file (it is read twice); pipe raw PCM to standard input instead"
            raise SourceError(ErrorCode.NOT_A_FILE, message)
        if not status.st_size:
            raise SourceError(ErrorCode.EMPTY, f"{self._path}: empty file (0 bytes): record or fetch it again")

    def _open_library_file(self, header: WavHeader | None) -> Any:
        if header is not None and len(header.data) > 1:
            message = (
                f"{self._path}: {len(header.data)} data chunks; which of them is meant is not defined. "
                "Join or split them: ffmpeg -i FILE -c:a pcm_s16le out.wav"
            )
            raise SourceError(ErrorCode.TWO_DATA_CHUNKS, message)
        try:
            if header is not None and header.hidden_bytes:
                self._raw = RepairedWav(self._path, header)
                return soundfile.SoundFile(self._raw)
            return soundfile.SoundFile(str(self._path))
        except soundfile.LibsndfileError as error:
            raise self._diagnose(header, error) from error

    def _diagnose(self, header: WavHeader | None, error: Exception) -> SourceError:
        """Name the reason why libsndfile could not open the file."""
        name = self._path
        if header is None:
            with self._path.open("rb") as file:
                kind = kind_of(file.read(HEAD_BYTES))
            if kind is None:
                return SourceError(ErrorCode.UNREADABLE, f"{name}: no audio format that can be read ({error})")
            return SourceError(ErrorCode.WRONG_KIND, f"{name}: {kind}")
        if header.fmt is None and header.cut_at is not None:
            message = f"{name}: truncated header: the file ends in the chunk at byte {header.cut_at}; fetch it again"
            return SourceError(ErrorCode.TRUNCATED_HEADER, message)
        if header.fmt is None:
            missing = "no fmt chunk" if header.data else "no fmt and no data chunk"
            message = f"{name}: {missing}, so rate and width are unknown; record or fetch it again"
            return SourceError(ErrorCode.NO_FMT_CHUNK, message)
        if not header.data and header.unpadded is not None:
            message = (
                f"{name}: the {header.unpadded!r} chunk has an odd length and no pad byte, so the chunks behind "
                "it cannot be found; save it again without tags: ffmpeg -i FILE -map_metadata -1 out.wav"
            )
            return SourceError(ErrorCode.BROKEN_CHUNKS, message)
        if not header.data:
            message = f"{name}: no data chunk: the file holds a header but no audio; record or fetch it again"
            return SourceError(ErrorCode.NO_DATA_CHUNK, message)
        _, channels, rate_hz, _, _ = header.fmt
        if not channels:
            return SourceError(ErrorCode.BAD_CHANNELS, f"{name}: the header says 0 channels; record it again")
        if not rate_hz:
            return SourceError(ErrorCode.BAD_RATE, f"{name}: the header says 0 Hz; record it again")
        return SourceError(ErrorCode.UNREADABLE, f"{name}: WAV with a format that cannot be read ({error})")

    def _require_sane_header(self) -> None:
        rate_hz, channels = self._file.samplerate, self._file.channels
        if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
            message = f"{self._path}: the header says {rate_hz} Hz; {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz can be used"
            raise SourceError(ErrorCode.BAD_RATE, message)
        if self._channel is not None and not 0 <= self._channel < channels:
            message = f"{self._path}: no channel {self._channel}; it has {channels}, counted from 0"
            raise SourceError(ErrorCode.NO_SUCH_CHANNEL, message)

    def _scan(self) -> _Scan:
        scan = _Scan(ChannelStatistics(self._file.channels))
        while not self._closing.is_set():
            try:
                block = self._read_block(self._block_samples)
            except soundfile.LibsndfileError as error:
                if not scan.samples:
                    raise SourceError(ErrorCode.UNREADABLE, f"{self._path}: cannot be decoded ({error})") from error
                scan.failure = str(error)
                break
            if not block.shape[0]:
                break
            scan.add(block)
        return scan

    def _require_sane_samples(self, scan: _Scan) -> None:
        if scan.first_not_finite is not None:
            message = (
                f"{self._path}: {scan.not_finite} of {scan.samples} samples are not numbers (NaN, infinity), the first "
                f"at {scan.first_not_finite / self._file.samplerate:.3f} s; what wrote it is broken: export it again"
            )
            raise SourceError(ErrorCode.NOT_FINITE, message)
        if scan.peak > MAX_PEAK:
            raise SourceError(ErrorCode.OVER_RANGE, f"{self._path}: {over_range_message(scan.peak)}")

    def _choose(self, scan: _Scan) -> ChannelChoice:
        if self._channel is not None and self._file.channels > 1:
            return by_hand(self._file.channels, self._channel)
        return choose(scan.statistics.covariance())

    def _describe_file(self, choice: ChannelChoice) -> None:
        rate_hz = self._file.samplerate
        self._describe |= {
            "format": self._file.format,
            "subtype": self._file.subtype,
            "native_rate_hz": rate_hz,
            "channels": self._file.channels,
            "channel_rule": choice.rule,
            "narrow_band": rate_hz <= NARROW_BAND_RATE_HZ,
            "native_samples": self._samples,
            "duration_s": round(self._samples / rate_hz, 6),
        }

    def _note(self, header: WavHeader | None, scan: _Scan, choice: ChannelChoice) -> None:
        """Collect what a listener or a bench report has to know before the first frame."""
        if header is not None:
            self._note_header(header, scan)
        elif self._file.frames != scan.samples and not self._closing.is_set():
            self._say_truncated(scan.samples, self._file.frames, scan.failure)
        rate_hz = self._file.samplerate
        if not scan.samples:
            self._say(NoticeCode.NO_AUDIO, "no audio: the file holds 0 samples; nothing was decided")
        elif scan.samples * 50 < rate_hz:
            length_ms = scan.samples * 1000 / rate_hz
            message = f"shorter than a frame: {length_ms:.1f} ms of 20 ms ({scan.samples} samples)"
            self._say(NoticeCode.TOO_SHORT, message, samples=scan.samples)
        elif not scan.peak:
            self._say(NoticeCode.DIGITAL_SILENCE, "digital silence: every sample is exactly zero")
        if rate_hz <= NARROW_BAND_RATE_HZ:
            message = f"narrow-band: {rate_hz} Hz holds no sound above {rate_hz // 2} Hz; scores are less certain"
            self._say(NoticeCode.NARROW_BAND, message, native_rate_hz=rate_hz)
        if choice.unusual:
            self._say(NoticeCode.CHANNELS, f"listening to {choice.rule}")

    def _note_header(self, header: WavHeader, scan: _Scan) -> None:
        frame_bytes = header.frame_bytes
        if header.hidden_bytes:
            message = (
                f"the header says 0 bytes of audio, the file has {header.hidden_bytes}: an unfinished recording; "
                f"read as {scan.samples} samples"
            )
            self._say(NoticeCode.HEADER_LIES, message, bytes=header.hidden_bytes, samples=scan.samples)
        if header.is_streamed:
            message = f"the header does not know the length (it was streamed); the file holds {scan.samples} samples"
            self._say(NoticeCode.HEADER_LIES, message, samples=scan.samples)
        elif header.missing_bytes and frame_bytes:
            self._say_truncated(scan.samples, header.data[0][1] // frame_bytes)
        elif header.missing_bytes:
            message = f"truncated: {header.audio_bytes} of {header.data[0][1]} bytes of audio"
            self._say(NoticeCode.TRUNCATED, message, bytes=header.audio_bytes, claimed_bytes=header.data[0][1])
        elif frame_bytes and scan.samples != header.audio_bytes // frame_bytes and not self._closing.is_set():
            self._say_truncated(scan.samples, header.audio_bytes // frame_bytes, scan.failure)
        if header.riff_ends_early and not header.hidden_bytes:
            message = (
                f"the RIFF header says {header.riff_bytes} bytes, less than its audio; the data chunk's size was used"
            )
            self._say(NoticeCode.HEADER_LIES, message, riff_bytes=header.riff_bytes, samples=scan.samples)
        if header.claimed_block_align is not None:
            message = (
                f"the header says {header.claimed_block_align} bytes a sample frame, but channels and width make "
                f"{frame_bytes}; read as {frame_bytes}: {scan.samples} samples"
            )
            self._say(NoticeCode.HEADER_LIES, message, block_align=header.claimed_block_align, samples=scan.samples)
        if header.trailing_bytes:
            message = f"{header.trailing_bytes} bytes behind the audio are no audio; not played"
            self._say(NoticeCode.TRAILING_BYTES, message, bytes=header.trailing_bytes)

    def _say_truncated(self, samples: int, claimed: int, failure: str = "") -> None:
        message = f"truncated: {samples} of {claimed} samples" + (f" ({failure})" if failure else "")
        self._say(NoticeCode.TRUNCATED, message, samples=samples, claimed_samples=claimed)

    def _say(self, code: NoticeCode, message: str, **numbers: int | float) -> None:
        self._notices.append(SourceNotice(code, f"{self._path.name}: {message}", 0, numbers))

    @property
    def _block_samples(self) -> int:
        return max(1, _BLOCK_VALUES // int(self._file.channels))

    def _read_block(self, samples: int) -> Block:
        block: Block = self._file.read(samples, dtype="float32", always_2d=True)
        return block

    def _read(self) -> Block | None:
        """The next block of the second pass; None at the end, or when the source is closed."""
        with self._reading:
            left = self._samples - self._played
            if not left or self._closing.is_set():
                return None
            block = self._read_block(min(left, self._block_samples))
            self._played += block.shape[0]
        if not block.shape[0]:
            message = f"{self._path}: it changed while it was read; wait until whatever writes it has finished"
            raise SourceError(ErrorCode.UNREADABLE, message)
        return block

    def _close(self) -> None:
        with self._reading:
            if self._file is not None:
                self._file.close()
            if self._raw is not None:
                self._raw.close()
