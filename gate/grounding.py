"""Which heard words carry an argument. An argument that no word carries was invented, and is never executed."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from text_to_num import text2num

from gate.evidence import Word

_ARTICLES = frozenset({"a", "an"})


def normal_form(text: str) -> tuple[str, ...]:
    """Tokens of ``text`` for comparison: NFKC, casefolded, punctuation gone, possessive and currency signs dropped.

    "Seven", "7", "$7" and "seven," compare equal: number words become digits.
    """
    tokens: list[str] = []
    for raw in unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'").split():
        token = raw.removesuffix("'s") if raw.endswith("'s") else raw
        token = "".join(
            char
            for index, char in enumerate(token)
            if char.isalnum() or (char in ".:,'" and 0 < index < len(token) - 1 and token[index + 1].isalnum())
        )
        token = token.replace("'", "")
        if token and all(char.isdigit() or char in ".,:" for char in token):
            token = token.replace(",", "")
            if token.count(".") == 1:
                token = token.rstrip("0").rstrip(".")
        if token:
            tokens.append(_digits(token))
    return tuple(tokens)


def _digits(token: str) -> str:
    if not token.isalpha() or len(token) < 3:
        return token
    try:
        return str(text2num(token, "en"))
    except ValueError:
        return token


def ground_text(value: str, words: Sequence[Word]) -> tuple[Word, ...] | None:
    """The heard words that a text argument copies.

    Args:
        value: the argument.
        words: the heard words, in order.

    Returns:
        The shortest, then latest, run of words that holds every token of the value in order, with at most one other
        word between two tokens (a filler); None when there is no such run. The latest wins because a speaker who
        corrects herself means the last version.
    """
    wanted = normal_form(value)
    if not wanted:
        return None
    heard: list[tuple[str, int]] = [
        (token, index) for index, word in enumerate(words) for token in normal_form(word.text)
    ]
    best: tuple[int, int] | None = None
    for start in range(len(heard)):
        end = _match_from(heard, start, wanted)
        if end is not None:
            run = (heard[start][1], heard[end][1])
            if best is None or run[1] - run[0] <= best[1] - best[0]:
                best = run
    if best is None:
        return None
    return tuple(words[best[0] : best[1] + 1])


def _match_from(heard: Sequence[tuple[str, int]], start: int, wanted: Sequence[str]) -> int | None:
    if heard[start][0] != wanted[0]:
        return None
    position = start
    for token in wanted[1:]:
        for step in (1, 2):
            if position + step < len(heard) and heard[position + step][0] == token:
                position += step
                break
        else:
            return None
    return position


def ground_number(value: float, words: Sequence[Word]) -> tuple[Word, ...] | None:
    """The heard words that say a number.

    Args:
        value: the argument.
        words: the heard words, in order.

    Returns:
        The words, the longest phrase first ("two hundred fifty" before "fifty"); for 1 also a lone "a" or "an".
        None when the number was not said.
    """
    for length in range(min(8, len(words)), 0, -1):
        for start in range(len(words) - length, -1, -1):
            run = words[start : start + length]
            if spoken_number(" ".join(word.text for word in run)) == value:
                return tuple(run)
    if value == 1:
        for word in reversed(words):
            if "".join(char for char in word.text.casefold() if char.isalpha()) in _ARTICLES:
                return (word,)
    return None


def spoken_number(phrase: str) -> float | None:
    """The number that a whole phrase says ("sixty", "$1,250.50", "two hundred and five"), or None."""
    compact = phrase.strip().strip("?!.,;:").replace("$", "").replace("€", "").replace("£", "").replace("%", "")
    try:
        return float(compact.replace(",", "")) if compact[:1].isdigit() else float(text2num(compact.casefold(), "en"))
    except ValueError:
        return None
