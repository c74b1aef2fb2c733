"""Verdicts on disk: ``judgements.jsonl`` beside a run's log, one line a verdict, durable before the next one counts."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from bench.durable_lines import DurableLines
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
            self._lines = DurableLines(self._path)
        except OSError as error:
            raise JudgementsError(f"{self._path}: cannot be written: {error.strerror}") from error

    def append(self, judgement: Judgement) -> None:
        """Add one line; it is on disk when this returns.

        Raises:
            JudgementsError: when it cannot be written whole (a full disk); the torn line is taken back.
        """
        try:
            self._lines.append(judgement.model_dump_json())
        except OSError as error:
            raise JudgementsError(
                f"{self._path}: cannot be written ({error.strerror}); free some space and judge again"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
