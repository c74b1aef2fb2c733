"""A command with its words tied to the arguments that they say, so that a change of the words changes the call.

The call holds what was heard, letter for letter. Words that the gate could not ground the arguments in are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gate.catalogue import ParamFacts, ParamKind, ToolCall, ToolFacts
from gate.evidence import Word
from gate.grounding import ground_choice, ground_number, ground_text, names_choice
from models.constrained import stripped
from models.training.policy.lines import CommandLine
from models.training.policy.mixture_scene import index_of, words_of
from models.training.policy.noise import EDGES, Tokens, tokens_of

_BY_WORD = (ParamKind.TEXT, ParamKind.NUMBER, ParamKind.INTEGER)


@dataclass(frozen=True, slots=True)
class Command:
    """A command whose words are tied to the arguments that they say.

    Attributes:
        tokens: the words.
        call: the call, its text arguments as the words say them.
        tool: its tool.
        line: where it comes from.
    """

    tokens: Tokens
    call: ToolCall
    tool: ToolFacts
    line: CommandLine

    def param(self, name: str) -> ParamFacts:
        """The facts of one of its arguments."""
        found = self.tool.param(name)
        assert found is not None, f"{self.tool.name}.{name}"
        return found

    def run(self, name: str) -> range:
        """Where an argument is said; empty when it is said in other words."""
        places = [index for index, token in enumerate(self.tokens) if token.part == name]
        return range(places[0], places[-1] + 1) if places else range(0)

    def reworded(self, tokens: Tokens) -> Command | None:
        """The command in changed words; None when they no longer carry its arguments."""
        params: dict[str, object] = {}
        words = words_of(tokens)
        for name, value in self.call.params.items():
            facts = self.param(name)
            said = _said(tokens, name) if facts.kind is ParamKind.TEXT else value
            if said is None or not _is_carried(facts, said, words):
                return None
            params[name] = said
        return replace(self, tokens=tokens, call=ToolCall(self.call.name, params))


def tie(line: CommandLine, tools: Sequence[ToolFacts]) -> Command | None:
    """Tie a command's words to its arguments; None when a text or a number is not said in them."""
    (call,) = line.calls
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None:
        return None
    tokens = list(tokens_of(line.text))
    words = words_of(tokens)
    params: dict[str, object] = {}
    for name, value in call.params.items():
        facts = tool.param(name)
        if facts is None:
            return None
        params[name] = value
        if facts.kind not in _BY_WORD:
            continue
        places = _places(value, words)
        if not places or any(tokens[at].part for at in places):
            return None
        for at in places:
            tokens[at] = replace(tokens[at], part=name)
        if facts.kind is ParamKind.TEXT:
            params[name] = _said(tuple(tokens), name)
    return Command(tuple(tokens), ToolCall(call.name, params), tool, line)


def _places(value: object, words: Sequence[Word]) -> range:
    if isinstance(value, str):
        run = ground_text(value, words) or _literal(value, words)
    else:
        assert isinstance(value, int | float), value
        run = ground_number(float(value), words)
    return range(index_of(run[0]), index_of(run[-1]) + 1) if run else range(0)


def _literal(value: str, words: Sequence[Word]) -> tuple[Word, ...] | None:
    """The last place where the very words stand, also where the gate would ask whether they were taken back."""
    wanted = [part.strip(EDGES).lower() for part in value.split()]
    for start in range(len(words) - len(wanted), -1, -1):
        run = words[start : start + len(wanted)]
        if [word.text.strip(EDGES).lower() for word in run] == wanted:
            return tuple(run)
    return None


def _said(tokens: Tokens, name: str) -> str | None:
    """An argument as the constrained decoder would point at it; None when its words do not stand together."""
    places = [index for index, token in enumerate(tokens) if token.part == name]
    if not places or places[-1] - places[0] + 1 != len(places):
        return None
    first, *rest = (token.text for token in tokens[places[0] : places[-1] + 1])
    *before, last = (first.lstrip(EDGES), *rest)
    return " ".join([*before, stripped(last)]).strip() or None


def _is_carried(facts: ParamFacts, value: object, words: Sequence[Word]) -> bool:
    """Whether the gate would find the argument in the words (``gate.decision``)."""
    if facts.kind is ParamKind.TEXT:
        return ground_text(str(value), words) is not None
    if facts.kind is ParamKind.CHOICE:
        named = any(names_choice(choice, words) for choice in facts.choices)
        return ground_choice(str(value), words) is not None or not named
    assert isinstance(value, int | float), value
    return ground_number(float(value), words) is not None
