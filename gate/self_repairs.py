"""Finds self-repairs by their structure, and says which of them are certain.

Found is only an editing term with parallel stretches on both sides of it. It is *certain* when pauses or punctuation
set the editing term off as clearly as the kind of repair demands, and nothing else reads better. The rules err towards
"possible": a repair that is not carried out is asked about, one that is carried out wrongly changes what was said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gate.editing_terms import EditingTerm, call_off_at, editing_terms, polite_length
from gate.evidence import Word
from gate.parallels import CLAUSE_STARTS, NAME, NUMBER, UNITS, Parallel, Utterance, parallel
from gate.spoken import SpokenToken

LEAST_TERM_PROBABILITY = 0.15
"""An editing term that was heard worse than this may have been another word. Recognisers are seldom sure of a "no"
after a comma, whose spelling ("No", "no,") they hesitate over: 0.25 is usual for one that was spoken clearly."""
SIGNED_NUMBER = re.compile(r"([$€£¥₹₩])\d")
"""A currency sign and a number in one word."""
_LONGEST_REPARANDUM = 12
"""In tokens."""
_MASK = "[?]"
_REPORTING = frozenset(
    {
        "said", "says", "told", "tells", "asked", "asks", "answered", "replied", "wrote", "writes", "shouted", "quoted",
        "quote", "sang", "sings", "called", "named", "titled", "entitled", "spelled", "spelt",
    }
)  # fmt: skip
"""After these the words are somebody's, and are repeated as they are."""
_POLITE_WORDS = frozenset({"please", "thanks"})
_PAST_THE_HOUR = frozenset({"past", "quarter", "half"})


@dataclass(frozen=True, slots=True)
class SelfRepair:
    """One self-repair, in indices of words, ends exclusive.

    Attributes:
        reparandum: what is taken back. Right before the interregnum, or further back where one thing is named anew.
        interregnum: the editing term, and any filler beside it.
        repair: what takes the reparandum's place; empty when all was called off.
        certain: whether it is carried out; otherwise it only may be one.
    """

    reparandum: tuple[int, int]
    interregnum: tuple[int, int]
    repair: tuple[int, int]
    certain: bool


def self_repairs(words: Sequence[Word]) -> tuple[SelfRepair, ...]:
    """The self-repairs in an utterance as it stands, certain and possible."""
    utterance = Utterance.of(words)
    found: list[SelfRepair | None] = []
    for term in editing_terms(utterance.tokens):
        if term.start > 0:
            found.append(_adjacent(utterance, term) or _at_a_distance(utterance, term) or _unmatched(utterance, term))
    found.append(_called_off(utterance))
    return tuple(repair for repair in found if repair is not None)


# A repair beside its reparandum -----------------------------------------------------------------------------------


def _adjacent(utterance: Utterance, term: EditingTerm) -> SelfRepair | None:
    """ "at six, no, at seven": the reparandum ends where the editing term begins."""
    for length in range(min(term.start, len(utterance.tokens) - term.end, _LONGEST_REPARANDUM), 0, -1):
        left, end = term.start - length, term.end + length
        if not utterance.are_whole_words(left, term.start) or utterance.holds_sentence_end(left, term.start):
            continue
        found = parallel(utterance, left, term.end, length)
        if found is not None:
            certain = _is_set_off(utterance, term, found, end) and _is_sound(utterance, term, left, end)
            return _repair(utterance, left, term.start, term, end, certain)
    return None


def _is_set_off(utterance: Utterance, term: EditingTerm, found: Parallel, end: int) -> bool:
    """Whether the editing term stands by itself as clearly as the kind of repair demands."""
    before, after = utterance.breaks_after(term.start - 1), utterance.breaks_after(term.end - 1)
    if found.other:
        complete = utterance.breaks_after(end - 1) or utterance.tokens[end].text in _POLITE_WORDS
        return before and complete and (after or term.explicit or found.equal > 1)
    if found.equal or set(found.kinds) == {NUMBER}:
        return term.explicit or before or after
    return utterance.may_end_at(end) and (before or term.explicit)


def _is_sound(utterance: Utterance, term: EditingTerm, left: int, end: int) -> bool:
    """Whether nothing speaks against a repair from token ``left`` to ``end``."""
    first, last = utterance.tokens[left].first, utterance.tokens[end - 1].last
    if any(_MASK in word.text or '"' in word.text for word in utterance.words[first : last + 1]):
        return False
    editing = utterance.words[slice(*utterance.word_range(term.start, term.end))]
    if not all(word.probability >= LEAST_TERM_PROBABILITY for word in editing):
        return False
    if any(token.text in _REPORTING for token in utterance.sentence_before(term.start)):
        return False
    if left > 0 and utterance.tokens[left - 1].text in _PAST_THE_HOUR:
        return False  # "half past six, no, seven"
    if _completes(utterance.tokens[term.start - 1], utterance.tokens[term.end]):
        return False
    return _names_are_whole(utterance, term, left, end)


def _names_are_whole(utterance: Utterance, term: EditingTerm, left: int, end: int) -> bool:
    """Whether names on both sides are names, and none is a part of a longer one ("Maria Lopez, sorry, Gomez")."""
    if utterance.kind(left) == NAME and utterance.is_name(left - 1):
        return False
    if utterance.kind(end - 1) == NAME and utterance.is_name(end) and not utterance.breaks_after(end - 1):
        return False
    if utterance.tokens[left].text == utterance.tokens[term.end].text:
        return True
    whole_answer = left == 0 and term.start == 1
    unsure = [at for at in (left, term.end) if utterance.kind(at) == NAME and not utterance.is_name(at)]
    return not unsure or (unsure == [0] and whole_answer)


