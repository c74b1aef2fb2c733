"""The model store: a cache of verified models, filled by ``voicegate models pull``.

Layout of the cache directory (``VOICEGATE_MODELS``, else ``voicegate/models`` under the user's cache directory)::

    whisper-base/…             a model's files, and nothing else
    .manifests/NAME.json       what was hashed: sha256 and stamp of each file, and how a built model came about
    .pins/NAME.json            hashes of hub models accepted on first use
    .downloads/…               archives that another model may still need, and parts of cut downloads
    .quarantine/NAME/…         files whose bytes were not the recorded ones
    .locks/, .staging/         one lock file per model and archive; models being put together

A model appears in its place by one rename, complete and hashed. ``Store.path`` hands a directory out only after each
file in it was matched: by a full hash, or by a stamp taken right at one (``models.store_files.Stamp`` says how far
that carries). Nothing is written when the cache is complete, so it may lie on a read-only disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from models.protocols import ModelId
from models.registry import PACKAGE_DIRECTORY, BuildSpec, ModelSpec, Registry
from models.store_build import builder_version, run_builder
from models.store_downloads import Downloads
from models.store_errors import ModelError, ModelFault, writing
from models.store_files import settle, sha256_of, stamp
from models.store_locks import Locks
from models.store_progress import PullProgress, SilentProgress, megabytes
from models.store_records import BuildRecord, FileRecord, Manifest, Pins, Records, listing_digest

if TYPE_CHECKING:
    from models.fetch_pypi import PackageIndexes
    from models.store_sources import Sources

SPARE_BYTES = 64_000_000
"""Left free on the disk beyond what a pull needs."""


class State(StrEnum):
    """Where a model stands, as far as names and stamps tell."""

    READY = "ready"
    MISSING = "not pulled"
    STALE = "to be rebuilt"
    UNVERIFIED = "not verified"
    """There, but not as it was when last hashed (or never hashed here): the next load hashes it."""


def default_cache_dir() -> Path:
    """``VOICEGATE_MODELS`` if set, else the platform's user cache directory (XDG on Linux)."""
    if chosen := os.environ.get("VOICEGATE_MODELS"):
        return Path(chosen).expanduser()
    return platformdirs.user_cache_path("voicegate", appauthor=False) / "models"


def offline_by_environment() -> bool:
    """Whether ``VOICEGATE_OFFLINE`` forbids downloads: anything but empty, 0, false, no and off."""
    return os.environ.get("VOICEGATE_OFFLINE", "").strip().lower() not in ("", "0", "false", "no", "off")


