"""Which words of a command carry its arguments, and what is left of it without them.

The first says whether a script is fair: an argument that no word carries could not be known. The second says how many
wordings there really are: two commands that differ only in a name or an amount are one.

Words are read as the gate reads them (``gate.spoken``), numbers whole; but whether the gate would act on them is its
own affair. What it refuses although it was said is a finding about the gate, and ``refused_by_gate`` lists it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from bench.build.scripts import CATALOGUE
from gate.catalogue import ParamFacts, ParamKind
from gate.evidence import Word
from gate.grounding import ground_choice, ground_number, ground_text, normal_form
from gate.span import Span
from gate.spoken import FILLERS, SpokenToken, tokens

Value = str | int | float

_WORD_SAMPLES = 4_800
_NOTHING = FILLERS | {"a", "an", "the", "my", "our", "please", "just"}
"""Words that do not make a wording another one."""


def as_words(text: str) -> tuple[Word, ...]:
    """``text`` as a recogniser that hears everything would hand it on, 0.3 s a word."""
    return tuple(
        Word(part, Span(at * _WORD_SAMPLES, (at + 1) * _WORD_SAMPLES), 1.0) for at, part in enumerate(text.split())
    )


def carriers(text: str, tool: str, param: str, value: Value) -> tuple[int, ...] | None:
    """The words that say an argument.

    Args:
        text: the command.
        tool: the tool's name.
        param: the parameter's name.
        value: the argument.

    Returns:
        Indices into ``text.split()``; of several places the last. Empty for a choice that is said in other words
        ("dim" for ``decrease``, "ten dollars and fifty cents" for ``dollars``) while no other choice is named. None
        when nothing says the argument.

    Raises:
        KeyError: when there is no such tool or parameter.
    """
    facts = _facts(tool, param)
    heard = _heard(text)
    match facts.kind:
        case ParamKind.TEXT:
            return _run(heard, normal_form(str(value)))
        case ParamKind.NUMBER | ParamKind.INTEGER:
            return _number(heard, float(value))
        case ParamKind.CHOICE:
            return _choice(text, facts, str(value))
        case ParamKind.BOOLEAN:
            return None


@lru_cache(maxsize=4096)
def _heard(text: str) -> tuple[SpokenToken, ...]:
    return tokens(text.split())


def _facts(tool: str, param: str) -> ParamFacts:
    found = CATALOGUE.find(tool)
    facts = found.param(param) if found else None
    if facts is None:
        raise KeyError(f"{tool}.{param}")
    return facts


def _run(heard: Sequence[SpokenToken], wanted: Sequence[str]) -> tuple[int, ...] | None:
    """The last place where the wanted tokens follow each other, but for fillers and articles."""
    wanted = [text for text in wanted if text not in FILLERS | {"a", "an", "the"}]
    bare = [token for token in heard if token.text not in FILLERS | {"a", "an", "the"}]
    for start in range(len(bare) - len(wanted), -1, -1):
        run = bare[start : start + len(wanted)]
        if wanted and [token.text for token in run] == wanted:
            return tuple(range(min(token.first for token in run), max(token.last for token in run) + 1))
    return None


def _number(heard: Sequence[SpokenToken], value: float) -> tuple[int, ...] | None:
    for token in reversed(heard):
        if token.value is not None and float(token.value) == value:
            return tuple(range(token.first, token.last + 1))
    return None


def _choice(text: str, facts: ParamFacts, value: str) -> tuple[int, ...] | None:
    words = as_words(text)
    named = ground_choice(value, words)
    if named is not None:
        return tuple(word.span.start_sample // _WORD_SAMPLES for word in named)
    others = (choice for choice in facts.choices if choice != value)
    return None if any(ground_choice(other, words) is not None for other in others) else ()


def refused_by_gate(text: str, tool: str, params: Mapping[str, Value]) -> tuple[str, ...]:
    """The parameters whose arguments are said, but which the gate would ask for again even if every word were heard.

    Raises:
        KeyError: when there is no such tool or parameter.
    """
    words = as_words(text)
    refused = []
    for param, value in params.items():
        kind = _facts(tool, param).kind
        if kind is ParamKind.CHOICE or carriers(text, tool, param, value) is None:
            continue
        found = ground_text(str(value), words) if kind is ParamKind.TEXT else ground_number(float(value), words)
        if found is None:
            refused.append(param)
    return tuple(refused)


def masked(text: str, tool: str, params: Mapping[str, Value]) -> str:
    """A command as a wording: each argument replaced by the name of its parameter.

    Args:
        text: the command.
        tool: the tool's name.
        params: its arguments.

    Returns:
        Lower-case words and ``<param>`` marks, without punctuation, articles, "my", "please", "just" and fillers.

    Raises:
        KeyError: when there is no such tool or parameter.
    """
    marks: dict[int, str] = {}
    for param, value in params.items():
        marks |= {index: f"<{param}>" for index in carriers(text, tool, param, value) or ()}
    out: list[str] = []
    for index, word in enumerate(text.split()):
        if index in marks:
            if out[-1:] != [marks[index]]:
                out.append(marks[index])
        elif (bare := plain_word(word)) and bare not in _NOTHING:
            out.append(bare)
    return " ".join(out)


def plain_word(text: str) -> str:
    """A word in lower case, without punctuation; apostrophes inside it stay."""
    return re.sub(r"[^a-z']", "", text.lower()).strip("'")


def plain(text: str) -> tuple[str, ...]:
    """The words of a text in lower case, without punctuation; hyphenated words count as one."""
    return tuple(filter(None, map(plain_word, text.split())))
