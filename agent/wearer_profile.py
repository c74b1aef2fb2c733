"""The enrolled wearer's profile: one file, bound to the network that made it. Read-only for the live loop.

An encrypted profile holds the plain one, sealed, and beside it in clear only what must be known without a passphrase:
whose it is, so that she can have it deleted, and which network made it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from agent.passphrase import PASSPHRASE_VARIABLE
from agent.sealing import Sealed, Sealer, SealError, open_sealed
from agent.session import ENROLMENT, OwnerReference
from models.protocols import Embedding, ModelId

PROFILE_VERSION = 1
_SEAL_MARK = b'"sealed":'
"""Stands in every encrypted profile, also in one that was damaged elsewhere, and in no plain one: inside of a JSON
string the quotes would be escaped."""


class ProfileError(Exception):
    """A profile cannot be used or written. The message says why and what to do."""


class ProfileLockedError(ProfileError):
    """A profile is encrypted, and no passphrase was given."""


class _Header(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    version: int
    name: str
    model: str
    sha256: str

    def label(self) -> bytes:
        """What the seal holds in place, so that no part of one profile can be put into another."""
        return self.model_dump_json(include=set(_Header.model_fields)).encode()


class _File(_Header):
    speech_s: float
    clips: int
    vector: list[float]


class _SealedFile(_Header):
    sealed: Sealed


def average(embeddings: Sequence[Embedding]) -> np.ndarray:
    """The mean of unit vectors, itself made a unit vector: no clip counts more for being louder or longer.

    Args:
        embeddings: at least one, each with a vector.

    Returns:
        float32 ``(dimension,)``.

    Raises:
        ProfileError: when there is nothing to average.
    """
    vectors = [embedding.vector for embedding in embeddings if embedding.vector is not None]
    if not vectors:
        raise ProfileError("no clip gave an embedding")
    mean = np.mean(np.stack([vector / np.linalg.norm(vector) for vector in vectors]), axis=0)
    norm = float(np.linalg.norm(mean))
    if not np.isfinite(norm) or norm < 1e-6:
        raise ProfileError("the clips cancel each other out: they hold different voices")
    return np.asarray(mean / norm, np.float32)


def save_profile(path: Path, name: str, reference: OwnerReference, clips: int, sealer: Sealer | None = None) -> None:
    """Write a profile, readable by its owner only; the old one stays until the new one is complete.

    Args:
        path: the file.
        name: whose it is; readable also in an encrypted profile.
        reference: what she sounds like.
        clips: from how many clips.
        sealer: encrypts it; None writes it plain.

    Raises:
        ProfileError: when it cannot be encrypted or written; then nothing is enrolled that was not before.
    """
    plain = _File(
        version=PROFILE_VERSION,
        name=name,
        model=reference.model.name,
        sha256=reference.model.sha256,
        speech_s=round(reference.speech_s, 3),
        clips=clips,
        vector=[float(value) for value in reference.vector],
    )
    partial = path.with_suffix(".part")
    try:
        content = (plain if sealer is None else _sealed(plain, sealer)).model_dump_json()
        path.parent.mkdir(parents=True, exist_ok=True)
        # What a kill left behind may be readable by others, and a file that is opened again keeps its mode.
        partial.unlink(missing_ok=True)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except SealError as error:
        raise ProfileError(f"{path}: not enrolled: {error}") from error
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ProfileError(f"{path}: not enrolled: {error.strerror or error}") from error


def _sealed(plain: _File, sealer: Sealer) -> _SealedFile:
    sealed = sealer.seal(plain.model_dump_json().encode(), plain.label())
    return _SealedFile(
        version=plain.version, name=plain.name, model=plain.model, sha256=plain.sha256, sealed=sealed
    )  # fmt: skip


def is_encrypted(path: Path) -> bool:
    """Whether a profile is encrypted, which its file alone says.

    False also where there is no file, or none that can be read: ``load_profile`` says what is wrong with it.
    """
    try:
        return _SEAL_MARK in path.read_bytes()
    except OSError:
        return False


def load_profile(
    path: Path, model: ModelId, dimension: int, passphrase: SecretStr | None = None, *, encrypted_only: bool = False
) -> OwnerReference:
    """Read a profile, plain or encrypted, for use with one network.

    Args:
        path: the file.
        model: the network in use.
        dimension: its embedding's length.
        passphrase: opens an encrypted profile; a plain one needs none.
        encrypted_only: refuse a plain profile. A seal also proves that whoever enrolled knew the passphrase, which is
            worth nothing if anybody can put a plain file in its place.

    Raises:
        ProfileLockedError: when it is encrypted and there is no passphrase.
        ProfileError: when the file is missing, cut off, altered, not a profile, of another network, plain though that
            is refused, or holds no unit vector, and when the passphrase is wrong.
    """
    stored = _stored(path)
    _require_fit(path, stored, model)
    if isinstance(stored, _SealedFile):
        content = _opened(path, stored, passphrase)
        _require_fit(path, content, model)
    elif encrypted_only:
        raise ProfileError(f"{path}: not encrypted, but [session] encrypt_profile is true; enroll again")
    else:
        content = stored
    vector = np.asarray(content.vector, np.float32)
    if vector.shape != (dimension,):
        raise ProfileError(f"{path}: {len(content.vector)} numbers, {model.name} needs {dimension}; enroll again")
    norm = float(np.linalg.norm(vector))
    if not np.isfinite(norm) or abs(norm - 1.0) > 1e-3:
        raise ProfileError(f"{path}: not a unit vector (length {norm:.3g}); enroll again")
    return OwnerReference(vector, content.speech_s, model, ENROLMENT)


def _stored(path: Path) -> _File | _SealedFile:
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise ProfileError(f"{path}: no such profile; make one with `voicegate enroll`") from error
    except OSError as error:
        raise ProfileError(f"{path}: {error}") from error
    try:
        if _SEAL_MARK not in raw:
            return _File.model_validate(json.loads(raw.decode()))
        sealed = _SealedFile.model_validate_json(raw)
    except (UnicodeDecodeError, json.JSONDecodeError, ValidationError) as error:
        raise ProfileError(f"{path}: damaged or not a profile ({_first_line(error)}); enroll again") from error
    # The same content can be written in many ways (spaces, escapes, keys twice). Only ours is authentic.
    if sealed.model_dump_json().encode() != raw:
        raise ProfileError(f"{path}: damaged (not as it was written); enroll again")
    return sealed


def _require_fit(path: Path, header: _Header, model: ModelId) -> None:
    if header.version != PROFILE_VERSION:
        raise ProfileError(f"{path}: profile version {header.version}, this is {PROFILE_VERSION}; enroll again")
    if (header.model, header.sha256) != (model.name, model.sha256):
        raise ProfileError(
            f"{path}: made with {header.model} ({header.sha256[:12]}), but {model.name} ({model.sha256[:12]}) is in "
            "use; scores of different networks mean nothing to each other: enroll again"
        )


def _opened(path: Path, stored: _SealedFile, passphrase: SecretStr | None) -> _File:
    if passphrase is None:
        raise ProfileLockedError(
            f"{path}: encrypted, and there is no passphrase: set {PASSPHRASE_VARIABLE}, or run in a terminal, which "
            "asks for it"
        )
    try:
        return _File.model_validate_json(open_sealed(stored.sealed, stored.label(), passphrase))
    except SealError as error:
        raise ProfileError(
            f"{path}: does not open: {error}; give the passphrase that it was enrolled with ({PASSPHRASE_VARIABLE}, or "
            "typed in a terminal), or enroll again"
        ) from error
    except ValidationError as error:
        # Not chained: the cause would carry the embedding.
        raise ProfileError(f"{path}: holds no profile ({_first_line(error)}); enroll again") from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
