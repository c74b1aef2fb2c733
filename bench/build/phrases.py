"""Finding words in words, whatever their case and punctuation."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

_POSSESSIVE_RE = re.compile(r"['\u2019][sS]\W*$")


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
        phrase: what to look for: whole words, hyphens read as spaces. "Boston" is found in "Boston's", too.

    Returns:
        The indices of each place, in order, not overlapping; empty when it is nowhere, or is no word.
    """
    parts = [(forms, index) for index, word in enumerate(words) for forms in _parts(word)]
    wanted = [bare(part) for word in spoken_words(phrase) for part in word.split("-") if bare(part)]
    found: list[range] = []
    start = 0
    while wanted and start + len(wanted) <= len(parts):
        end = start + len(wanted)
        first, last = parts[start][1], parts[end - 1][1]
        whole = (start == 0 or parts[start - 1][1] != first) and (end == len(parts) or parts[end][1] != last)
        if whole and all(key in forms for key, (forms, _) in zip(wanted, parts[start:end], strict=True)):
            found.append(range(first, last + 1))
            start = end
        else:
            start += 1
    return tuple(found)


def _parts(word: str) -> Iterator[frozenset[str]]:
    """What stands between a word's hyphens: each with and without the ending of a possessive."""
    for part in word.split("-"):
        if bare(part):
            yield frozenset({bare(part), bare(_POSSESSIVE_RE.sub("", part))})
