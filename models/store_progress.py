"""How a pull tells what it does. The ways to show it to a person are in ``models.store_console``."""

from __future__ import annotations

from typing import Protocol


class PullProgress(Protocol):
    """Told of what a pull does. Calls come from one thread; ``begin`` and ``end`` pair up and do not nest."""

    def note(self, text: str) -> None:
        """One line about what happens now."""
        ...

    def begin(self, label: str, total_bytes: int | None) -> None:
        """A transfer starts; its length is not always known."""
        ...

    def advance(self, n_bytes: int) -> None:
        """Bytes of the present transfer are on disk. A negative count takes back what a restarted transfer lost."""
        ...

    def end(self) -> None:
        """The present transfer is over, well or not."""
        ...


class SilentProgress:
    """Says nothing."""

    def note(self, text: str) -> None: ...

    def begin(self, label: str, total_bytes: int | None) -> None: ...

    def advance(self, n_bytes: int) -> None: ...

    def end(self) -> None: ...


def megabytes(n_bytes: int) -> str:
    """A size as a person reads it: ``"98.4 MB"``, decimal units as on download pages."""
    if n_bytes < 1_000_000:
        return f"{n_bytes / 1e3:.1f} kB"
    return f"{n_bytes / 1e6:.1f} MB"
