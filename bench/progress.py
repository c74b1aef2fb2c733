"""How far a run has come: a bar on a terminal, a line now and then elsewhere. On standard error, so that output stays
clean."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bench.results import TrialResult

LINE_EVERY_S = 15.0


def as_duration(seconds: float) -> str:
    """Hours, minutes and seconds, as ``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class _Shown:
    """What all kinds of progress have in common: the bar, or the line now and then.

    Args:
        columns: of the bar.
        total: how many steps there are.
        before: how many of them were done earlier.
        out: where to.
        fields: what the columns show besides, before anything has been done.
    """

    def __init__(
        self, columns: Sequence[ProgressColumn], total: int, before: int, out: TextIO | None, **fields: Any
    ) -> None:
        self.total = total
        self.done = before
        self._before = before
        self._out = out or sys.stderr
        self._began_s = time.monotonic()
        self._line_s = self._began_s
        console = Console(file=self._out)
        self._bar = Progress(*columns, console=console) if console.is_terminal else None
        if self._bar is not None:
            self._task = self._bar.add_task("", total=total, completed=before, **fields)

    @property
    def elapsed_s(self) -> float:
        """Real seconds since the start."""
        return time.monotonic() - self._began_s

    @property
    def left_s(self) -> float | None:
        """Seconds that are left at the pace so far, or None before anything has ended."""
        ended = self.done - self._before
        return self.elapsed_s / ended * (self.total - self.done) if ended else None

    def line(self) -> str:
        """Where it stands, in one line."""
        raise NotImplementedError

    def _show(self, **fields: Any) -> None:
        """Move the bar, or print the line when its time has come."""
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, **fields)
            return
        now_s = time.monotonic()
        if now_s - self._line_s >= LINE_EVERY_S:
            self._line_s = now_s
            print(self.line(), file=self._out, flush=True)

    def _times(self) -> str:
        left = "" if self.left_s is None else f", {as_duration(self.left_s)} left"
        return f"{as_duration(self.elapsed_s)} so far{left}"

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


class RunProgress(_Shown):
    """Shows trials as they end, with throughput and the time that is left.

    Args:
        total: trials of the whole run.
        before: how many of them an earlier run has done.
        out: where to.
    """

    def __init__(self, total: int, before: int, out: TextIO | None = None) -> None:
        self._audio_s = 0.0
        self.statuses: Counter[str] = Counter()
        columns = (
            TextColumn("trials"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[bad]}"),
        )  # fmt: skip
        super().__init__(columns, total, before, out, speed="", bad="")

    @property
    def audio_seconds_per_second(self) -> float:
        """Throughput so far."""
        return self._audio_s / max(self.elapsed_s, 1e-9)

    def add(self, result: TrialResult) -> None:
        """A trial has ended."""
        self.done += 1
        self._audio_s += result.timing.audio
        self.statuses[result.status] += 1
        self._show(speed=f"{self.audio_seconds_per_second:.1f} s/s", bad=self._bad())

    def line(self) -> str:
        """Where the run stands, in one line."""
        return (
            f"{self.done}/{self.total} trials, {self.audio_seconds_per_second:.1f} s of audio a second, "
            f"{self._times()}{self._bad(', ')}"
        )

    def _bad(self, lead: str = "") -> str:
        bad = [f"{count} {status}" for status, count in sorted(self.statuses.items()) if status != "ok"]
        return lead + ", ".join(bad) if bad else ""


class StepProgress(_Shown):
    """Shows how many of some equal steps are done, and the time that is left.

    Args:
        what: what the steps are, in the plural.
        total: how many there are.
        before: how many were done earlier.
        out: where to.
    """

    def __init__(self, what: str, total: int, before: int = 0, out: TextIO | None = None) -> None:
        self._what = what
        self._failed = 0
        columns = (
            TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
            TimeRemainingColumn(), TextColumn("{task.fields[bad]}"),
        )  # fmt: skip
        super().__init__(columns, total, before, out, bad="")

    def add(self, *, bad: bool = False) -> None:
        """A step is done; ``bad``: without a result."""
        self.done += 1
        self._failed += bad
        self._show(bad=f"{self._failed} failed" if self._failed else "")

    def line(self) -> str:
        """Where it stands, in one line."""
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{self.done}/{self.total} {self._what}, {self._times()}{failed}"
