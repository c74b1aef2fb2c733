"""The words with which a speaker takes back what she has just said: "no", "I mean", "scratch that".

Levelt (1983, "Monitoring and self-repair in speech") calls them editing terms; in Shriberg's (1994) structure they fill
the interregnum. English only. Most of them are also ordinary words ("tell Ben no"), so finding one says nothing by
itself: ``gate.correction`` looks at what stands on either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gate.spoken import SpokenToken


def _phrases(*phrases: str) -> frozenset[tuple[str, ...]]:
    return frozenset(tuple(phrase.split()) for phrase in phrases)


_BARE = _phrases("no", "nope", "nah", "sorry", "oops", "actually", "wait", "rather", "apologies")
"""Alone, each may just as well belong to the sentence."""
_EXPLICIT = _phrases(
    "i mean", "i meant", "make it", "make that", "scratch that", "strike that", "correction", "or rather", "no weight",
    "let me correct that", "i should say",
)  # fmt: skip
"""Hardly ever anything else between two values. A recogniser writes "no wait" as "no weight"."""
_SOFT = _phrases("oh", "well", "or", "hang on", "hold on", "ah", "my bad", "my mistake", "excuse me")
"""May stand among the others; none by itself."""
_CLEARING = _phrases("scratch that", "strike that")
"""Take back everything before them, also where nothing like it follows."""
_CALL_OFFS = _phrases(
    "never mind", "nevermind", "forget it", "forget that", "forget about it", "forget about that", "scratch that",
    "strike that", "cancel that", "cancel it", "dont do it", "dont do that",
)  # fmt: skip
"""At the end of an utterance, these take all of it back."""
_POLITE = _phrases("please", "thanks", "thank you", "instead")
_LONGEST = 4


@dataclass(frozen=True, slots=True)
class EditingTerm:
    """A run of editing terms.

    Attributes:
        start: index of its first token.
        end: index one past its last.
        explicit: whether it can hardly be part of a message: one clear phrase, or several terms in a row ("no, wait").
        clears: whether it takes back all that stands before it, whatever follows.
    """

    start: int
    end: int
    explicit: bool
    clears: bool


def editing_terms(tokens: Sequence[SpokenToken]) -> tuple[EditingTerm, ...]:
    """Every longest run of editing terms in ``tokens`` (without fillers), in order."""
    out: list[EditingTerm] = []
    position = 0
    while position < len(tokens):
        term = _run_at(tokens, position)
        if term is not None:
            out.append(term)
            position = term.end
        else:
            position += 1
    return tuple(out)


def call_off_at(tokens: Sequence[SpokenToken]) -> int | None:
    """The index at which the utterance is called off to its end ("…, no, never mind"), or None when it is not."""
    end = len(tokens) - polite_length(tokens)
    for length in range(1, _LONGEST + 1):
        start = end - length
        if start > 0 and _texts(tokens, start, length) in _CALL_OFFS:
            while start > 0 and (_texts(tokens, start - 1, 1) in _BARE | _SOFT):
                start -= 1
            return start if start > 0 else None
    return None


def polite_length(tokens: Sequence[SpokenToken]) -> int:
    """How many tokens at the end are mere politeness."""
    end = len(tokens)
    shortened = True
    while shortened:
        shortened = False
        for length in (1, 2):
            if end >= length and _texts(tokens, end - length, length) in _POLITE:
                end -= length
                shortened = True
    return len(tokens) - end


def _run_at(tokens: Sequence[SpokenToken], start: int) -> EditingTerm | None:
    end, terms, explicit, clears = start, 0, False, False
    while end < len(tokens):
        length = _longest_of(_EXPLICIT, tokens, end)
        if length:
            explicit, terms = True, terms + 1
            clears = clears or _texts(tokens, end, length) in _CLEARING
        elif length := _longest_of(_BARE, tokens, end):
            terms += 1
        else:
            length = _longest_of(_SOFT, tokens, end)
        if not length:
            break
        end += length
    return EditingTerm(start, end, explicit or terms > 1, clears) if terms else None


def _longest_of(phrases: frozenset[tuple[str, ...]], tokens: Sequence[SpokenToken], at: int) -> int:
    return next((n for n in range(_LONGEST, 0, -1) if _texts(tokens, at, n) in phrases), 0)


def _texts(tokens: Sequence[SpokenToken], start: int, length: int) -> tuple[str, ...]:
    return tuple(token.text for token in tokens[start : start + length]) if start + length <= len(tokens) else ()
