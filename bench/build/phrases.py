"""Finding words in words, whatever their case and punctuation."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def bare(text: str) -> str:
    """What is compared of a word: its letters and digits, casefolded, accents kept."""
    return "".join(char for char in unicodedata.normalize("NFKC", text).casefold() if char.isalnum())


def spoken_words(text: str) -> tuple[str, ...]:
    """The words of a text as written, with their punctuation; a dash that stands alone is no word."""
    return tuple(word for word in text.split() if bare(word))


def find_phrase(words: Sequence[str], phrase: str) -> tuple[range, ...]:
    """Where a phrase stands.

    Args:
        words: as written, in order.
        phrase: what to look for, whole words.

    Returns:
        The indices of each place, in order, not overlapping; empty when it is nowhere, or is no word.
    """
    keys = [bare(word) for word in words]
    wanted = [bare(word) for word in spoken_words(phrase)]
    found: list[range] = []
    start = 0
    while wanted and start + len(wanted) <= len(keys):
        if keys[start : start + len(wanted)] == wanted:
            found.append(range(start, start + len(wanted)))
            start += len(wanted)
        else:
            start += 1
    return tuple(found)
