"""A recogniser and a list of keywords, as voice interfaces without a language model are built. It has no gate.

The words are the recogniser's; the first keyword in them names the tool, and a tool is called without arguments, since
only its name is scored. A question word at the start makes it an answer, which has no content. Nothing is known of who
speaks, how near, or to whom.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from bench.baselines.rules import model_of
from bench.contestants import Contestant, Setup
from gate.actions import Action, AnswerAction, MuteAction, ToolAction
from gate.catalogue import ToolCall, ToolFacts
from gate.grammar import render
from models.protocols import PolicyInput, PolicyOutput

KEYWORDS: Mapping[str, tuple[str, ...]] = {
    "send_message": ("text", "message", "write", "tell"),
    "make_call": ("call", "phone", "ring", "dial"),
    "schedule_event": ("schedule", "calendar", "appointment", "remind", "meeting"),
    "place_order": ("order", "buy", "purchase"),
    "transfer_money": ("transfer", "pay", "wire", "send money"),
    "unlock_door": ("unlock", "open"),
    "control_device": ("switch", "turn on", "turn off", "turn up", "turn down", "dim", "set", "lights", "thermostat"),
    "book_ride": ("taxi", "cab", "ride", "uber", "book"),
    "delete_data": ("delete", "erase", "remove", "wipe"),
    "share_location": ("location", "position", "where i am"),
}
"""Words and phrases of each tool. A tool that is not listed is known by the words of its name."""
QUESTION_WORDS = frozenset({"what", "who", "when", "where", "why", "how", "which", "whose"})
NO_CONTENT = "I do not know."


class AsrKeyword:
    """A policy that looks for keywords."""

    model = model_of("asr-keyword", __file__)

    def prepare(self, tools: Sequence[ToolFacts]) -> None:
        """Nothing to prepare."""

    def propose(self, turn: PolicyInput) -> PolicyOutput:
        """Call the tool whose keyword comes first; else answer a question; else mute."""
        text = " ".join(word.text for word in turn.segment.words)
        return PolicyOutput(render(react(text, [tool.name for tool in turn.tools])))


def react(text: str, tools: Sequence[str]) -> Action:
    """What the words ask for, by their keywords alone.

    Args:
        text: what was heard.
        tools: names of the tools.
    """
    words = re.sub(r"[^a-z0-9' ]", " ", text.lower()).split()
    spaced = f" {' '.join(words)} "
    places = [
        (spaced.find(f" {keyword} "), -len(keyword), tool)
        for tool in tools
        for keyword in KEYWORDS.get(tool, (tool.replace("_", " "),))
    ]
    found = [place for place in places if place[0] >= 0]
    if found:
        return ToolAction(ToolCall(min(found)[2], {}))
    if words and words[0] in QUESTION_WORDS:
        return AnswerAction(NO_CONTENT)
    return MuteAction()


def load(setup: Setup) -> Contestant:
    """Load it, with the product's ears."""
    return Contestant(setup.parts(AsrKeyword()), setup.catalogue, as_proposed=True)
