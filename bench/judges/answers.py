"""Whether an answer is right, by rules: the accepted words have to stand in it as what it commits to.

Numbers, times, dates and measures are compared by what they say (``readings``), other words by their forms
(``same_word``). Words that are denied, put into a side clause, offered as one of several, taken back, or said of
somebody whom the question does not ask for do not count. A question that asks why is answered in many words, so its
answers are compared by meaning; anywhere else likeness is no proof (a fridge is like a freezer).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.judges.case import Case, Verdict
from bench.judges.readings import Token, read
from bench.judges.same_word import IsWord, other_names, same_word
from bench.judges.wording import content_words, has_cue, plain, share_of, words

Alike = Callable[[str, Sequence[str]], float]
"""The largest likeness in meaning between any stretch of a text and some answers, -1 to 1."""

WHY_FROM: Final = 0.6
"""Likeness from which a reason is the accepted one; set on the training set (its nearest: 0.71 right, 0.47 wrong)."""

_LEADING = frozenset(
    ("in", "at", "by", "because", "to", "as", "on", "his", "her", "my", "their", "mr", "mrs", "they", "he", "she", "it",
     "was", "is")
)  # fmt: skip
"""May stand before an accepted answer without being part of it."""
_SPLIT = re.compile(
    r"(?<=[.!?…;:,])\s+|\s+[-\u2013\u2014]+\s+|\s+(?=(?:but|while|whereas|although|though|because|since|however|except|rather"
    r"|instead|and then|then|not|nor|and the|yet|after|before|when|until)\b)",
    re.IGNORECASE,
)
_DENIES = re.compile(
    r"\b(not|no|never|nor|neither|nobody|nothing|without|except|\w+n't|forgot|forgets|instead of|rather than"
    r"|anything but|all but|used to|formerly|out of|than|only in|only on)\b",
    re.IGNORECASE,
)
_SIDE_CLAUSE = re.compile(
    r"(as (?!an? |his |her |the )|because|since|while|whereas|although|though|except|rather|instead|not|nor|when|until"
    r"|after|before|if|anything|unlike)\b",
    re.IGNORECASE,
)
_EXCLUDES = re.compile(r"(anything but|all \w+ but|not)\b", re.IGNORECASE)
_EVERYTHING = re.compile(r"\b(all|any|every\w*|anything|everything|nothing|no one)\b", re.IGNORECASE)
_TAKEN_BACK = re.compile(
    r"(no wait|wait\b|no\b|i mean|scratch that|or rather|rather\b|but (today|now|then|later|in the end|finally|it is"
    r"|it's|it was)\b|and then|then cut|however)",
    re.IGNORECASE,
)
_ASKS_FOR_WHAT_IS_NOT = re.compile(
    r"\b(not|\w+n't|never|forg[eo]t\w*|dislik\w*|without|fail\w*|miss\w*)\b", re.IGNORECASE
)
_DENIED_VERB = re.compile(r"\b(?:not|never|\w+n't)\s+(\w{3,})")
_YES: Final = frozenset({"yes", "yep", "yeah", "yup", "sure", "correct", "indeed"})
_NO: Final = frozenset({"no", "nope", "nah", "never"})
_LETTER = re.compile(r"[A-F]")
_OPTION_FIRST = re.compile(
    r"^\W*(?:the )?(?:correct )?(?:answer|option|choice)?\W*(?:is)?\W*(?:option\W*)?\(?([A-F])(?:[).:;,]|$)",
    re.IGNORECASE,
)
_OPTION_NAMED = re.compile(r"\boption (?:is )?\(?([A-F])\b|\(([A-F])\)")
_OWNERS = frozenset({"the", "a", "an", "his", "her", "their", "my", "our", "its"})
_LINKS = frozenset(
    ("by", "from", "of", "is", "was", "are", "were", "called", "named", "said", "it's", "that's", "be", "been")
)  # fmt: skip
"""After these, words that follow a verb may still name who did it ("was won by", "a gift of")."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A place where an accepted answer stands."""

    clause: int
    counts: bool


def judge_answer(case: Case, is_word: IsWord, alike: Alike) -> Verdict:
    """The verdict on an answer to a question.

    Args:
        case: with its question and accepted answers.
        is_word: the vocabulary, for slips of spelling.
        alike: likeness in meaning, for reasons.
    """
    response = case.response
    letters = [answer for answer in case.accepted if _LETTER.fullmatch(answer)]
    accepted = [answer for answer in case.accepted if answer not in letters] or list(case.accepted)
    option = chosen_option(response) if letters else None
    if option is not None:
        return _verdict(option in letters, "option")
    plain_answers = {answer.lower().strip(". ") for answer in accepted}
    if plain_answers & {"yes", "no"}:
        return _verdict(polarity(response) * (1 if "yes" in plain_answers else -1) > 0, "yes or no")
    return _by_words(case, accepted, is_word, alike)


def _verdict(right: bool, by: str) -> Verdict:
    return Verdict("correct" if right else "incorrect", f"words: {by}")


def _by_words(case: Case, accepted: Sequence[str], is_word: IsWord, alike: Alike) -> Verdict:
    variants = _variants(accepted)
    if _other_half_of_day(case.response, variants):
        return _verdict(False, "other half of the day")
    clauses = split_clauses(case.response)
    found = _places(case.question, clauses, variants, is_word)
    counting = [place for place in found if place.counts]
    if counting:
        later = clauses[counting[-1].clause + 1 :]
        if any(_TAKEN_BACK.match(clause) and content_words(clause) and not _doubts(clause) for clause in later):
            return _verdict(False, "taken back")
        if len(clauses) >= 3 and all(len(words(clause)) <= 2 and content_words(clause) for clause in clauses):
            return _verdict(False, "one of a list")
        return _verdict(True, "said")
    if found:
        return _verdict(False, "said, but not as the answer")
    if case.question.lower().startswith("why"):
        return _verdict(alike(case.response, accepted) >= WHY_FROM, "meaning")
    return _verdict(False, "not said")


