"""What of a response only repeats what was said or asked. Small models often say it again instead of replying."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.judges import wording

_ECHO_WORDS: Final = 4
"""A shorter sentence may well be an answer made of words that were said ("a fish")."""
_ECHO_FROM: Final = 0.85
"""The share of its pairs of neighbouring words that a repeated sentence has from what was said. Less is a reply that
takes words up: "a plum is a stone fruit"."""


def without_echoes(response: str, said: Sequence[str]) -> str:
    """A response without the sentences that only repeat.

    Args:
        response: the response.
        said: the texts that may be repeated.

    Returns:
        What is left; empty when it only repeats.
    """
    pairs = {pair for text in said for pair in _pairs(text)}
    content = [word for text in said for word in wording.content_words(text)]

    def repeats(sentence: str) -> bool:
        own = _pairs(sentence)
        return (
            len(wording.words(sentence)) >= _ECHO_WORDS
            and len(own & pairs) >= _ECHO_FROM * len(own)
            and not wording.without(wording.content_words(sentence), content)
        )

    return " ".join(one for one in wording.sentences(response) if not repeats(one))


def _pairs(text: str) -> set[tuple[str, ...]]:
    """The pairs of neighbouring words of a text; of a single word, that word."""
    said = wording.words(text)
    return {tuple(said[at : at + 2]) for at in range(max(1, len(said) - 1))} if said else set()
