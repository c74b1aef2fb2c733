"""Verdicts on disk: ``judgements.jsonl`` beside a run's log, one line a verdict, durable before the next one counts."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.judgements import JUDGEMENTS, Judgement, JudgementsError


class VerdictLog:
    """Appends verdicts. Not for several threads at once.

    Args:
        folder: the run's. A torn last line of its file is cut off.

    Raises:
        JudgementsError: when the file cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / JUDGEMENTS
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            os.ftruncate(self._file, self._path.read_bytes().rfind(b"\n") + 1)
        except OSError as error:
            raise JudgementsError(f"{self._path}: cannot be written: {error.strerror}") from error

    def append(self, judgement: Judgement) -> None:
        """Add one line; it is on disk when this returns.

        Raises:
            JudgementsError: when it cannot be written whole (a full disk); the torn line is taken back.
        """
        line = judgement.model_dump_json().encode() + b"\n"
        start = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            if written < len(line):
                raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes could be written")
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, start)
            raise JudgementsError(
                f"{self._path}: cannot be written ({error.strerror}); free some space and judge again"
            ) from error

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
