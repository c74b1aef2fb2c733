"""Self-correction in one breath: "at six, no, at seven" means seven.

Shriberg (1994, "Preliminaries to a theory of speech disfluencies") takes a self-repair apart into the *reparandum*,
which is taken back, the *interregnum* with its editing term, and the *repair*, which takes the reparandum's place:

    Set an alarm [at six,] [no,] [at seven.]
                 reparandum  interregnum  repair

``correct`` carries out the repairs that are certain. Where one is only possible the words stay as they are, and
``rests_on_doubt`` keeps an argument from resting on one side of it, so that the gate asks instead. Where no such
structure shows, nothing is found: "tell Ben no I am not coming" is a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gate.evidence import Word
from gate.parallels import CLOSERS, PUNCTUATION, UNITS
from gate.self_repairs import SIGNED_NUMBER, SelfRepair, self_repairs
from gate.span import Span
from gate.spoken import tokens


@dataclass(frozen=True, slots=True)
class Corrected:
    """An utterance after its self-corrections.

    Attributes:
        words: as it reads now. Each was heard, and has its own samples; a repair that was said further on stands where
            it belongs, so the order is that of reading. Only punctuation may differ from what was heard.
        taken_back: the words that are gone, reparanda and editing terms, in the order heard.
        spans: the samples of each correction, from its editing term to the end of its repair.
    """

    words: tuple[Word, ...]
    taken_back: tuple[Word, ...] = ()
    spans: tuple[Span, ...] = ()


def correct(words: Sequence[Word]) -> Corrected:
    """Carry out the certain self-repairs of an utterance, one after the other.

    Args:
        words: one person's words in one turn, in order; ``[?]`` where some were covered. No repair reaches over one.

    Returns:
        The words as they read afterwards, and what was taken back.
    """
    current = tuple(words)
    gone: list[Word] = []
    spans: list[Span] = []
    while (found := next((repair for repair in self_repairs(current) if repair.certain), None)) is not None:
        said = current[found.interregnum[0] : found.repair[1]]
        spans.append(Span(min(w.span.start_sample for w in said), max(w.span.end_sample for w in said)))
        gone += (*current[slice(*found.reparandum)], *current[slice(*found.interregnum)])
        current = _carried_out(current, found)
    return Corrected(current, tuple(sorted(gone, key=lambda word: word.span.start_sample)), tuple(spans))


def rests_on_doubt(repairs: Iterable[SelfRepair], first: int, last: int) -> bool:
    """Whether a run of words stands on one side of a self-repair that was not carried out.

    Args:
        repairs: what ``self_repairs`` found in the words.
        first: index of the run's first word.
        last: index of its last.

    Returns:
        True when the run holds words that may have been taken back, or that may or may not be their repair, and not the
        editing term between: a run that holds it quotes the words as they were said.
    """
    for repair in repairs:
        doubted = (repair.reparandum,) if repair.certain else (repair.reparandum, repair.repair)
        if not _meets((first, last + 1), repair.interregnum) and any(
            _meets((first, last + 1), part) for part in doubted
        ):
            return True
    return False


def _meets(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return max(first[0], second[0]) < min(first[1], second[1])


def _carried_out(words: tuple[Word, ...], repair: SelfRepair) -> tuple[Word, ...]:
    start, end = repair.reparandum
    beside = end == repair.interregnum[0]
    *moved, last = words[slice(*repair.repair)]
    sign = SIGNED_NUMBER.match(words[end - 1].text)
    keeps_sign = sign is not None and not any(_names_unit(word) for word in (*moved, last))
    if beside and not keeps_sign:
        return (*words[:start], *words[repair.repair[0] :])
    moved.append(replace(last, text=_bare(last.text)))
    if sign is not None and keeps_sign:
        # "$60" is taken back as a number only: the currency stays.
        moved.append(replace(words[end - 1], text=sign.group(1)))
    ending = (last if beside else words[end - 1]).text
    moved[-1] = replace(moved[-1], text=moved[-1].text + ending[len(_bare(ending)) :])
    return (*words[:start], *moved, *words[end : repair.interregnum[0]], *words[repair.repair[1] :])


def _bare(text: str) -> str:
    return text.rstrip(PUNCTUATION + CLOSERS) or text


def _names_unit(word: Word) -> bool:
    return any(token.text in UNITS for token in tokens([word.text]))
