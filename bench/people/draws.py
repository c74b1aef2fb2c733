"""Random numbers that hang on a name: another recording more or less moves nobody else's draw."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def generator(seed: int, *names: str) -> np.random.Generator:
    """Random numbers for one purpose.

    Args:
        seed: of all of them.
        names: what they are for.
    """
    text = "/".join((str(seed), *names))
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))


def shuffled(items: Sequence[T], seed: int, *names: str) -> list[T]:
    """The items in an order that hangs on the seed and the names."""
    return [items[index] for index in generator(seed, *names).permutation(len(items))]
