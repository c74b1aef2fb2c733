"""The four things that can be done about a turn. Values only; ``gate.grammar`` reads and writes them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gate.catalogue import ToolCall


class ActionKind(StrEnum):
    """What is done about a turn."""

    MUTE = "mute"
    TOOL = "tool"
    ANSWER = "answer"
    PARDON = "pardon"


@dataclass(frozen=True, slots=True)
class MuteAction:
    """Stay silent and execute nothing."""


@dataclass(frozen=True, slots=True)
class ToolAction:
    """Run one call."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class AnswerAction:
    """Say something; execute nothing."""

    text: str


@dataclass(frozen=True, slots=True)
class PardonAction:
    """Ask again. ``question`` says what was missed ("Who should I text?"); empty for a bare "Pardon?"."""

    question: str = ""


class ParseFault(StrEnum):
    """Why a text is none of the four actions. Never treated as Mute: it has its own status."""

    EMPTY = "empty"
    TOO_LONG = "too_long"
    TRUNCATED = "truncated"
    MALFORMED_JSON = "malformed_json"
    DUPLICATE_KEY = "duplicate_key"
    WRONG_SHAPE = "wrong_shape"
    TEXT_AROUND_CALL = "text_around_call"
    SEVERAL_CALLS = "several_calls"
    NONCANONICAL_CALL = "noncanonical_call"


@dataclass(frozen=True, slots=True)
class Unparseable:
    """A text outside the grammar.

    Attributes:
        fault: its kind.
        detail: one line for the log.
    """

    fault: ParseFault
    detail: str


Action = MuteAction | ToolAction | AnswerAction | PardonAction
Parsed = Action | Unparseable


def kind_of(action: Action) -> ActionKind:
    """The kind of an action."""
    match action:
        case MuteAction():
            return ActionKind.MUTE
        case ToolAction():
            return ActionKind.TOOL
        case AnswerAction():
            return ActionKind.ANSWER
        case PardonAction():
            return ActionKind.PARDON
