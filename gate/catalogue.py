"""What the gate must know of the tools, without knowing the tools.

``tools`` builds these facts from its pydantic models; the gate and the policies read them. So the gate stays free of
imports, and a tool is described in one place only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Protocol

JsonScalar = str | int | float | bool | None


class Risk(IntEnum):
    """How much harm a wrong execution does; higher risk needs stronger evidence."""

    LOW = 1
    """Undone by saying the opposite (a lamp)."""
    MEDIUM = 2
    """Reaches another person or costs little (a message, a ride)."""
    HIGH = 3
    """Money, doors, loss of data."""


class ParamKind(StrEnum):
    """What values a parameter takes; also drives constrained decoding."""

    TEXT = "text"
    """Words of the utterance, copied."""
    CHOICE = "choice"
    NUMBER = "number"
    INTEGER = "integer"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True)
class ParamFacts:
    """One parameter of a tool.

    Attributes:
        name: its JSON name.
        kind: what values it takes.
        required: whether a call without it is incomplete.
        ask: the question that asks a person for it, used after "Pardon?" ("Who should I text?").
        choices: the allowed values when ``kind`` is ``CHOICE``.
        description: one line for the policy's prompt.
    """

    name: str
    kind: ParamKind
    required: bool
    ask: str
    choices: tuple[str, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """One tool: its name, what it does, its risk and its parameters in call order."""

    name: str
    description: str
    risk: Risk
    params: tuple[ParamFacts, ...]

    def param(self, name: str) -> ParamFacts | None:
        """The parameter of that name, or None."""
        return next((param for param in self.params if param.name == name), None)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool's name and arguments as a model wrote them: well-formed JSON, not yet checked against the tool.

    Attributes:
        name: the tool's name as written.
        params: the arguments as parsed JSON.
    """

    name: str
    params: Mapping[str, object]


class CallFault(StrEnum):
    """Why a call does not fit its tool."""

    UNKNOWN_TOOL = "unknown_tool"
    MISSING_PARAM = "missing_param"
    EXTRA_PARAM = "extra_param"
    BAD_VALUE = "bad_value"


@dataclass(frozen=True, slots=True)
class CallProblem:
    """One fault of a call.

    Attributes:
        fault: its kind.
        param: the parameter concerned, or None.
        detail: one line for the log.
    """

    fault: CallFault
    param: str | None
    detail: str


class Catalogue(Protocol):
    """The tools that exist, as the gate sees them."""

    def find(self, name: str) -> ToolFacts | None:
        """The tool of exactly that name, or None."""
        ...

    def check(self, call: ToolCall) -> tuple[CallProblem, ...]:
        """What is wrong with ``call``; empty when it can be executed as it stands."""
        ...

    def summary(self, call: ToolCall) -> str:
        """A checked call as a sentence ("transfer 60 dollars to Ben")."""
        ...

    def all(self) -> tuple[ToolFacts, ...]:
        """Every tool, in a fixed order."""
        ...
