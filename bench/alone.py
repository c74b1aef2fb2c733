"""Two programs must not write one log: a lock that says who has to wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def alone(lock_file: Path, refusal: Exception) -> Iterator[None]:
    """Hold a lock, or refuse at once where another process holds it.

    Args:
        lock_file: made if missing.
        refusal: what is raised then.
    """
    lock = FileLock(lock_file)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise refusal from error
    try:
        yield
    finally:
        lock.release()
