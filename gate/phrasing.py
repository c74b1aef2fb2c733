"""Tells a question about the state of things from a command. "Is the light on?" must never turn it on.

English only, by the form of the words: a veto beside the policy's own judgement, which it can only tighten. A polite
request ("could you turn it off?") is a command.
"""

from __future__ import annotations

from collections.abc import Sequence

from gate.evidence import Word
from gate.spoken import tokens

_OPENERS = frozenset(
    {
        "is", "are", "was", "were", "am", "isnt", "arent", "wasnt", "werent", "did", "didnt", "does", "doesnt", "has",
        "hasnt", "had", "what", "whats", "which", "who", "whos", "whose", "when", "where", "wheres",
    }
)  # fmt: skip
_OPENER_PAIRS = frozenset(
    (verb, who)
    for verb in ("do", "have", "will", "should", "dont", "havent")
    for who in ("i", "we", "they", "he", "she", "it", "the", "my")
)
_REQUESTS = frozenset(
    {(verb, "you") for verb in ("can", "could", "would", "will", "do")} | {("what", "about"), ("what", "if")}
)
_ADDRESS = frozenset({"hey", "hi", "ok", "okay", "so", "and", "but", "well", "oh", "please", "now", "then"})


def is_question_about_state(words: Sequence[Word]) -> bool:
    """Whether the last sentence asks how things are.

    Args:
        words: the heard words, in order, with the recogniser's punctuation.

    Returns:
        True when the last sentence ends with a question mark, one of its clauses opens like a question, and none like a
        request.
    """
    if not words or not words[-1].text.rstrip("\"')").endswith("?"):
        return False
    start = next((at for at in range(len(words) - 1, 0, -1) if words[at - 1].text.endswith((".", "?", "!"))), 0)
    openings: list[tuple[str, ...]] = []
    clause: list[str] = []
    for word in words[start:]:
        clause.append(word.text)
        if word.text.endswith((",", ";", ":", "?")):
            openings.append(_opening(clause))
            clause = []
    if any(opening in _REQUESTS for opening in openings):
        return False
    return any(opening[:1] and (opening[0] in _OPENERS or opening in _OPENER_PAIRS) for opening in openings)


def _opening(clause: Sequence[str]) -> tuple[str, ...]:
    texts = [token.text for token in tokens(clause)]
    while texts and texts[0] in _ADDRESS:
        del texts[0]
    return tuple(texts[:2])
