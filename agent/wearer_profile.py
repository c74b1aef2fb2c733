"""The enrolled wearer's profile: one file, bound to the network that made it. Read-only for the live loop."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from agent.session import OwnerReference
from models.protocols import Embedding, ModelId

PROFILE_VERSION = 1


class ProfileError(Exception):
    """A profile cannot be used or written. The message says why and what to do."""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    version: int
    name: str
    model: str
    sha256: str
    speech_s: float
    clips: int
    vector: list[float]


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


def save_profile(path: Path, name: str, reference: OwnerReference, clips: int) -> None:
    """Write a profile, readable by its owner only; the old one stays until the new one is complete.

    Raises:
        ProfileError: when it cannot be written; then nothing is enrolled that was not before.
    """
    content = _File(
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
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(content.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ProfileError(f"{path}: not enrolled: {error.strerror or error}") from error


def load_profile(path: Path, model: ModelId, dimension: int) -> OwnerReference:
    """Read a profile for use with one network.

    Args:
        path: the file.
        model: the network in use.
        dimension: its embedding's length.

    Raises:
        ProfileError: when the file is missing, cut off, not a profile, of another network, or holds no unit vector.
    """
    try:
        content = _File.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise ProfileError(f"{path}: no such profile; make one with `voicegate enroll`") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: {error}") from error
    except (json.JSONDecodeError, ValidationError) as error:
        raise ProfileError(f"{path}: damaged or not a profile ({_first_line(error)}); enroll again") from error
    if content.version != PROFILE_VERSION:
        raise ProfileError(f"{path}: profile version {content.version}, this is {PROFILE_VERSION}; enroll again")
    if (content.model, content.sha256) != (model.name, model.sha256):
        raise ProfileError(
            f"{path}: made with {content.model} ({content.sha256[:12]}), but {model.name} ({model.sha256[:12]}) is in "
            "use; scores of different networks mean nothing to each other: enroll again"
        )
    vector = np.asarray(content.vector, np.float32)
    if vector.shape != (dimension,):
        raise ProfileError(f"{path}: {len(content.vector)} numbers, {model.name} needs {dimension}; enroll again")
    norm = float(np.linalg.norm(vector))
    if not np.isfinite(norm) or abs(norm - 1.0) > 1e-3:
        raise ProfileError(f"{path}: not a unit vector (length {norm:.3g}); enroll again")
    return OwnerReference(vector, content.speech_s, model, "enrolment")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
