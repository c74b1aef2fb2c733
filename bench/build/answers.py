"""Whether words contain an answer, as a person would hear it: numbers whole, small slips of spelling forgiven."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Final

from gate.spoken import tokens

ARTICLES: Final = frozenset({"a", "an", "the"})
ALIKE_FROM: Final = 0.8
"""Similarity from which two spellings are of the same word ("Katowice", "Katovice")."""
ALIKE_LETTERS: Final = 5
"""Shorter words must be equal: "ten" is not "then"."""


def says(words: Sequence[str], answer: str) -> bool:
    """Whether an answer stands in some words, exactly but for case, punctuation and how numbers are written.

    Args:
        words: as written.
        answer: what to look for; a leading article does not count.
    """
    said = _texts(words)
    wanted = _wanted(answer)
    return bool(wanted) and any(
        said[start : start + len(wanted)] == wanted for start in range(len(said) - len(wanted) + 1)
    )


def heard(words: Sequence[str], answers: Sequence[str]) -> bool:
    """Whether one of several answers stands in recognised words, where a recogniser may have misspelt it.

    Words run together or apart ("bee keeper") and words of five letters or more that are nearly alike count.
    """
    said = _texts(words)
    return any(_stands_in(said, _wanted(answer)) for answer in answers)


def _stands_in(said: Sequence[str], wanted: Sequence[str]) -> bool:
    target = "".join(wanted)
    if not target:
        return False
    for length in range(max(1, len(wanted) - 1), len(wanted) + 2):
        for start in range(len(said) - length + 1):
            window = "".join(said[start : start + length])
            if window == target or (_spelt(target) and _spelt(window) and _alike(window, target)):
                return True
    return False


def _spelt(text: str) -> bool:
    return len(text) >= ALIKE_LETTERS and text.isalpha()


def _alike(one: str, other: str) -> bool:
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    return matcher.quick_ratio() >= ALIKE_FROM and matcher.ratio() >= ALIKE_FROM


def _texts(words: Sequence[str]) -> tuple[str, ...]:
    return _texts_of(" ".join(words))


@functools.lru_cache(maxsize=8192)  # a corpus compares each of its texts with each of its answers
def _texts_of(text: str) -> tuple[str, ...]:
    return tuple(token.text for token in tokens(text.replace("-", " ").split()))


def _wanted(answer: str) -> tuple[str, ...]:
    wanted = _texts_of(answer)
    return wanted[1:] if len(wanted) > 1 and wanted[0] in ARTICLES else wanted
