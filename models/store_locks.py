"""Mutual exclusion in a cache directory, between processes and threads, and room for models being put together."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from models.store_errors import ModelError, ModelFault, writing
from models.store_progress import PullProgress

PATIENCE_S = 10.0
"""How long a load waits for a pull of the same model in another process."""


class Locks:
    """The named locks of one cache directory.

    Order, so that nobody waits in a ring: a model's lock first, then those of its archives in order of name. The
    operating system frees a lock when its process dies; the empty lock files stay.
    """

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir

    @contextmanager
    def held(self, key: str, progress: PullProgress | None = None) -> Iterator[None]:
        """Hold one lock.

        Args:
            key: its name.
            progress: given, waits for as long as it takes and says so; not given, waits ``PATIENCE_S``.

        Raises:
            ModelError: ``BUSY`` when patience is over, ``READ_ONLY_CACHE``, ``DISK_FULL``.
        """
        path = self._cache_dir / ".locks" / f"{key}.lock"
        lock = FileLock(path)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0 if progress is not None else PATIENCE_S)
            except Timeout:
                if progress is None:
                    raise ModelError(
                        ModelFault.BUSY,
                        f"another process is working on {key} in {self._cache_dir}",
                        "Wait until it is done, then try again",
                    ) from None
                progress.note(f"{key}: another process is at it; waiting")
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def held_if_writable(self, key: str) -> Iterator[None]:
        """Hold one lock, or none on a cache that cannot be written: there nobody pulls, and loading needs none.

        Raises:
            ModelError: ``BUSY``, ``DISK_FULL``.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(self.held(key))
            except ModelError as error:
                if error.code is not ModelFault.READ_ONLY_CACHE:
                    raise
            yield

    @contextmanager
    def staging(self, name: str) -> Iterator[Path]:
        """An empty directory on the cache's own disk, gone afterwards. The caller holds the model's lock.

        Raises:
            ModelError: ``READ_ONLY_CACHE``, ``DISK_FULL``.
        """
        root = self._cache_dir / ".staging"
        with writing(root):
            root.mkdir(parents=True, exist_ok=True)
            for left_by_a_killed_pull in root.glob(f"{name}=*"):
                shutil.rmtree(left_by_a_killed_pull, ignore_errors=True)
            outer = Path(tempfile.mkdtemp(dir=root, prefix=f"{name}="))
            inner = outer / name
            inner.mkdir()
        try:
            yield inner
        finally:
            shutil.rmtree(outer, ignore_errors=True)
