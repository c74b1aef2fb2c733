"""The run log on disk: one line a trial, durable before the next one is taken up. A kill loses no line that was there.

Each line goes out in one write and is synced; a kill in the middle tears at most the last line, which whoever opens the
log next cuts off. The trial of a torn line has not been run.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from bench.durable_lines import DurableLines
from bench.results import TrialResult

RUN_LOG = "run.jsonl"


class RunLogError(Exception):
    """A run log cannot be read or written. The message names the line, or the cure."""


def read_log(path: Path) -> list[TrialResult]:
    """The results of a log, in order; a torn last line is passed over.

    Raises:
        RunLogError: when a whole line is not a result, or a trial has two of them; names the line.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunLogError(f"{path}: cannot be read: {error.strerror}") from error
    results: list[TrialResult] = []
    line_of: dict[str, int] = {}
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        try:
            result = TrialResult.model_validate_json(line)
        except ValueError as error:
            raise RunLogError(f"{path}:{number}: not a result: {error}") from error
        if result.id in line_of:
            raise RunLogError(f"{path}:{number}: {result.id!r} has a result on line {line_of[result.id]} already")
        line_of[result.id] = number
        results.append(result)
    return results


class RunLog:
    """Appends results.

    Args:
        path: the log; made if missing. A torn last line is cut off.

    Raises:
        OSError: when it cannot be opened.
        RunLogError: when a whole line in it is not a result.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = DurableLines(path)
        try:
            self.done = {result.id for result in read_log(path)}
            """Ids of the trials that have a line."""
        except BaseException:
            self.close()
            raise

    def append(self, result: TrialResult) -> None:
        """Add one line; it is on disk when this returns.

        Raises:
            RunLogError: when it cannot be written whole (a full disk); the torn line is taken back.
        """
        try:
            self._lines.append(result.model_dump_json())
        except OSError as error:
            raise RunLogError(
                f"{self._path}: cannot be written ({error.strerror}); free some space and go on with --resume"
            ) from error
        self.done.add(result.id)

    def close(self) -> None:
        """Close the file."""
        self._lines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
