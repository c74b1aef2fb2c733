"""Which heard words carry an argument. An argument that no word carries was invented, and is never executed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from gate.correction import rests_on_doubt
from gate.evidence import Word
from gate.self_repairs import self_repairs
from gate.spoken import FILLERS, SpokenToken, tokens

_ARTICLES = frozenset({"a", "an"})
_SKIPPED = FILLERS | _ARTICLES | {"the"}
"""What may stand between two words of an argument without changing what it says."""
_NEGATIONS = frozenset(
    {"not", "never", "without", "dont", "doesnt", "didnt", "isnt", "arent", "wasnt", "werent", "wont", "cant", "cannot"}
)
_CORRECTIONS = frozenset({"no", "nope", "sorry", "actually", "rather", "wait", "correction", "mean", "scratch"})
"""Between two numbers, these take the first one back."""
_NOT_ONE = frozenset({"few", "couple", "lot", "bunch", "bit", "number", "pair", "little", "while", "good", "great"})
"""After an article, these make it mean something else than one."""
_CLAUSE_STARTS = frozenset({"and", "then", "please", "now", "thanks", "again"})
_CURRENCIES = frozenset({"dollars", "euros", "pounds", "yen", "yuan", "rupees", "francs", "pesos", "won"})
"""What may follow the number in a phrase that is nothing but a number."""
_MASK = "[?]"
"""How a masked stretch is written to the policy; no value may hold it."""


def normal_form(text: str) -> tuple[str, ...]:
    """Tokens of ``text`` for comparison: NFKC, casefolded, punctuation and possessive endings gone, numbers in digits.

    "Seven", "7" and "seven," compare equal, and so do "7:30" and "seven thirty", or "$60" and "sixty dollars". A number
    is always one token: "two hundred fifty" holds no "fifty". Accents and vowel signs are kept: they tell names apart.
    """
    return tuple(token.text for token in tokens(text.split()))


def ground_text(value: str, words: Sequence[Word]) -> tuple[Word, ...] | None:
    """The heard words that a text argument copies.

    Args:
        value: the argument.
        words: the heard words, in order, of one turn.

    Returns:
        The shortest, then latest, run of words that says the value, with nothing between its tokens but fillers,
        articles and repetitions; None when there is no such run. A run that cuts a number or leaves out the "not"
        before it does not count: it would say something else. Neither does one that was taken back, or may have been
        ("Maria, sorry, Anna"). The latest wins because a speaker who corrects herself means the last version.
    """
    wanted = normal_form(value)
    if not wanted or _MASK in value:
        return None
    heard = tokens([word.text for word in words])
    repairs = self_repairs(words)
    best: tuple[int, int] | None = None
    for start in range(len(heard)):
        end = _match_from(heard, start, wanted)
        if end is None or _negated(heard, start):
            continue
        # Not the ends of the run: a currency sign is written before its number and read behind it.
        run = (
            min(token.first for token in heard[start : end + 1]),
            max(token.last for token in heard[start : end + 1]),
        )
        if rests_on_doubt(repairs, *run):
            continue
        if best is None or run[1] - run[0] <= best[1] - best[0]:
            best = run
    if best is None:
        return None
    return tuple(words[best[0] : best[1] + 1])


def _match_from(heard: Sequence[SpokenToken], start: int, wanted: Sequence[str]) -> int | None:
    if heard[start].text != wanted[0]:
        return None
    position = start
    for token in wanted[1:]:
        spoken = heard[position].text
        position += 1
        while position < len(heard) and heard[position].text != token:
            if heard[position].text not in _SKIPPED and heard[position].text != spoken:
                return None
            position += 1
        if position == len(heard):
            return None
    return position


def _negated(heard: Sequence[SpokenToken], start: int) -> bool:
    before = start - 1
    while before >= 0 and heard[before].text in _SKIPPED:
        before -= 1
    return before >= 0 and heard[before].text in _NEGATIONS


def ground_choice(value: str, words: Sequence[Word]) -> tuple[Word, ...] | None:
    """The heard words that name a choice ("turn_off" in "turn the lamp off").

    Args:
        value: one of a parameter's choices.
        words: the heard words, in order, of one turn.

    Returns:
        The words; "turn" and "off" may stand up to four words apart when the last of them ends a clause. None when the
        choice was not named, which does not prove that it was invented: a person may say it in other words. None also
        when it was named and taken back, or may have been (see ``names_choice``).
    """
    spelled = value.replace("_", " ")
    run = ground_text(spelled, words)
    if run is not None:
        return run
    repairs = self_repairs(words)
    for found in _scattered(spelled, words):
        if not any(rests_on_doubt(repairs, index, index) for index in found):
            return tuple(words[index] for index in found)
    return None


def names_choice(value: str, words: Sequence[Word]) -> bool:
    """Whether a choice was named at all, also where it was or may have been taken back."""
    spelled = value.replace("_", " ")
    wanted, heard = normal_form(spelled), tokens([word.text for word in words])
    whole = any(
        _match_from(heard, start, wanted) is not None and not _negated(heard, start) for start in range(len(heard))
    )
    return bool(wanted) and (whole or next(_scattered(spelled, words), None) is not None)


def _scattered(spelled: str, words: Sequence[Word]) -> Iterator[tuple[int, ...]]:
    """Indices of the words that name a choice with others between them, the latest first."""
    wanted = normal_form(spelled)
    heard = tokens([word.text for word in words])
    for start in range(len(heard) - 1, -1, -1):
        if not wanted or heard[start].text != wanted[0] or _negated(heard, start):
            continue
        found = [start]
        for token in wanted[1:]:
            ahead = range(found[-1] + 1, min(len(heard), found[-1] + 6))
            at = next((index for index in ahead if heard[index].text == token), None)
            if at is None:
                break
            found.append(at)
        if len(found) == len(wanted) and _ends_clause(heard, found[-1], words):
            yield tuple(word for index in found for word in range(heard[index].first, heard[index].last + 1))


def _ends_clause(heard: Sequence[SpokenToken], index: int, words: Sequence[Word]) -> bool:
    """Whether a particle belongs to the verb before it ("turn it off."), not to a noun behind it ("turn up X on Y")."""
    if index + 1 == len(heard) or words[heard[index].last].text.endswith((",", ".", "?", "!", ";")):
        return True
    return heard[index + 1].text in _CLAUSE_STARTS


def ground_number(value: float, words: Sequence[Word]) -> tuple[Word, ...] | None:
    """The heard words that say a number.

    Args:
        value: the argument.
        words: the heard words, in order, of one turn.

    Returns:
        The words of the latest number with that value. For 1, without such a number, every "a" and "an" that can mean
        one. None when the number was not said, was only part of a larger one, can be read in two ways, was negated, was
        taken back ("sixty, no, seventy"), or may or may not have taken another back ("sixty no seventy").
    """
    heard = tokens([word.text for word in words])
    repairs = self_repairs(words)
    for index in range(len(heard) - 1, -1, -1):
        token = heard[index]
        if token.value is not None and float(token.value) == value and not _negated(heard, index):
            doubtful = _taken_back(heard, index) or rests_on_doubt(repairs, token.first, token.last)
            return None if doubtful else tuple(words[token.first : token.last + 1])
    if value == 1:
        ones = [token.first for index, token in enumerate(heard) if _means_one(heard, index)]
        return tuple(words[index] for index in ones) or None
    return None


def _taken_back(heard: Sequence[SpokenToken], index: int) -> bool:
    later = [at for at in range(index + 1, len(heard)) if heard[at].number]
    if not later:
        return False
    between = [token.text for token in heard[index + 1 : later[-1]]]
    return any(text in _CORRECTIONS for text in between) or any(
        pair in (("make", "it"), ("make", "that")) for pair in pairwise(between)
    )


def _means_one(heard: Sequence[SpokenToken], index: int) -> bool:
    if heard[index].text not in _ARTICLES:
        return False
    following = next((token for token in heard[index + 1 :] if token.text not in FILLERS), None)
    return following is not None and not following.number and following.text not in _NOT_ONE


def spoken_number(phrase: str) -> float | None:
    """The number that a whole phrase says ("sixty", "$1,250.50", "two hundred and five"), or None."""
    said = [token for token in tokens(phrase.split()) if token.text not in FILLERS]
    if not said or any(token.text not in _CURRENCIES for token in said[1:]) or said[0].value is None:
        return None
    return float(said[0].value)


def last_number(words: Sequence[Word]) -> float | None:
    """The one number that some words give, after corrections.

    Args:
        words: an answer to "how much?", in order.

    Returns:
        The last number, when it can be read in one way only and all numbers before it are the same or were taken back;
        otherwise None.
    """
    heard = tokens([word.text for word in words])
    numbers = [index for index, token in enumerate(heard) if token.number]
    if not numbers:
        return None
    last = heard[numbers[-1]].value
    if last is None or _negated(heard, numbers[-1]):
        return None
    for index in numbers[:-1]:
        if heard[index].value != last and not _taken_back(heard, index):
            return None
    return float(last)
