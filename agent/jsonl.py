"""Events as JSON Lines. A kill at any instant tears at most the last line, and the next run mends that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from agent.events import EVENT, Event


class JsonLinesSink:
    """Appends each event as one line in one write.

    Args:
        path: the file; made if missing. A torn last line of an earlier run is closed off first, so that it stays one
            unreadable line and does not swallow the next event.

    Raises:
        OSError: when the file cannot be opened; names it.
    """

    wants_levels = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        size = os.fstat(self._file).st_size
        self._torn = bool(size) and os.pread(self._file, 1, size - 1) != b"\n"

    def emit(self, event: Event) -> None:
        """Append one event.

        Raises:
            OSError: when the disk is full; the torn line is closed off before the next event.
        """
        line = (b"\n" if self._torn else b"") + event.model_dump_json().encode() + b"\n"
        written = os.write(self._file, line)
        self._torn = written < len(line)
        if self._torn:
            raise OSError(f"{self.path}: only {written} of {len(line)} bytes could be written; is the disk full?")

    async def aclose(self) -> None:
        """Put everything on disk and close."""
        if self._file >= 0:
            os.fsync(self._file)
            os.close(self._file)
            self._file = -1


def read_events(path: Path) -> Iterator[Event]:
    """The events of a file, in order; a torn line is passed over.

    Raises:
        ValueError: when a whole line is not an event; names the line. A last line without its newline, and a line that
            is not JSON at all, are torn and not an error.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n") or not line.rstrip().endswith(b"}"):
                continue
            try:
                yield EVENT.validate_json(line)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: not an event: {error}") from error
