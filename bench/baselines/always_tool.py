"""Calls a tool whatever is said, and has no gate: what a tool rate alone would call perfect."""

from __future__ import annotations

from collections.abc import Sequence

from bench.baselines.rules import model_of
from bench.contestants import Contestant, Setup
from gate.actions import MuteAction, ToolAction
from gate.catalogue import ToolCall, ToolFacts
from gate.grammar import render
from models.protocols import PolicyInput, PolicyOutput


class AlwaysTool:
    """A policy that calls the first tool of the list on every turn, without arguments. It cannot know which is meant,
    so with ten tools it is right about one command in ten."""

    model = model_of("always-tool", __file__)

    def prepare(self, tools: Sequence[ToolFacts]) -> None:
        """Nothing to prepare."""

    def propose(self, turn: PolicyInput) -> PolicyOutput:
        """Call the first tool; mute where there is none."""
        action = ToolAction(ToolCall(turn.tools[0].name, {})) if turn.tools else MuteAction()
        return PolicyOutput(render(action))


def load(setup: Setup) -> Contestant:
    """Load it, with the product's ears."""
    return Contestant(setup.parts(AlwaysTool()), setup.catalogue, as_proposed=True)
