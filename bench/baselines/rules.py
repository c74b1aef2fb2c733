"""The name under which a policy without weights is recorded: its own source is its model."""

from __future__ import annotations

from pathlib import Path

from bench.provenance import sha256_of
from models.protocols import ModelId


def model_of(name: str, file: str) -> ModelId:
    """The record of a policy that is written down in one file.

    Args:
        name: the policy's name.
        file: its module's ``__file__``.
    """
    return ModelId(name, sha256_of(Path(file)))