class Store:
    """The cache of models. Cheap to make; safe to use from several threads and processes.

    Args:
        registry: which models exist; None for the one shipped here.
        cache_dir: where they lie; None for ``default_cache_dir()``.
        offline: True forbids every connection to another machine; None asks ``VOICEGATE_OFFLINE``.
        indexes: package indexes; None for pip's configuration, read when first needed.
    """

    def __init__(
        self,
        registry: Registry | None = None,
        cache_dir: Path | None = None,
        offline: bool | None = None,
        *,
        indexes: PackageIndexes | None = None,
    ) -> None:
        self.registry = registry if registry is not None else Registry.load()
        self.cache_dir = (cache_dir if cache_dir is not None else default_cache_dir()).absolute()
        self.offline = offline_by_environment() if offline is None else offline
        self.downloads = Downloads(self.cache_dir)
        self._indexes = indexes
        self._records = Records(self.cache_dir)
        self._locks = Locks(self.cache_dir)
        self._builder_versions: dict[str, str] = {}

    # --- loading ---------------------------------------------------------------------------------------------------

    def path(self, name: str) -> Path:
        """The directory of a model whose every file has the recorded bytes.

        With unchanged stamps this reads no model byte. Otherwise changed files are hashed in full: a match renews the
        stamp, a mismatch puts the file into quarantine.

        Raises:
            ModelError: ``UNKNOWN_MODEL``, ``MISSING`` or ``STALE`` (pull it), ``HASH_MISMATCH``, ``UNLISTED_FILE``, or
                ``BUSY`` when another process is pulling it.
        """
        self._verified(name)
        return self._directory(self.registry.get(name))

    def file(self, name: str, member: str) -> Path:
        """One verified file of a model.

        Args:
            name: the model.
            member: path inside the model's directory, with forward slashes.

        Raises:
            ModelError: as for ``path``; ``WRONG_MEMBER`` if the model has no such file.
        """
        files = self._verified(name).files
        if member not in files:
            raise ModelError(
                ModelFault.WRONG_MEMBER,
                f"model {name!r} has no file {member!r}",
                f"It has: {', '.join(sorted(files))}",
                member,
            )
        return self._directory(self.registry.get(name)) / member

    def model_id(self, name: str) -> ModelId:
        """The model's name and one sha256 over its files.

        The latter is the sha256 of the ``sha256sum`` listing of its files in order of name, so that it can be
        reproduced with ``cd "$(voicegate models path NAME)" && LC_ALL=C sha256sum * | sha256sum``.

        Raises:
            ModelError: as for ``path``.
        """
        return ModelId(name, listing_digest(self._verified(name).sha256s()))

    def state(self, name: str) -> State:
        """Where a model stands. Weights in the package are small and hashed for it; others are judged by stamps.

        Raises:
            ModelError: ``UNKNOWN_MODEL``.
        """
        model = self.registry.get(name)
        manifest = self._records.manifest(name)
        if model.repo is None and manifest is None:
            # No manifest yet all files there: a cache that was copied without its records.
            there = model.fully_hashed and all((self._directory(model) / file.name).is_file() for file in model.files)
            return State.UNVERIFIED if there else State.MISSING
        try:
            if model.repo is not None or manifest is None:
                self._verified(name)
                return State.READY
            fault = self._fault(model, manifest)
        except ModelError as error:
            fault = error
        if fault is None:
            return State.READY
        return {ModelFault.MISSING: State.MISSING, ModelFault.STALE: State.STALE}.get(fault.code, State.UNVERIFIED)

    def size_bytes(self, name: str) -> int | None:
        """Size of a model on disk when it is here, else what the registry says, if it does.

        Raises:
            ModelError: ``UNKNOWN_MODEL``.
        """
        model = self.registry.get(name)
        manifest = self._records.manifest(name)
        if manifest is not None:
            return sum(record.stamp.size_bytes for record in manifest.files.values())
        return model.size_bytes

    def verify(self, name: str) -> list[ModelError]:
        """Hash every file of a model in full, whatever the stamps say, and renew the stamps.

        A file with other bytes than recorded is put into quarantine (weights in the package excepted).

        Returns:
            What is wrong, not raised; empty when all is well.

        Raises:
            ModelError: ``UNKNOWN_MODEL`` or ``BUSY``.
        """
        model = self.registry.get(name)
        with self._locks.held_if_writable(name):
            return self._check(model, only_changed=False)[1]

    def _verified(self, name: str) -> Manifest:
        """The manifest of a model that may be handed out."""
        model = self.registry.get(name)
        manifest = self._records.manifest(name)
        if manifest is not None and self._fault(model, manifest) is None:
            return manifest
        with self._locks.held_if_writable(name):
            manifest, problems = self._check(model, only_changed=True)
        if manifest is None:
            raise problems[0]
        return manifest

    # --- filling ---------------------------------------------------------------------------------------------------

    def ensure_default(self, progress: PullProgress | None = None) -> None:
        """Pull what the live path needs and is not here. Returns at once when all is.

        Raises:
            ModelError: as for ``pull``.
        """
        self.pull(self.registry.default_names(), progress)

    def pull(
        self, names: Iterable[str], progress: PullProgress | None = None, *, trust_first_use: bool = False
    ) -> None:
        """Bring models into the cache: download, verify, build. Models that are ready are left alone.

        Several processes may pull at once: each archive is downloaded and each model built once, the others wait.

        Args:
            names: models; what they are built from is pulled with them where it is needed.
            progress: told of what happens.
            trust_first_use: accept a hub model without known hashes as it comes and pin what came; ever after only
                those bytes are accepted.

        Raises:
            ModelError: any kind. Models finished before the error stay.
        """
        told = progress if progress is not None else SilentProgress()
        wanted = self._outstanding(names)
        if not wanted:
            return
        self._check_space(wanted)
        from models.store_sources import Sources  # the HTTP client is not for the live path

        with Sources(self.registry, self.downloads, self._locks, self.offline, self._indexes, told) as sources:
            for model in wanted:
                with self._locks.held(model.name, told):
                    self._pull_one(model, sources, told, trust_first_use)
        self._drop_downloads(wanted)

    def _outstanding(self, names: Iterable[str]) -> list[ModelSpec]:
        """Those of ``names`` that are not ready, after those of their inputs that are not ready either."""
        wanted: dict[str, ModelSpec] = {}

        def add(name: str) -> None:
            if name in wanted or self._ready(name):
                return
            model = self.registry.get(name)
            for needed in model.build.inputs if model.build else ():
                add(needed)
            wanted[name] = model

        for name in names:
            add(name)
        return list(wanted.values())

    def _ready(self, name: str) -> bool:
        """Whether nothing is to be done for a model; hashes it where stamps do not tell, which needs no writing."""
        state = self.state(name)
        if state is State.UNVERIFIED:
            with suppress(ModelError):
                self._verified(name)
                return True
        return state is State.READY

    def _pull_one(self, model: ModelSpec, sources: Sources, progress: PullProgress, trust_first_use: bool) -> None:
        """Fetch or build one model. The caller holds its lock."""
        manifest, problems = self._check(model, only_changed=True)
        if manifest is not None:
            return  # another process was quicker
        if model.repo is not None:
            raise problems[0]
        pins = self._records.pins(model.name)
        to_pin = model.hub is not None and not model.fully_hashed and pins is None
        if to_pin and not trust_first_use:
            raise ModelError(
                ModelFault.UNHASHED,
                f"no hash of {model.name} is known, so what the hub sends cannot be verified",
                f"If you trust it: voicegate models pull {model.name} --trust-first-use. What comes is pinned then",
            )
        with self._locks.staging(model.name) as staged:
            build: BuildRecord | None = None
            if model.build is not None:
                build = self._run_builder(model, model.build, staged, progress)
            elif model.hub is not None:
                sources.from_hub(model, model.hub, staged)
            else:
                sources.from_archives(model, staged)
            sha256s = {path.relative_to(staged).as_posix(): sha256_of(path) for path in _files_under(staged)}
            self._check_staged(model, sha256s, pins)
            if to_pin:
                self._records.write_pins(model.name, Pins(files=sha256s))
            self._install(model, staged, sha256s, build)
        progress.note(f"{model.name}: ready ({megabytes(self.size_bytes(model.name) or 0)})")

    def _run_builder(self, model: ModelSpec, build: BuildSpec, out_dir: Path, progress: PullProgress) -> BuildRecord:
        inputs = {name: self.path(name) for name in build.inputs}
        record = BuildRecord(
            function=build.function,
            version=self._builder_version(build),
            inputs={name: self.model_id(name).sha256 for name in build.inputs},
        )
        progress.note(f"{model.name}: building from {', '.join(build.inputs)}")
        run_builder(model.name, build, inputs, out_dir, lambda text: progress.note(f"{model.name}: {text}"))
        return record

    def _check_staged(self, model: ModelSpec, sha256s: Mapping[str, str], pins: Pins | None) -> None:
        """Whether what was fetched or built is what was asked for."""
        listed = {file.name for file in model.files}
        if not sha256s or (listed and set(sha256s) != listed):
            odd = sorted(set(sha256s) ^ listed)
            raise ModelError(
                ModelFault.BUILD_FAILED if model.build else ModelFault.WRONG_MEMBER,
                f"{model.name}: the files that came are not those listed ({', '.join(odd) or 'none came'})",
                "The registry and the source disagree: update voicegate",
            )
        expected = (pins.files if pins else {}) | {file.name: file.sha256 for file in model.files if file.sha256}
        for name, sha256 in sha256s.items():
            if expected.get(name, sha256) != sha256:
                raise ModelError(
                    ModelFault.HASH_MISMATCH,
                    f"{model.name}/{name} came with sha256 {sha256[:12]}…, expected {expected[name][:12]}…",
                    "It was thrown away. The source has changed: update voicegate"
                    + (f", or delete {self._records.pins_file(model.name)} to pin it anew" if pins else ""),
                    name,
                )

    def _install(self, model: ModelSpec, staged: Path, sha256s: Mapping[str, str], build: BuildRecord | None) -> None:
        """Put a staged model in its place and record it.

        The old manifest goes first: a reader who comes in between finds no record rather than that of other bytes.
        """
        final = self.cache_dir / model.name
        with writing(final):
            self._records.forget_manifest(model.name)
            for name in sha256s:
                settle(staged / name)
            if final.exists():
                os.rename(final, Path(tempfile.mkdtemp(dir=staged.parent)) / "old")  # deleted with the staging
            os.rename(staged, final)
        files = {name: FileRecord(sha256=sha256, stamp=stamp(final / name)) for name, sha256 in sha256s.items()}
        self._records.write_manifest(model.name, Manifest(files=files, build=build))

    def _check_space(self, models: Iterable[ModelSpec]) -> None:
        """Raise ``DISK_FULL`` before a pull that cannot fit, rather than in the middle of it."""
        fetched = [model for model in models if model.repo is None]
        archives = [self.registry.archive(key) for key in {key for model in fetched for key in model.archives}]
        needed_bytes = sum(model.size_bytes or 0 for model in fetched)
        needed_bytes += sum(self.downloads.lacking_bytes(archive) for archive in archives)
        place = next(parent for parent in (self.cache_dir, *self.cache_dir.parents) if parent.is_dir())
        free_bytes = shutil.disk_usage(place).free
        if free_bytes < needed_bytes + SPARE_BYTES:
            raise ModelError(
                ModelFault.DISK_FULL,
                f"pulling {', '.join(model.name for model in fetched)} needs"
                f" {megabytes(needed_bytes + SPARE_BYTES)} in {self.cache_dir}, where {megabytes(free_bytes)} are free",
                "Free some space, or set VOICEGATE_MODELS to a directory on another disk",
            )

    def _drop_downloads(self, models: Iterable[ModelSpec]) -> None:
        """Delete archives that no model of the registry is still waiting for."""
        for key in sorted({key for model in models for key in model.archives}):
            if all(self.state(user.name) is State.READY for user in self.registry.users_of(key)):
                with self._locks.held(f"archive-{key}"):
                    self.downloads.path(self.registry.archive(key)).unlink(missing_ok=True)

    # --- checking --------------------------------------------------------------------------------------------------

    def _directory(self, model: ModelSpec) -> Path:
        return PACKAGE_DIRECTORY / model.repo.directory if model.repo is not None else self.cache_dir / model.name

    def _expected(self, model: ModelSpec, manifest: Manifest | None) -> dict[str, str | None]:
        """For each file, the sha256 that it must have: the registry's, else the pinned one, else the recorded one."""
        expected: dict[str, str | None] = {file.name: file.sha256 for file in model.files}
        if model.hub is not None and not model.fully_hashed and (pins := self._records.pins(model.name)) is not None:
            expected = {name: sha256 or pins.files.get(name) for name, sha256 in expected.items()}
        if model.build is not None and manifest is not None:
            expected |= manifest.sha256s()
        return expected

    def _fault(self, model: ModelSpec, manifest: Manifest) -> ModelError | None:
        """What stamps, names and hashes on record say against handing a model out; None when nothing does."""
        if model.build is not None and (stale := self._stale(model, model.build, manifest)) is not None:
            return stale
        directory = self._directory(model)
        expected = self._expected(model, manifest)
        for name, sha256 in expected.items():
            try:
                present = stamp(directory / name)
            except OSError:
                return self._missing(model, name)
            record = manifest.files.get(name)
            if record is None or sha256 is None or record.sha256 != sha256 or record.stamp != present:
                return _mismatch(model, name)
        return self._unlisted(model, expected)

    def _check(self, model: ModelSpec, *, only_changed: bool) -> tuple[Manifest | None, list[ModelError]]:
        """Hash a model's files, quarantine what differs, record what matches. The caller holds the model's lock.

        Args:
            model: which.
            only_changed: hash only files whose stamp is not the recorded one.

        Returns:
            The manifest of a model that may be handed out and no problem, or None and what is wrong.
        """
        manifest = self._records.manifest(model.name)
        if model.build is not None:
            if manifest is None:
                return None, [self._missing(model)]
            if (stale := self._stale(model, model.build, manifest)) is not None:
                return None, [stale]
        expected = self._expected(model, manifest)
        directory = self._directory(model)
        problems: list[ModelError] = []
        found: dict[str, FileRecord] = {}
        for name, sha256 in expected.items():
            path = directory / name
            known = manifest.files.get(name) if manifest is not None else None
            if sha256 is None or not path.is_file():  # without a hash on record it was never verified: fetch it anew
                problems.append(self._missing(model, name))
            elif only_changed and known is not None and known == FileRecord(sha256=sha256, stamp=stamp(path)):
                found[name] = known
            elif (record := self._hashed(model, path)).sha256 == sha256:
                found[name] = record
            else:
                problems.append(self._quarantine(model, name))
        if not problems and (unlisted := self._unlisted(model, expected)) is not None:
            problems.append(unlisted)
        if problems:
            return None, problems
        fresh = Manifest(files=found, build=manifest.build if manifest is not None else None)
        if fresh != manifest:
            try:
                self._records.write_manifest(model.name, fresh)
            except ModelError:  # a full or read-only disk: what was hashed still holds for this process
                self._records.remember(model.name, fresh)
        return fresh, []

    def _hashed(self, model: ModelSpec, path: Path) -> FileRecord:
        """A file's hash, with the stamp that it had before and after the bytes were read."""
        if model.repo is None:  # times of files under version control are left alone
            with suppress(OSError):  # read-only: the stamp is then as good as the file system's clock
                settle(path)
        before = stamp(path)
        sha256 = sha256_of(path)
        changed_meanwhile = stamp(path) != before
        return FileRecord(sha256="" if changed_meanwhile else sha256, stamp=before)

    def _unlisted(self, model: ModelSpec, expected: Mapping[str, object]) -> ModelError | None:
        """A loader that is given a directory may read files nobody hashed: the cache must hold none."""
        if model.repo is not None:
            return None  # the package's own directory, shared by several models; each is loaded by file name
        directory = self._directory(model)
        for path in _files_under(directory):
            name = path.relative_to(directory).as_posix()
            if name not in expected:
                return ModelError(
                    ModelFault.UNLISTED_FILE,
                    f"{path} is not part of model {model.name!r}, and a loader might read it",
                    "Move it elsewhere",
                    name,
                )
        return None

    def _stale(self, model: ModelSpec, build: BuildSpec, manifest: Manifest) -> ModelError | None:
        """Whether a built model was made otherwise than it would be now."""
        made = manifest.build
        if made is None or made.function != build.function:
            why = "by another builder"
        elif made.version != (version := self._builder_version(build)):
            why = f"by version {made.version} of its builder, which is now at {version}"
        elif made.inputs != {name: self._recorded_digest(name) for name in build.inputs}:
            why = "from other inputs"
        else:
            return None
        return ModelError(
            ModelFault.STALE,
            f"{model.name} was built {why}",
            f"Build it again: voicegate models pull {model.name}",
        )

    def _builder_version(self, build: BuildSpec) -> str:
        if build.module not in self._builder_versions:
            self._builder_versions[build.module] = builder_version(build)
        return self._builder_versions[build.module]

    def _recorded_digest(self, name: str) -> str | None:
        """The digest of a build's input from hashes on record, since the input itself need not be in the cache."""
        model = self.registry.get(name)
        expected = self._expected(model, self._records.manifest(name) if model.build is not None else None)
        known = {file: sha256 for file, sha256 in expected.items() if sha256 is not None}
        return listing_digest(known) if known and len(known) == len(expected) else None

    def _missing(self, model: ModelSpec, file: str = "") -> ModelError:
        if model.repo is not None:
            return ModelError(
                ModelFault.MISSING,
                f"{model.repo.directory}/{file} is missing from the package",
                "Reinstall voicegate",
                file,
            )
        what = f"{file} of model {model.name!r}" if file else f"model {model.name!r}"
        return ModelError(
            ModelFault.MISSING,
            f"{what} is not in {self.cache_dir}",
            f"Fetch it: voicegate models pull {model.name}",
            file,
        )

    def _quarantine(self, model: ModelSpec, file: str) -> ModelError:
        """Move a file with wrong bytes out of every loader's way."""
        error = _mismatch(model, file)
        if model.repo is not None:
            return error
        aside = self.cache_dir / ".quarantine" / model.name / file
        try:
            aside.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._directory(model) / file, aside)
        except OSError:
            return error  # read-only: it stays, and is refused each time
        return ModelError(error.code, f"{error.message}; it was moved to {aside}", error.cure, file)


def _files_under(directory: Path) -> Iterator[Path]:
    """Every file and symbolic link below a directory, less the hidden ones that desktops and file servers drop."""
    for parent, directories, files in os.walk(directory):
        links = [name for name in directories if os.path.islink(os.path.join(parent, name))]
        for name in (*files, *links):
            if not name.startswith("."):
                yield Path(parent, name)


def _mismatch(model: ModelSpec, file: str) -> ModelError:
    if model.repo is not None:
        return ModelError(
            ModelFault.HASH_MISMATCH,
            f"{model.repo.directory}/{file} in the package is not the file that the registry records",
            "Reinstall voicegate; after training it anew, put its sha256 and size into models/registry.toml",
            file,
        )
    return ModelError(
        ModelFault.HASH_MISMATCH,
        f"{model.name}/{file} is not the recorded file",
        f"Fetch it anew: voicegate models pull {model.name}",
        file,
    )
