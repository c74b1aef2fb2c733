"""Progress with a time estimate for long offline steps: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Item = TypeVar("Item")

_LINES = 25


def steps(items: Iterable[Item], label: str, total: int) -> Iterator[Item]:
    """Yield the items while showing how many of ``total`` are done and how long the rest will take."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task_id = progress.add_task(label, total=total)
        task = progress.tasks[0]
        for done, item in enumerate(items, start=1):
            yield item
            progress.update(task_id, completed=done)
            if not console.is_terminal and (done == total or done % max(1, total // _LINES) == 0):
                remaining = f", about {task.time_remaining:.0f} s left" if task.time_remaining else ""
                console.print(f"{label}: {done}/{total}, {task.elapsed or 0.0:.0f} s{remaining}", highlight=False)
