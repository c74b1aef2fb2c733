"""Never does anything: no false execution, and no command carried out. What a mute rate alone would call perfect."""

from __future__ import annotations

from collections.abc import Sequence

from bench.baselines.rules import model_of
from bench.contestants import Contestant, Setup
from gate.catalogue import ToolFacts
from gate.grammar import MUTE
from models.protocols import PolicyInput, PolicyOutput


class AlwaysMute:
    """A policy that mutes every turn."""

    model = model_of("always-mute", __file__)

    def prepare(self, tools: Sequence[ToolFacts]) -> None:
        """Nothing to prepare."""

    def propose(self, turn: PolicyInput) -> PolicyOutput:
        """Mute."""
        return PolicyOutput(MUTE)


def load(setup: Setup) -> Contestant:
    """Load it, with the product's ears."""
    return Contestant(setup.parts(AlwaysMute()), setup.catalogue, as_proposed=True)
