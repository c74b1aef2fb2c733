"""Stretches of an utterance that run in parallel: the same words, with another value of the same kind.

The "word correspondences" by which Heeman and Allen (1999, "Speech repairs, intonational phrases and discourse
markers") find self-repairs. A number stands for a number, a name for a name, a day for a day. Nothing here decides
anything; ``gate.self_repairs`` does. English only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gate.evidence import Word
from gate.span import SAMPLE_RATE_HZ
from gate.spoken import FILLERS, SpokenToken, tokens

PAUSE_SAMPLES = SAMPLE_RATE_HZ // 5
"""Silence between two words that counts like a comma."""
PUNCTUATION = ",.;:?!\u2026\u2014\u2013-"
CLOSERS = "\"')]}"
_SENTENCE_ENDS = (".", "?", "!")


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_CURRENCIES = _set("dollars euros pounds yen yuan rupees francs pesos won bucks quid")
_LENGTHS = _set("seconds minutes hours days weeks months years second minute hour day week month year")
_CLASSES = (
    _set("monday tuesday wednesday thursday friday saturday sunday today tomorrow tonight yesterday"),
    _set("january february march april may june july august september october november december"),
    _set("morning afternoon evening night"),
    _set("am pm"),
    _set("on off"),
    _set("up down"),
    _set("open close shut lock unlock"),
    _set("left right"),
    _set("increase decrease raise lower"),
    _LENGTHS,
    _CURRENCIES,
)
"""Words that stand for each other, by what they are about."""
UNITS = _CURRENCIES | _LENGTHS | _set("am pm oclock percent degrees")
"""What follows a number and belongs to it."""
_HOURS = _set("noon midday midnight")
"""Hours of the day that have a name."""
NUMBER = "number"
NAME = "name"
_CLASS_OF = {text: f"class {number}" for number, members in enumerate(_CLASSES) for text in members}
_NOT_NAMES = _set("i im ill ive id ok okay yes yeah yep sure no nope cancel stop hello hey hi")
CLAUSE_STARTS = _set(
    "i you we he she it they there this that is was are were am im ill ive its youre hes shes theyre and but so not "
    "because"
)
"""With these a clause of its own begins, on either side of an editing term by chance."""
_GOES_ON = _set("that and at in on to for from with by about please thanks")
"""What may follow a repair in the sentence that it belongs to."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """One person's words in one turn, as written and in comparable form.

    Attributes:
        words: the words.
        tokens: the same in comparable form, without fillers; each knows the words that it stands in.
    """

    words: Sequence[Word]
    tokens: tuple[SpokenToken, ...]

    @classmethod
    def of(cls, words: Sequence[Word]) -> Utterance:
        """Read some words."""
        heard = tokens([word.text for word in words])
        return cls(words, tuple(token for token in heard if token.text not in FILLERS))

    def breaks_after(self, index: int) -> bool:
        """Whether punctuation or a pause follows a token; the end of the utterance counts."""
        if index + 1 >= len(self.tokens):
            return True
        last, following = self.tokens[index].last, self.tokens[index + 1].first
        return any(
            self.words[at].text.rstrip(CLOSERS).endswith(tuple(PUNCTUATION)) or self._pause_after(at) >= PAUSE_SAMPLES
            for at in range(last, following)
        )

    def _pause_after(self, word: int) -> int:
        return self.words[word + 1].span.start_sample - self.words[word].span.end_sample

    def begins_sentence(self, index: int) -> bool:
        """Whether a token is the first of a sentence."""
        first = self.tokens[index].first
        return first == 0 or self._ends_sentence(first - 1)

    def _ends_sentence(self, word: int) -> bool:
        return self.words[word].text.rstrip(CLOSERS).endswith(_SENTENCE_ENDS)

    def sentence_before(self, index: int) -> tuple[SpokenToken, ...]:
        """The tokens of the sentence that token ``index`` stands in, up to it."""
        start = next((at for at in range(index, 0, -1) if self.begins_sentence(at)), 0)
        return self.tokens[start:index]

    def may_end_at(self, end: int) -> bool:
        """Whether the tokens before ``end`` may be complete: a break follows, or a word that carries a sentence on."""
        return self.breaks_after(end - 1) or self.tokens[end].text in _GOES_ON

    def kind(self, index: int) -> str | None:
        """What a token may be replaced by: another of its kind. None for words that stand for themselves."""
        token = self.tokens[index]
        if token.number or token.text in _HOURS:
            return NUMBER
        if token.text in _CLASS_OF:
            return _CLASS_OF[token.text]
        written = self.words[token.first].text.lstrip("\"'([")
        return NAME if written[:1].isupper() and token.text not in _NOT_NAMES else None

    def is_name(self, index: int) -> bool:
        """Whether a token is there and is surely a name; a capital at the start of a sentence says nothing."""
        inside = 0 <= index < len(self.tokens)
        return inside and self.kind(index) == NAME and not self.begins_sentence(index)

    def are_whole_words(self, start: int, end: int) -> bool:
        """Whether the tokens ``[start, end)`` begin and end with words: "$60" is one word and two tokens."""
        before = start == 0 or self.tokens[start - 1].last < self.tokens[start].first
        after = end == len(self.tokens) or self.tokens[end - 1].last < self.tokens[end].first
        return before and after

    def holds_sentence_end(self, start: int, end: int) -> bool:
        """Whether a sentence ends inside the tokens ``[start, end)``; behind the last one does not count."""
        return any(self._ends_sentence(self.tokens[index].last) for index in range(start, end - 1))

    def word_range(self, start: int, end: int) -> tuple[int, int]:
        """The words of the tokens ``[start, end)``."""
        covered = self.tokens[start:end]
        return min(token.first for token in covered), max(token.last for token in covered) + 1


@dataclass(frozen=True, slots=True)
class Parallel:
    """How two stretches of the same length correspond, position by position.

    Attributes:
        equal: pairs of the same word.
        kinds: for each pair of different words of one kind, that kind.
        other: pairs of different words that have no kind; at most one.
    """

    equal: int
    kinds: tuple[str, ...]
    other: int


def parallel(utterance: Utterance, left: int, right: int, length: int) -> Parallel | None:
    """The correspondence of two stretches.

    Args:
        utterance: the utterance.
        left: index of the first token of the one.
        right: index of the first token of the other.
        length: of both, in tokens.

    Returns:
        The correspondence, or None when they do not run in parallel: two words cannot stand for each other, more than
        one pair has nothing but its place in common, or all words are the same, so that nothing is corrected.
    """
    equal, other, kinds = 0, 0, []
    for at in range(length):
        first, second = utterance.tokens[left + at], utterance.tokens[right + at]
        kind, kind_right = utterance.kind(left + at), utterance.kind(right + at)
        if first.text == second.text:
            equal += 1
        elif kind is not None and kind == kind_right:
            kinds.append(kind)
        elif {kind, kind_right} <= {None, NAME}:
            other += 1
        else:
            return None
    anchor, anchor_right = utterance.tokens[left].text, utterance.tokens[right].text
    if other > 1 or (other == 1 and (anchor != anchor_right or anchor in CLAUSE_STARTS)):
        return None
    if not other and not kinds:
        return None
    return Parallel(equal, tuple(kinds), other)
