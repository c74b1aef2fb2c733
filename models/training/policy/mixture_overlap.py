"""Whether a text is the same as one that is held out, or nearly: what training must not see.

Two texts are near when more than 85 % of their letters match in order (Ratcliff and Obershelp 1988, as ``difflib`` has
it), after case and punctuation are gone. Only texts of like length that share about two thirds of their letter pairs
are compared in full: with fewer, what matches are pieces of four letters or less, which makes no near-duplicate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

import numpy as np
import numpy.typing as npt

NEAR_FROM = 0.85
_SHARED_PAIRS = 0.65
_LONG = 160
"""From so many letters on, words are matched in the place of letters, which would take seconds a pair."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789 "


class HeldOut:
    """Texts that training must not see.

    Args:
        texts: of them.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        bare = sorted({normalised(text) for text in texts} - {""}, key=len)
        self._texts = bare
        self._known = frozenset(bare)
        self._lengths = np.array([len(text) for text in bare])
        # One row a pair of letters: of most pairs a text has none, and their rows need not be read.
        pairs = [_pairs(text) for text in bare]
        self._pairs = np.ascontiguousarray(np.stack(pairs, axis=1)) if pairs else np.zeros((1, 0), np.uint8)

    def is_near(self, text: str) -> bool:
        """Whether a text is one of them, or nearly."""
        bare = normalised(text)
        if bare in self._known:
            return True
        # A ratio of r needs lengths between r / (2 - r) and (2 - r) / r of each other.
        low, high = np.searchsorted(
            self._lengths, (len(bare) * NEAR_FROM / (2 - NEAR_FROM), len(bare) * (2 - NEAR_FROM) / NEAR_FROM)
        )
        if low == high or not bare:
            return False
        mine = _pairs(bare)
        own = np.flatnonzero(mine)
        shared = np.minimum(self._pairs[own, low:high], mine[own, None]).sum(axis=0, dtype=np.int32)
        alike = 2 * shared >= _SHARED_PAIRS * (self._lengths[low:high] + len(bare) - 2)
        return any(_matches(self._texts[low + at], bare) for at in np.flatnonzero(alike))


def normalised(text: str) -> str:
    """Letters, digits and single spaces, in lower case; apostrophes are dropped."""
    return " ".join(re.sub(r"[^a-z0-9 ]", " ", text.lower().replace("'", "")).split())


def _pairs(text: str) -> npt.NDArray[np.uint8]:
    """How often each pair of letters stands in a normalised text."""
    places = np.array([_LETTERS.index(char) for char in text], dtype=np.int64)
    counts = np.bincount(places[:-1] * len(_LETTERS) + places[1:], minlength=len(_LETTERS) ** 2)
    return np.minimum(counts, 255).astype(np.uint8)


def _matches(one: str, other: str) -> bool:
    first, second = (one.split(), other.split()) if len(one) > _LONG else (one, other)
    matcher = SequenceMatcher(None, first, second, autojunk=False)
    return matcher.quick_ratio() > NEAR_FROM and matcher.ratio() > NEAR_FROM
