"""A few turns with what is right to do about each, shown to a model that is too small to be told in words alone.

They are spoken sentences like those of ``models.prompt``, with the verdicts of the ears, and for each adaptation what
its step would say. None comes from a benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gate.actions import Action, AnswerAction, MuteAction, ToolAction
from gate.catalogue import JsonScalar, ToolCall, ToolFacts
from gate.evidence import DistanceVerdict, SpeakerVerdict, Word
from gate.span import Span
from models.protocols import HeardSegment, PolicyInput


@dataclass(frozen=True, slots=True)
class WorkedTurn:
    """One turn and what is right.

    Attributes:
        text: what was said.
        speaker: the ears' verdict.
        distance: likewise.
        addressee: "assistant", "person" or "self".
        action: what is right to do.
    """

    text: str
    speaker: SpeakerVerdict
    distance: DistanceVerdict
    addressee: str
    action: Action

    def turn(self, tools: Sequence[ToolFacts]) -> PolicyInput:
        """As a policy is given it, without sound."""
        words = tuple(Word(text, Span(0, 0), 1.0) for text in self.text.split())
        return PolicyInput("worked", HeardSegment(words, self.speaker, self.distance), (), tools)


def _owner(text: str, addressee: str, action: Action) -> WorkedTurn:
    return WorkedTurn(text, SpeakerVerdict.OWNER, DistanceVerdict.NEAR, addressee, action)


def _call(name: str, **params: JsonScalar) -> ToolAction:
    return ToolAction(ToolCall(name, params))


_WORKED = (
    _owner("Text Ben that I'm on my way.", "assistant", _call("send_message", recipient="Ben", body="I'm on my way")),
    WorkedTurn("Order a bag of rice.", SpeakerVerdict.OTHER, DistanceVerdict.FAR, "assistant", MuteAction()),
    _owner("How tall is Mount Everest?", "assistant", AnswerAction("It is 8,849 metres high.")),
    _owner("Where did I leave my glasses?", "self", MuteAction()),
    _owner("Call the dentist.", "assistant", _call("make_call", contact="the dentist")),
    _owner("Did you see the game last night, Lisa?", "person", MuteAction()),
    _owner("Name the largest ocean.", "assistant", AnswerAction("The Pacific Ocean.")),
    _owner("Order four bottles of milk.", "assistant", _call("place_order", item="bottles of milk", quantity=4)),
)


def worked_turns(tools: Sequence[ToolFacts]) -> tuple[WorkedTurn, ...]:
    """The turns that can be shown with these tools."""
    names = {tool.name for tool in tools}
    return tuple(
        worked for worked in _WORKED if not isinstance(worked.action, ToolAction) or worked.action.call.name in names
    )
