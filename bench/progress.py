"""How far a run has come: a bar on a terminal, a line now and then elsewhere. On standard error, so that output stays
clean."""

from __future__ import annotations

import sys
import time
from collections import Counter
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bench.results import TrialResult

LINE_EVERY_S = 15.0


def as_duration(seconds: float) -> str:
    """Hours, minutes and seconds, as ``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class RunProgress:
    """Shows trials as they end, with throughput and the time that is left.

    Args:
        total: trials of the whole run.
        before: how many of them an earlier run has done.
        out: where to.
    """

    def __init__(self, total: int, before: int, out: TextIO | None = None) -> None:
        self.total = total
        self.done = before
        self._before = before
        self._out = out or sys.stderr
        self._began_s = time.monotonic()
        self._line_s = self._began_s
        self._audio_s = 0.0
        self.statuses: Counter[str] = Counter()
        console = Console(file=self._out)
        self._bar = (
            Progress(
                TextColumn("trials"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[speed]}"),
                TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[bad]}"),
                console=console, transient=False,
            )
            if console.is_terminal
            else None
        )  # fmt: skip
        if self._bar is not None:
            self._task = self._bar.add_task("", total=total, completed=before, speed="", bad="")

    @property
    def elapsed_s(self) -> float:
        """Real seconds since the start."""
        return time.monotonic() - self._began_s

    @property
    def audio_seconds_per_second(self) -> float:
        """Throughput so far."""
        return self._audio_s / max(self.elapsed_s, 1e-9)

    @property
    def left_s(self) -> float | None:
        """Seconds that are left at the pace so far, or None before anything has ended."""
        ended = self.done - self._before
        return self.elapsed_s / ended * (self.total - self.done) if ended else None

    def add(self, result: TrialResult) -> None:
        """A trial has ended."""
        self.done += 1
        self._audio_s += result.timing.audio
        self.statuses[result.status] += 1
        if self._bar is not None:
            self._bar.update(
                self._task, completed=self.done, speed=f"{self.audio_seconds_per_second:.1f} s/s", bad=self._bad()
            )
            return
        now_s = time.monotonic()
        if now_s - self._line_s >= LINE_EVERY_S:
            self._line_s = now_s
            print(self.line(), file=self._out, flush=True)

    def line(self) -> str:
        """Where the run stands, in one line."""
        left = "" if self.left_s is None else f", {as_duration(self.left_s)} left"
        return (
            f"{self.done}/{self.total} trials, {self.audio_seconds_per_second:.1f} s of audio a second, "
            f"{as_duration(self.elapsed_s)} so far{left}{self._bad(', ')}"
        )

    def _bad(self, lead: str = "") -> str:
        bad = [f"{count} {status}" for status, count in sorted(self.statuses.items()) if status != "ok"]
        return lead + ", ".join(bad) if bad else ""

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


class StepProgress:
    """Shows how many of some equal steps are done, and the time that is left.

    Args:
        what: what the steps are, in the plural.
        total: how many there are.
        before: how many were done earlier.
        out: where to.
    """

    def __init__(self, what: str, total: int, before: int = 0, out: TextIO | None = None) -> None:
        self._what = what
        self._total = total
        self._before = before
        self._done = before
        self._bad = 0
        self._out = out or sys.stderr
        self._began_s = time.monotonic()
        self._line_s = self._began_s
        console = Console(file=self._out)
        self._bar = (
            Progress(
                TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
                TimeRemainingColumn(), TextColumn("{task.fields[bad]}"), console=console,
            )
            if console.is_terminal
            else None
        )  # fmt: skip
        if self._bar is not None:
            self._task = self._bar.add_task("", total=total, completed=before, bad="")

    @property
    def elapsed_s(self) -> float:
        """Real seconds since the start."""
        return time.monotonic() - self._began_s

    def add(self, *, bad: bool = False) -> None:
        """A step is done; ``bad``: without a result."""
        self._done += 1
        self._bad += bad
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, bad=f"{self._bad} failed" if self._bad else "")
            return
        now_s = time.monotonic()
        if now_s - self._line_s >= LINE_EVERY_S:
            self._line_s = now_s
            print(self.line(), file=self._out, flush=True)

    def line(self) -> str:
        """Where it stands, in one line."""
        new = self._done - self._before
        left = f", {as_duration(self.elapsed_s / new * (self._total - self._done))} left" if new else ""
        failed = f", {self._bad} failed" if self._bad else ""
        return f"{self._done}/{self._total} {self._what}, {as_duration(self.elapsed_s)} so far{left}{failed}"

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
