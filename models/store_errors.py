"""What can go wrong with a model: one exception, a closed set of codes, and always what to do about it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path


class ModelFault(StrEnum):
    """Machine-readable kinds of model problem. Values are stable: scripts and logs match on them."""

    UNKNOWN_MODEL = "unknown_model"
    """The registry has no model of that name."""
    BAD_REGISTRY = "bad_registry"
    """The registry file breaks its own rules."""
    MISSING = "missing"
    """The model, or one of its files, is not in the cache."""
    STALE = "stale"
    """A built model was made by another builder version or from other inputs."""
    HASH_MISMATCH = "hash_mismatch"
    """A file's bytes are not the ones recorded."""
    UNLISTED_FILE = "unlisted_file"
    """The model's directory holds a file that the registry does not list."""
    UNHASHED = "unhashed"
    """No hash is known and the caller did not ask to trust the first download."""
    WRONG_MEMBER = "wrong_member"
    """An archive lacks a listed member, has a surplus one, or one with an unsafe path."""
    TRUNCATED = "truncated"
    """Fewer bytes arrived than were announced, or an archive ends early."""
    NOT_PUBLISHED = "not_published"
    """The index answered, but does not carry that package, version or file."""
    NO_INDEX = "no_index"
    """Neither pip's nor npm's configuration says where packages come from."""
    NO_NETWORK = "no_network"
    """The server could not be reached, or refused."""
    OFFLINE = "offline"
    """A download is needed but the network is switched off by flag or environment."""
    DISK_FULL = "disk_full"
    """Not enough space for the model."""
    READ_ONLY_CACHE = "read_only_cache"
    """The cache directory cannot be written."""
    BUSY = "busy"
    """Another process holds the model's lock."""
    BUILD_FAILED = "build_failed"
    """The function that derives the model from others failed."""


class ModelError(Exception):
    """A model problem.

    Attributes:
        code: which kind.
        message: one sentence that names the model or file.
        cure: what to do about it.
        file: the file concerned, relative to its model's directory, or ``""`` when it is not about one such file.
    """

    def __init__(self, code: ModelFault, message: str, cure: str, file: str = "") -> None:
        super().__init__(f"{message}. {cure}")
        self.code = code
        self.message = message
        self.cure = cure
        self.file = file


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write ``path`` into a ``ModelError`` that says what to do.

    Raises:
        ModelError: ``DISK_FULL`` (ENOSPC, EDQUOT) or ``READ_ONLY_CACHE`` (EROFS, EACCES, EPERM). Others pass through.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelError(
                ModelFault.DISK_FULL,
                f"the disk is full: could not write {path}",
                "Free some space, or set VOICEGATE_MODELS to a directory on another disk, then pull again",
            ) from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise ModelError(
                ModelFault.READ_ONLY_CACHE,
                f"the model cache cannot be written: {path}",
                "Make the directory writable, or set VOICEGATE_MODELS to one that is",
            ) from error
        raise