def _completes(first: SpokenToken, second: SpokenToken) -> bool:
    """Whether two numbers may be one: "two hundred, sorry, fifty"."""
    if first.value is None or second.value is None or not 0 < second.value < first.value:
        return False
    return bool(first.value % 10 ** len(str(int(second.value))) == 0)


# A repair at a distance from its reparandum -----------------------------------------------------------------------


def _at_a_distance(utterance: Utterance, term: EditingTerm) -> SelfRepair | None:
    """ "Transfer sixty dollars to Ben. No, make it fifty.": the repair goes where the one thing like it stands."""
    rest = len(utterance.tokens) - term.end - polite_length(utterance.tokens)
    if rest < 1:
        return None
    if rest <= _LONGEST_REPARANDUM:
        places = [
            left
            for left in range(term.start - rest + 1)
            if not utterance.holds_sentence_end(left, left + rest)
            and (found := parallel(utterance, left, term.end, rest)) is not None
            and found.kinds
            and not found.other
        ]
        if places:
            left, end = places[-1], term.end + rest
            anchored = utterance.tokens[left].text == utterance.tokens[term.end].text
            names = any(utterance.kind(at) == NAME for at in range(term.end, end))
            clear = len(places) == 1 and (term.explicit or anchored or not names)
            return _moved(utterance, term, left, left + rest, end, clear)
    return _number_at_a_distance(utterance, term)


def _number_at_a_distance(utterance: Utterance, term: EditingTerm) -> SelfRepair | None:
    """A number, with or without its unit, for the one number before it that it can stand for."""
    if utterance.kind(term.end) != NUMBER:
        return None
    end = _end_of_units(utterance, term.end + 1, len(utterance.tokens))
    said = utterance.tokens[term.end].text
    places = [at for at in range(term.start) if utterance.kind(at) == NUMBER and utterance.tokens[at].text != said]
    units = {token.text for token in utterance.tokens[term.end + 1 : end]}
    same_unit = [at for at in places if at + 1 < term.start and utterance.tokens[at + 1].text in units]
    places = same_unit or places
    if not places:
        return None
    left = places[-1]
    stop = _end_of_units(utterance, left + 1, term.start)
    beside = stop == term.start
    ends = end + polite_length(utterance.tokens) >= len(utterance.tokens)
    return _moved(utterance, term, left, stop if units else left + 1, end, len(places) == 1 and (ends or beside))


def _end_of_units(utterance: Utterance, start: int, limit: int) -> int:
    while start < limit and utterance.tokens[start].text in UNITS:
        start += 1
    return start


def _moved(utterance: Utterance, term: EditingTerm, left: int, stop: int, end: int, clear: bool) -> SelfRepair:
    certain = (
        clear
        and utterance.breaks_after(term.start - 1)
        and utterance.are_whole_words(term.end, end)
        and (utterance.are_whole_words(left, stop) or _is_signed(utterance, left, stop))
        and _is_sound(utterance, term, left, end)
        and not _completes(utterance.tokens[left], utterance.tokens[term.end])
    )
    return _repair(utterance, left, stop, term, end, certain)


def _is_signed(utterance: Utterance, left: int, stop: int) -> bool:
    """Whether all but the currency sign of the last word of the tokens ``[left, stop)`` is among them."""
    whole_before = left == 0 or utterance.tokens[left - 1].last < utterance.tokens[left].first
    word = utterance.words[utterance.tokens[stop - 1].last]
    return whole_before and utterance.kind(stop - 1) == NUMBER and SIGNED_NUMBER.match(word.text) is not None


# Nothing in its place ---------------------------------------------------------------------------------------------


def _unmatched(utterance: Utterance, term: EditingTerm) -> SelfRepair | None:
    """ "Text Ben, sorry, my mother": something was taken back, and nobody can tell how much of it."""
    if term.clears:
        return _repair(utterance, 0, term.start, term, term.end, False)
    if term.end == len(utterance.tokens) or utterance.tokens[term.end].text in CLAUSE_STARTS:
        return None
    if not (utterance.breaks_after(term.start - 1) and (term.explicit or utterance.breaks_after(term.end - 1))):
        return None
    left = term.start - 1
    while not utterance.are_whole_words(left, term.start):
        left -= 1
    return _repair(utterance, left, term.start, term, term.end, False)


def _called_off(utterance: Utterance) -> SelfRepair | None:
    """ "Text Ben that I am late. No, never mind."."""
    start = call_off_at(utterance.tokens)
    if start is None or not utterance.breaks_after(start - 1):
        return None
    edge, end = utterance.tokens[start - 1].last + 1, len(utterance.words)
    return SelfRepair((0, edge), (edge, end), (end, end), False)


def _repair(utterance: Utterance, start: int, stop: int, term: EditingTerm, end: int, certain: bool) -> SelfRepair:
    """The repair whose reparandum is the tokens ``[start, stop)`` and whose repair is ``[term.end, end)``."""
    first, last = utterance.word_range(start, stop)
    after = utterance.tokens[term.start - 1].last + 1
    resumed = utterance.tokens[term.end].first if term.end < len(utterance.tokens) else len(utterance.words)
    mended = utterance.word_range(term.end, end) if end > term.end else (resumed, resumed)
    return SelfRepair((first, after if stop == term.start else last), (after, resumed), mended, certain)