def _doubts(clause: str) -> bool:
    return has_cue("inability", clause) or has_cue("hedge", clause)


def chosen_option(response: str) -> str | None:
    """The letter of the choice that a response names, A to F, or None."""
    text = plain(response)
    first = _OPTION_FIRST.match(text)
    if first is not None and first[1].isupper():
        return first[1]
    named = _OPTION_NAMED.search(text)
    return (named[1] or named[2]) if named is not None else None


def polarity(response: str) -> float:
    """Whether a response says yes (1), as good as yes (0.5), no (-1), or cannot say (0)."""
    said = words(response)
    if not said:
        return 0.0
    if said[0] in _YES:
        return 1.0
    if said[0] in _NO:
        return -1.0
    if has_cue("inability", response):
        return 0.0
    return -1.0 if any(word in ("not", "no", "never") or word.endswith("n't") for word in said) else 0.5


def split_clauses(text: str) -> list[str]:
    """A text cut at punctuation and at words that begin a clause; the text itself when nothing is left."""
    prepared = plain(text).replace("...", " , ")
    return [part.strip() for part in _SPLIT.split(prepared) if part and part.strip(" .,;:!?")] or [text]


def stands_in(text: str, accepted: Sequence[str], is_word: IsWord) -> bool:
    """Whether one of some accepted answers is said in a text, wherever."""
    tokens = read(text)
    return any(_find(variant, tokens, is_word) for variant in _variants(accepted))


def _variants(accepted: Sequence[str]) -> list[tuple[Token, ...]]:
    """Accepted answers as tokens, each also by its other names."""
    found: list[tuple[Token, ...]] = []
    for answer in accepted:
        tokens = read(answer)
        for variant in (tokens, *(read(name) for name in other_names(" ".join(token.text for token in tokens)))):
            while len(variant) > 1 and variant[0].text in _LEADING:
                variant = variant[1:]
            if variant:
                found.append(variant)
    return found


def _find(wanted: Sequence[Token], tokens: Sequence[Token], is_word: IsWord) -> list[int]:
    return [
        start
        for start in range(len(tokens) - len(wanted) + 1)
        if all(_same(left, right, is_word) for left, right in zip(wanted, tokens[start:], strict=False))
    ]


def _same(wanted: Token, found: Token, is_word: IsWord) -> bool:
    if wanted.readings or found.readings:
        return wanted.agrees(found)
    return same_word(wanted.text, found.text, is_word)


def _other_half_of_day(response: str, variants: Sequence[Sequence[Token]]) -> bool:
    """Whether a time is said that an accepted answer puts into the other half of the day."""
    wanted = [
        (reading, token.half)
        for variant in variants
        for token in variant
        for reading in token.readings
        if token.half and reading[0] == "time"
    ]
    return any(
        token.half and token.half != half and reading in token.readings
        for token in read(response)
        for reading, half in wanted
    )


def _places(
    question: str, clauses: Sequence[str], variants: Sequence[Sequence[Token]], is_word: IsWord
) -> list[_Found]:
    """Where accepted answers stand, and whether each place counts."""
    asked = content_words(question)
    asks_who = question.lower().startswith("who")
    inverted = _ASKS_FOR_WHAT_IS_NOT.search(question) is not None
    found: list[_Found] = []
    for at, clause in enumerate(clauses):
        tokens = read(clause)
        for variant in variants:
            for start in _find(variant, tokens, is_word):
                before = _text_before(clause, start)
                denied = not inverted and _DENIES.search(before) is not None
                if clause.lower().startswith("but"):
                    denied = at > 0 and _EVERYTHING.search(clauses[at - 1]) is not None
                if inverted and not _ASKS_FOR_WHAT_IS_NOT.search(" ".join(clauses)):
                    denied = denied or share_of(_besides_the_not(question), words(" ".join(clauses))) > 0
                aside = (at > 0 and _SIDE_CLAUSE.match(clause) is not None) or _EXCLUDES.match(clause) is not None
                later = "first" in words(question) and re.match(r"(and )?then\b", clause, re.IGNORECASE) is not None
                either = re.search(r"\b(either|or)\b", clause) is not None
                object_of = asks_who and _is_object(before, asked)
                found.append(_Found(at, not (denied or aside or later or either or object_of)))
    return found


def _besides_the_not(question: str) -> list[str]:
    """The content of a question for what is not so, and the verb behind its "not", which may carry little by itself."""
    asked = [word for word in content_words(question) if not _ASKS_FOR_WHAT_IS_NOT.fullmatch(word)]
    return asked + _DENIED_VERB.findall(question.lower())


def _is_object(before: str, asked: Sequence[str]) -> bool:
    """Whether words behind ``before`` say to whom something was done, where the question asks who did it."""
    said = [word for word in words(before) if word not in _OWNERS]
    return bool(said) and said[-1] not in _LINKS and share_of(said, asked) > 0


def _text_before(clause: str, start: int) -> str:
    """The words of a clause in front of one of its tokens."""
    written = clause.split()
    for count in range(len(written) + 1):
        if len(read(" ".join(written[: count + 1]))) > start:
            return " ".join(written[:count])
    return clause
