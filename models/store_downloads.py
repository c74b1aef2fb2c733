"""Downloaded archives that are kept: one wheel may hold several models, so it stays until all have been taken."""

from __future__ import annotations

from pathlib import Path

from models.registry import ArchiveSpec


class Downloads:
    """The archives of one cache directory."""

    def __init__(self, cache_dir: Path) -> None:
        self.directory = cache_dir / ".downloads"

    def path(self, archive: ArchiveSpec) -> Path:
        """Where an archive lies, or would."""
        suffix = "whl" if archive.kind == "pypi" else "tgz"
        plain_name = f"{archive.package}-{archive.version}.{suffix}".replace("/", "-")
        return self.directory / (archive.filename or plain_name)

    def lacking_bytes(self, archive: ArchiveSpec) -> int:
        """How much of it is still to come."""
        whole = self.path(archive)
        if whole.is_file():
            return 0
        part = whole.with_name(whole.name + ".part")
        return max(archive.size_bytes - (part.stat().st_size if part.is_file() else 0), 0)
