"""A pull shown to a person: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from models.store_progress import megabytes


class PlainProgress:
    """Whole lines, a quarter of a transfer at a time, for logs and pipes."""

    STEPS = 4

    def __init__(self, console: Console) -> None:
        self._console = console
        self._label = ""
        self._total_bytes: int | None = None
        self._done_bytes = 0
        self._steps_said = 0

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def begin(self, label: str, total_bytes: int | None) -> None:
        self._label, self._total_bytes, self._done_bytes, self._steps_said = label, total_bytes, 0, 0
        self.note(f"{label}: {megabytes(total_bytes) if total_bytes else 'size not announced'}")

    def advance(self, n_bytes: int) -> None:
        self._done_bytes += n_bytes
        if self._total_bytes:
            steps = min(self.STEPS * self._done_bytes // self._total_bytes, self.STEPS)
            if steps > self._steps_said:
                self._steps_said = steps
                self.note(f"{self._label}: {100 * steps // self.STEPS} %")

    def end(self) -> None: ...


class BarProgress:
    """A live bar for the present transfer, notes above it. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> BarProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def begin(self, label: str, total_bytes: int | None) -> None:
        self._task = self._progress.add_task(label, total=total_bytes)

    def advance(self, n_bytes: int) -> None:
        if self._task is not None:
            self._progress.advance(self._task, n_bytes)

    def end(self) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
