"""What the store remembers of each model: a manifest of hashed files, and pins of hub models trusted on first use."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from models.store_errors import ModelError, ModelFault
from models.store_files import Stamp, stamp, write_atomically


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileRecord(_Record):
    """One file: the hash of its bytes, and what the file system said of it when they were hashed."""

    sha256: str
    stamp: Stamp


class BuildRecord(_Record):
    """How a built model came about.

    Attributes:
        function: the builder.
        version: its ``BUILDER_VERSION``.
        inputs: name of each input model to ``listing_digest`` of its files.
    """

    function: str
    version: str
    inputs: dict[str, str]


class Manifest(_Record):
    """What the store knows of one model's files.

    For a built model this is the only place that knows the hashes. They cannot stand in the registry: what an exporter
    writes depends on the versions of the libraries it uses and on the processor's arithmetic, byte for byte. So the
    hash is taken when the model is built and bound to what decides its contents, namely the sha256 of every input and
    the builder's version; the inputs' own hashes are the registry's. A later change of the bytes, of an input's hash or
    of the builder is then seen at the next load.
    """

    files: dict[str, FileRecord]
    build: BuildRecord | None = None

    def sha256s(self) -> dict[str, str]:
        """File name to sha256."""
        return {name: record.sha256 for name, record in self.files.items()}


class Pins(_Record):
    """Hashes of a hub model that were accepted on first use; from then on nothing else is."""

    files: dict[str, str]


def listing_digest(sha256s: Mapping[str, str]) -> str:
    """One sha256 over a model's files: of what ``sha256sum`` prints for them in order of name."""
    listing = "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(sha256s.items()))
    return hashlib.sha256(listing.encode()).hexdigest()


class Records:
    """The records of one cache directory. Manifests are kept in memory and read again when their file changes."""

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir
        self._known: dict[str, tuple[Stamp | None, Manifest]] = {}

    def manifest_file(self, name: str) -> Path:
        """Where a model's manifest lies, or would."""
        return self._cache_dir / ".manifests" / f"{name}.json"

    def pins_file(self, name: str) -> Path:
        """Where a model's pins lie, or would."""
        return self._cache_dir / ".pins" / f"{name}.json"

    def manifest(self, name: str) -> Manifest | None:
        """A model's manifest; None when there is none, or none that can be read (the files are then hashed anew)."""
        present = self._present(name)
        known = self._known.get(name)
        if known is not None and known[0] == present:
            return known[1]
        try:
            manifest = Manifest.model_validate_json(self.manifest_file(name).read_bytes())
        except (OSError, ValidationError):
            return None
        self._known[name] = (present, manifest)
        return manifest

    def write_manifest(self, name: str, manifest: Manifest) -> None:
        """Record a model's files.

        Raises:
            ModelError: ``DISK_FULL`` or ``READ_ONLY_CACHE``.
        """
        self._write(self.manifest_file(name), manifest)
        self.remember(name, manifest)

    def remember(self, name: str, manifest: Manifest) -> None:
        """Hold a manifest for this process without writing it: what was hashed on a cache that cannot be written."""
        self._known[name] = (self._present(name), manifest)

    def forget_manifest(self, name: str) -> None:
        """Delete a model's manifest."""
        self.manifest_file(name).unlink(missing_ok=True)
        self._known.pop(name, None)

    def pins(self, name: str) -> Pins | None:
        """A model's pins; None when it was never pinned.

        Raises:
            ModelError: ``HASH_MISMATCH`` when they cannot be read. That is not the same as "never pinned", after which
                the next pull may accept anything.
        """
        path = self.pins_file(name)
        try:
            return Pins.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            raise ModelError(
                ModelFault.HASH_MISMATCH,
                f"the pinned hashes of {name} in {path} cannot be read ({type(error).__name__})",
                f"Restore {path}, or delete it and pull with --trust-first-use to pin anew",
            ) from error

    def write_pins(self, name: str, pins: Pins) -> None:
        """Pin a model.

        Raises:
            ModelError: ``DISK_FULL`` or ``READ_ONLY_CACHE``.
        """
        self._write(self.pins_file(name), pins)

    def _present(self, name: str) -> Stamp | None:
        try:
            return stamp(self.manifest_file(name))
        except OSError:
            return None

    def _write(self, path: Path, record: _Record) -> None:
        write_atomically(path, json.dumps(record.model_dump(mode="json"), indent=1).encode())
