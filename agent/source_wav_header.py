"""What a WAV file's header claims, and where it contradicts the file.

libsndfile reads samples well and silently: a file cut in half is simply shorter, a recorder's unfinished header makes
an hour of speech empty. Those silences are wrong verdicts waiting to happen, so the chunk list is walked here too, by
hand, and every contradiction is named. Layout: RIFF ("Multimedia Programming Interface and Data Specifications 1.0",
1991) and Microsoft's WAVEFORMATEX.
"""

from __future__ import annotations

import io
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_STREAMED_SIZE = 0x7FFF0000
"""Programs that write to a pipe cannot go back to fill in the size; they leave a number around 2 or 4 GiB."""

_UNCOMPRESSED_TAGS = frozenset({1, 3, 6, 7, 0xFFFE})
"""PCM, float, A-law, mu-law, EXTENSIBLE: a sample frame has a fixed number of bytes."""


@dataclass(frozen=True, slots=True)
class WavHeader:
    """A RIFF/WAVE file's structure as found.

    Attributes:
        file_bytes: the file's length.
        riff_bytes: the length that the RIFF header claims for what follows its first 8 bytes.
        fmt: the ``fmt`` chunk: tag, channels, rate, block align, bits; None when there is none.
        data: offset of the first audio byte and claimed length of each ``data`` chunk.
        cut_at: offset of a chunk that runs past the end of the file (not ``data``), or None.
        junk_at: offset from which no chunks follow any more but bytes do, or None.
        unpadded: name of a chunk of odd length without the pad byte that must follow it, or None.
    """

    file_bytes: int
    riff_bytes: int
    fmt: tuple[int, int, int, int, int] | None
    data: tuple[tuple[int, int], ...]
    cut_at: int | None
    junk_at: int | None
    unpadded: str | None

    @property
    def frame_bytes(self) -> int | None:
        """Bytes of one sample of all channels, from channels and width; None when compressed or unknown."""
        if self.fmt is None or self.fmt[0] not in _UNCOMPRESSED_TAGS:
            return None
        _, channels, _, align, bits = self.fmt
        if bits == 24 and align == 4 * channels:
            return align or None  # 24 bits in 32, written by many recorders
        return channels * ((bits + 7) // 8) or None

    @property
    def audio_bytes(self) -> int:
        """Bytes of audio that are really there, as far as the header lets one see."""
        offset, claimed = self.data[0] if self.data else (self.file_bytes, 0)
        return self.hidden_bytes or min(claimed, self.file_bytes - offset)

    @property
    def hidden_bytes(self) -> int:
        """Bytes behind a ``data`` chunk that claims to be empty: a recorder that never finished its header. Else 0."""
        if len(self.data) != 1 or self.data[0][1] != 0 or self.data[0][0] not in (self.junk_at, self.cut_at):
            return 0
        return self.file_bytes - self.data[0][0]

    @property
    def is_streamed(self) -> bool:
        """The size is the placeholder of a program that wrote to a pipe."""
        return bool(self.data) and self.data[0][1] >= _STREAMED_SIZE and self.data[0][1] > self.audio_bytes

    @property
    def missing_bytes(self) -> int:
        """Claimed bytes of audio that the file does not hold: it was cut. 0 for a streamed file."""
        return 0 if not self.data or self.is_streamed else max(0, self.data[0][1] - self.audio_bytes)

    @property
    def trailing_bytes(self) -> int:
        """Bytes behind the last chunk that are none themselves."""
        return 0 if self.junk_at is None or self.hidden_bytes else self.file_bytes - self.junk_at

    @property
    def riff_ends_early(self) -> bool:
        """The RIFF header claims less than its own audio; a reader that believes it hears nothing."""
        return bool(self.data) and self.riff_bytes + 8 < self.data[0][0] + self.audio_bytes

    @property
    def claimed_block_align(self) -> int | None:
        """The block align when it contradicts channels and width, else None."""
        if self.fmt is None or self.frame_bytes is None or self.fmt[3] == self.frame_bytes:
            return None
        return self.fmt[3]


def read_wav_header(path: Path) -> WavHeader | None:
    """Walk the chunks of a RIFF/WAVE file; None when it is something else.

    Raises:
        OSError: when the file cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(12)
        if len(head) < 4 or head[:4] != b"RIFF" or (len(head) == 12 and head[8:] != b"WAVE"):
            return None
        file_bytes = os.fstat(file.fileno()).st_size
        riff_bytes = struct.unpack("<I", head[4:8])[0] if len(head) >= 8 else 0
        return _walk(file, file_bytes, riff_bytes)


def _walk(file: BinaryIO, file_bytes: int, riff_bytes: int) -> WavHeader:
    fmt: tuple[int, int, int, int, int] | None = None
    data: list[tuple[int, int]] = []
    cut_at: int | None = None
    junk_at: int | None = None
    unpadded: str | None = None
    at = 12
    odd_name = ""
    while at < file_bytes:
        file.seek(at)
        head = file.read(8)
        if len(head) < 8 or not _is_chunk_name(head[:4]):
            if odd_name and _follows_unpadded(file, at):
                unpadded = odd_name
            junk_at = at
            break
        name, claimed = head[:4], struct.unpack("<I", head[4:])[0]
        at += 8
        if name == b"data":
            data.append((at, claimed))
        elif at + claimed > file_bytes:
            cut_at = at - 8
            break
        elif name == b"fmt ":
            body = file.read(16)
            if len(body) == 16:
                tag, channels, rate_hz, _, block_align, bits = struct.unpack("<HHIIHH", body)
                fmt = (tag, channels, rate_hz, block_align, bits)
        odd_name = name.decode("ascii") if claimed % 2 else ""
        at += claimed + claimed % 2
    return WavHeader(file_bytes, riff_bytes, fmt, tuple(data), cut_at, junk_at, unpadded)


def _is_chunk_name(name: bytes) -> bool:
    return all(32 <= byte < 127 for byte in name)


def _follows_unpadded(file: BinaryIO, at: int) -> bool:
    """Whether a chunk begins one byte before ``at``, where the pad byte should be."""
    file.seek(at - 1)
    return _is_chunk_name(file.read(4))


class RepairedWav(io.RawIOBase):
    """A WAV file whose sizes are corrected while it is read; the file itself is not touched.

    Args:
        path: the file.
        header: its header, with exactly one ``data`` chunk.
    """

    def __init__(self, path: Path, header: WavHeader) -> None:
        super().__init__()
        self._file = path.open("rb")
        offset, _ = header.data[0]
        size = header.hidden_bytes
        self._patches = ((4, struct.pack("<I", offset - 8 + size)), (offset - 4, struct.pack("<I", size)))

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Like the file's."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Like the file's."""
        return self._file.tell()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed names the private Buffer type
        """Read what the file holds, with the two sizes replaced."""
        start = self._file.tell()
        data = bytearray(self._file.read(len(buffer)))
        for at, patch in self._patches:
            for i, byte in enumerate(patch, at - start):
                if 0 <= i < len(data):
                    data[i] = byte
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()
