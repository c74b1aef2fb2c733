"""Hashes, stamps and atomic writes: the few file operations that the model store rests on."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from models.store_errors import writing

CHUNK_BYTES = 1 << 20

SETTLED_MTIME_NS = 946_684_800 * 1_000_000_000
"""Modification time given to every file of the cache (2000-01-01T00:00:00Z); see ``settle``."""


class Readable(Protocol):
    """Whatever bytes can be read from."""

    def read(self, size: int = -1, /) -> bytes: ...


class Digest(Protocol):
    """The part of a ``hashlib`` object that is used here."""

    def update(self, data: bytes, /) -> None: ...

    def hexdigest(self) -> str: ...


class Stamp(NamedTuple):
    """What the file system said of a file when its bytes were last hashed in full.

    While all four values stay the same, the file is taken to have the bytes that were hashed. The change time is what
    carries the argument: a program can set the modification time back after a write, but the kernel moves the change
    time forward on every write, truncation, rename and ``utime``, and offers no call that sets it. The inode catches a
    file put in another's place.

    Limits, said plainly. A stamp is a cache of a hash, not a seal: it is meant for accidents (cut copies, disk
    clean-ups, half-done restores, a tool that edits in place) and against swapped downloads, not against someone who
    can write the cache directory as this user, since that one can write the stamp as well, or this program. It does
    not see bytes that rot on the disk without a write, nor file systems that keep no change time or reuse inodes
    freely (some network and FUSE mounts). ``voicegate models verify`` reads every byte and sees all of these. Between
    the check and the loader's own open there is a moment in which a file may still be changed.
    """

    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int


def stamp(path: Path) -> Stamp:
    """The present stamp of ``path`` (symbolic links followed).

    Raises:
        OSError: if it cannot be read.
    """
    stat = os.stat(path)
    return Stamp(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)


def settle(path: Path) -> None:
    """Give ``path`` a modification time long past, so that any later write is bound to change it.

    File systems count time in ticks of up to some milliseconds (whole seconds on a few). A write within the tick in
    which a file was stamped would leave both times as they were: git calls such an entry racy. With the modification
    time set to a fixed past moment *before* the bytes are hashed, a write at any moment afterwards differs from it.
    """
    os.utime(path, ns=(SETTLED_MTIME_NS, SETTLED_MTIME_NS))


def sha256_of(path: Path) -> str:
    """Hexadecimal sha256 of a file's bytes, read in full."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def chunks(source: Readable) -> Iterator[bytes]:
    """The bytes of ``source`` in pieces of ``CHUNK_BYTES``."""
    while chunk := source.read(CHUNK_BYTES):
        yield chunk


def write_chunk(handle: BinaryIO, data: bytes) -> None:
    """Write one piece. Every byte of a model goes to disk through this function."""
    handle.write(data)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a small file so that readers see the old bytes or the new ones, never a mixture.

    Raises:
        ModelError: the disk is full or the directory cannot be written; nothing is left behind.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not mkstemp, whose files only their owner may read: a cache filled by one user may serve others.
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with temporary.open("xb") as handle:
                write_chunk(handle, data)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
