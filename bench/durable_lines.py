"""A file of lines that survives a kill at any instant: a line is on disk, whole, when ``append`` returns."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType
from typing import Self


class DurableLines:
    """Appends lines, each written and synced at once.

    Args:
        path: the file; made if missing. A torn last line is cut off.

    Raises:
        OSError: when it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.ftruncate(self._file, path.read_bytes().rfind(b"\n") + 1)
        except BaseException:
            self.close()
            raise

    def append(self, text: str) -> None:
        """Add one line.

        Args:
            text: without a line break.

        Raises:
            OSError: when it cannot be written whole (a full disk); the torn line is taken back.
        """
        line = text.encode() + b"\n"
        start = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            if written < len(line):
                raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes could be written")
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, start)
            raise

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
